"""The fake API takes writes as a real server does, as far as the product can tell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.kit import manifests
from tests.kit.kube_store import Store
from tests.kit.kube_writes import Refused, apply_status, create, update

NAME = ("shop", "cart")


@pytest.fixture
def store() -> Store:
    store = Store()
    store.apply(manifests.ingress("shop/cart", "a.example", "cart"))
    return store


def applied(store: Store, manager: str, status: Any, *, force: bool = False) -> dict[str, Any]:
    body = msgspec.json.encode({"kind": "Ingress", "metadata": {"name": "cart"}, "status": status})
    return apply_status(store, "Ingress", NAME, body, manager, force=force)


def balancer(*addresses: str) -> Any:
    return {"loadBalancer": {"ingress": [{"ip": address} for address in addresses]}}


def test_what_is_not_applied_again_goes_with_its_last_owner(store: Store) -> None:
    applied(store, "a", balancer("192.0.2.1"))
    applied(store, "b", balancer("192.0.2.1"))
    assert applied(store, "a", {})["status"] == balancer("192.0.2.1")
    gone = applied(store, "b", {})
    assert not gone["status"]
    assert not gone["metadata"]["managedFields"]


def test_what_another_owns_is_taken_by_force_only(store: Store) -> None:
    applied(store, "a", balancer("192.0.2.1"))
    with pytest.raises(Refused) as refused:
        applied(store, "b", balancer("192.0.2.2"))
    assert refused.value.status == 409
    taken = applied(store, "b", balancer("192.0.2.2"), force=True)
    assert [entry["manager"] for entry in taken["metadata"]["managedFields"]] == ["b"]


def test_conditions_are_a_map_by_type(store: Store) -> None:
    applied(store, "a", {"conditions": [{"type": "Accepted", "status": "True"}]})
    both = applied(store, "b", {"conditions": [{"type": "Programmed", "status": "False"}]})
    assert [one["type"] for one in both["status"]["conditions"]] == ["Accepted", "Programmed"]


def test_who_owns_what_is_written_as_a_real_server_writes_it(store: Store) -> None:
    entry = {"type": "isthmus.dev/Global", "status": "True"}
    written = applied(store, "a", {"conditions": [entry], **balancer("192.0.2.1")})
    (managed,) = written["metadata"]["managedFields"]
    assert managed["fieldsV1"] == {
        "f:status": {
            "f:conditions": {'k:{"type": "isthmus.dev/Global"}': {"f:status": {}, "f:type": {}}},
            "f:loadBalancer": {"f:ingress": {}},
        }
    }
    assert not applied(store, "a", {})["status"]


def test_conditions_of_istios_kinds_are_one_value(store: Store) -> None:
    store.apply(manifests.service_entry("shop/cart", "a.ext"))
    for manager, of_type in (("a", "Accepted"), ("b", "Programmed")):
        document = {"kind": "ServiceEntry", "status": {"conditions": [{"type": of_type, "status": "True"}]}}
        body = msgspec.json.encode({**document, "metadata": {"name": "cart"}})
        written = apply_status(store, "ServiceEntry", NAME, body, manager, force=True)
    assert [one["type"] for one in written["status"]["conditions"]] == ["Programmed"]


def test_equal_content_is_no_revision(store: Store) -> None:
    applied(store, "a", balancer("192.0.2.1"))
    revision = store.revision
    applied(store, "a", balancer("192.0.2.1"))
    assert store.revision == revision


def test_an_object_that_is_not_there_has_no_status(store: Store) -> None:
    store.delete("Ingress", "shop/cart")
    with pytest.raises(Refused) as refused:
        applied(store, "a", balancer("192.0.2.1"))
    assert refused.value.status == 404


def test_an_update_of_an_older_version_is_refused(store: Store) -> None:
    lease: dict[str, Any] = {"kind": "Lease", "metadata": {"name": "leader"}, "spec": {"holderIdentity": "a"}}
    made = create(store, "Lease", "shop", msgspec.json.encode(lease))
    with pytest.raises(Refused) as twice:
        create(store, "Lease", "shop", msgspec.json.encode(lease))
    made["spec"]["holderIdentity"] = "b"
    update(store, "Lease", ("shop", "leader"), msgspec.json.encode(made))
    with pytest.raises(Refused) as older:
        update(store, "Lease", ("shop", "leader"), msgspec.json.encode(made))
    assert (twice.value.reason, older.value.reason) == ("AlreadyExists", "Conflict")
