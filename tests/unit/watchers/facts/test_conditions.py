"""What objects say of themselves, and which of it is ours."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from watchers.facts import kinds

GLOBAL = 'k:{"type":"isthmus.dev/Global"}'
TOLD = {"type": "isthmus.dev/Global", "status": "True", "reason": "Shared", "message": "", "observedGeneration": 1}


def managed(*entries: tuple[str, str, Any]) -> list[Manifest]:
    return [
        {"manager": manager, "subresource": subresource, "fieldsV1": fields} for manager, subresource, fields in entries
    ]


def service(entries: list[Manifest], **status: Any) -> Manifest:
    return {**m.service("shop/cart", metadata={"managedFields": entries}), "status": status}


def fact(document: Manifest) -> Any:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    return keyed[1]


def test_what_we_wrote_of_a_status_is_known_by_field_and_by_type_of_condition() -> None:
    ours: Manifest = {"f:status": {"f:conditions": {GLOBAL: {"f:status": {}}, ".": {}}, "f:loadBalancer": {}}}
    found = fact(service(managed(("isthmus", "status", ours)))).written
    assert found == ("conditions", "isthmus.dev/Global", "loadBalancer")


@pytest.mark.parametrize(
    "entry",
    [
        ("somebody", "status", {"f:status": {"f:conditions": {GLOBAL: {}}}}),
        ("isthmus", "", {"f:status": {"f:conditions": {GLOBAL: {}}}}),
        ("isthmus", "status", {"f:metadata": {"f:labels": {}}}),
        ("isthmus", "status", None),
    ],
)
def test_what_others_wrote_and_what_is_no_status_is_not_ours(entry: tuple[str, str, Any]) -> None:
    assert fact(service(managed(entry))).written == ()


@pytest.mark.parametrize("key", ["k:", "k:{", "k:[]", 'k:{"name":"a"}', "v:1", ""])
def test_a_key_that_names_no_type_is_passed_over(key: str) -> None:
    ours: Manifest = {"f:status": {"f:conditions": {key: {}}}}
    assert fact(service(managed(("isthmus", "status", ours)))).written == ("conditions",)


@pytest.mark.parametrize(("given", "read"), [(4, 4), ("4", 4), ("", 0), ("x", 0), (None, 0), ("9" * 30, 0)])
def test_a_generation_is_a_number_or_text_as_istio_writes_it(given: Any, read: int) -> None:
    told = {**TOLD, "observedGeneration": given}
    (condition,) = fact(service([], conditions=[told])).conditions
    assert condition.generation == read


def test_what_statuses_say_is_not_kept_of_clusters_that_are_not_home() -> None:
    said = {"conditions": [{"type": "Accepted", "status": "True"}]}
    ours = managed(("isthmus", "status", {"f:status": {"f:conditions": {}}}))
    plain = (
        m.service("shop/cart"),
        m.gateway("shop/gate", "istio-waypoint", m.listener(), addresses=["192.0.2.1"]),
        m.service_entry("shop/a", "a.ext", allocated={"a.ext": ["240.240.0.9"]}),
        m.workload_entry("shop/vm", "10.9.9.9"),
    )
    for one in plain:
        more = {**one, "metadata": {**one["metadata"], "managedFields": ours}}
        more["status"] = {**one.get("status", {}), **said}
        kind = kinds.kind_of(one["apiVersion"], one["kind"])
        assert kind is not None
        elsewhere = kind.elsewhere()
        assert elsewhere.decode(more, "west", "istio-system") == kind.decode(one, "west", "istio-system")
