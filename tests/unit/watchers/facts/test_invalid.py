"""What is said of an object that cannot be used: which field, what is wrong, what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests
from tests.unit.watchers.recorded import recorded
from watchers.facts import kinds
from watchers.facts.invalid import InvalidObject, field, refusal


def refused(document: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as caught:
        kinds.decode(document, "west", "istio-system")
    return caught.value


def pod_with(value: object, *path: str | int) -> Any:
    document = recorded("pod")
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "message", "cure"),
    [
        (
            ("metadata", "labels", "istio.io/global"),
            True,
            'metadata.labels["istio.io/global"] is true, must be a string',
            'put it in quotes: "true"',
        ),
        (
            ("metadata", "annotations", "ambient.istio.io/redirection"),
            5,
            'metadata.annotations["ambient.istio.io/redirection"] is 5, must be a string',
            'put it in quotes: "5"',
        ),
        (
            ("spec", "containers", 1, "ports", 0, "containerPort"),
            "9090",
            "spec.containers[1].ports[0].containerPort is '9090', must be a whole number",
            "write it without quotes: 9090",
        ),
        (
            ("spec", "containers"),
            {"name": "cart"},
            "spec.containers is a mapping, must be a list",
            "write a list: every entry begins with '- '",
        ),
        (
            ("spec", "hostNetwork"),
            "yes",
            "spec.hostNetwork is 'yes', must be true or false",
            "write true or false there",
        ),
        (
            ("spec", "containers", 0, "ports", 0, "containerPort"),
            70000,
            "spec.containers[0].ports[0].containerPort is 70000, must be at most 65535",
            "use a port number from 1 to 65535",
        ),
    ],
)
def test_messages(path: tuple[str | int, ...], value: object, message: str, cure: str) -> None:
    error = refused(pod_with(value, *path))
    assert (str(error), error.cure) == (f"Pod shop/cart-7d9f4c6b5-x2x1z: {message}", cure)
    assert error.path == path


def test_an_object_without_metadata_has_no_name() -> None:
    error = refused(pod_with(None, "metadata"))
    assert (str(error), error.cure) == (
        "Pod without a name: metadata is null, must be a mapping",
        "write a mapping there",
    )


def test_a_missing_field_is_named() -> None:
    error = refused({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop"}})
    assert str(error) == "Pod without a name: metadata.name is missing"
    assert error.key is None


def test_the_key_of_what_is_refused_is_told() -> None:
    error = refused(manifests.pod("shop/a", labels={"a": 1}))
    assert error.key == ("west", "Pod", "shop", "a")


def test_the_key_of_a_cluster_wide_object_has_no_namespace() -> None:
    assert refused(manifests.namespace("shop", labels={"a": 1})).key == ("west", "Namespace", "", "shop")


def test_the_key_of_a_mesh_config_is_the_facts() -> None:
    document = {**manifests.mesh_config_map(), "data": {"mesh": 5}}
    error = refused(document)
    assert error.key == ("west", "MeshConfig", "istio-system", "istio")
    assert error.subject == "ConfigMap istio-system/istio"


def test_long_values_are_cut() -> None:
    error = refused(manifests.pod("shop/a", spec={"hostNetwork": "x" * 5_000}))
    assert len(str(error)) < 200


def test_a_map_entry_is_found_by_the_type_that_is_wrong() -> None:
    error = refused(manifests.pod("shop/a", labels={"a": "1", "b": 2, "c": True, "d": 3.5}))
    assert error.path == ("metadata", "labels", "b")


def test_a_message_in_another_form_is_handed_on() -> None:
    error = refusal("Something else - at `$.spec`", {"spec": 1})
    assert (error.path, error.cause) == (("spec",), "is not usable: Something else")


def test_a_path_that_leads_nowhere_is_followed_as_far_as_it_goes() -> None:
    assert refusal("Expected `str`, got `int` - at `$.a[3].b`", {"a": []}).path == ("a", 3)
    assert refusal("Expected `str`, got `int` - at `$.a[...]`", {"a": {"b": "c"}}).path == ("a",)


def test_fields_are_written_as_people_do() -> None:
    assert field(("spec", "ports", 0, "targetPort")) == "spec.ports[0].targetPort"
    assert field(("metadata", "labels", "a.b/c")) == 'metadata.labels["a.b/c"]'
    assert field(()) == ""


@pytest.mark.parametrize(("field", "name"), [("name", "a." * 500_000), ("namespace", "x" * 254)])
def test_a_name_that_no_object_can_have_is_not_repeated_in_full(field: str, name: str) -> None:
    error = refused(pod_with(name, "metadata", field))
    assert len(str(error)) < 1000
    assert error.key is None
