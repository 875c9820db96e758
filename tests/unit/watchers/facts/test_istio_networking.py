"""ServiceEntries and WorkloadEntries as facts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.unit.watchers.recorded import recorded
from watchers.facts import kinds
from watchers.facts.conditions import Condition
from watchers.facts.invalid import InvalidObject
from watchers.facts.istio_networking import EntryEndpoint, EntryPort


def fact(document: Any) -> Any:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    return keyed[1]


def refused(document: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as caught:
        fact(document)
    return caught.value


def test_a_recorded_service_entry() -> None:
    entry = fact(recorded("service_entry"))
    assert (entry.hosts, entry.addresses) == (("db.example.com",), ("240.1.2.3", "10.7.0.0/16"))
    assert entry.endpoints[0] == EntryEndpoint(
        "192.0.2.1", (("tcp", 3308),), (("version", "v1"),), "net-a", "r1/a/s1", 7, "db"
    )
    assert (entry.allocated, entry.written) == ((("db.example.com", "240.240.0.1"),), ("addresses",))
    # Istio writes generations as text.
    bound = Condition("istio.io/WaypointBound", "True", "WaypointAccepted", "attached", 1, "2026-02-01T08:10:01Z")
    assert entry.conditions == (bound,)


def test_a_recorded_workload_entry() -> None:
    entry = fact(recorded("workload_entry"))
    assert entry.endpoint.address
    assert entry.endpoint.labels == entry.labels


def test_what_an_entry_does_not_say_has_istios_defaults() -> None:
    entry = fact(m.service_entry("shop/a", "a.ext", ports=[{"number": 80}]))
    assert (entry.ports, entry.written, entry.revision) == ((EntryPort(80, 0, "", ""),), (), "")
    bare = {"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": "a", "namespace": "b"}}
    assert (fact(bare).resolution, fact(bare).hosts) == ("NONE", ())


@pytest.mark.parametrize("host", ["", "a b", "a/b", "a\nb", "h" * 254])
def test_what_cannot_be_a_part_of_a_name_is_no_host(host: str) -> None:
    assert refused(m.service_entry("shop/a", "good.ext", host)).path == ("spec", "hosts", 1)


@pytest.mark.parametrize("weight", [-1, 1 << 31])
def test_what_cannot_be_a_weight_is_refused(weight: int) -> None:
    assert refused(m.workload_entry("shop/vm", "10.0.0.1", weight=weight)).path == ("spec", "weight")
    endpoint = {"address": "10.0.0.1", "weight": weight}
    entry = m.service_entry("shop/a", "a.ext", endpoints=["10.0.0.2", endpoint])
    assert refused(entry).path == ("spec", "endpoints", 1, "weight")


def test_an_account_that_could_forge_an_identity_is_refused() -> None:
    entry = m.workload_entry("shop/vm", "10.0.0.1", account="a/ns/istio-system/sa/b")
    assert refused(entry).path == ("spec", "serviceAccount")


def test_labels_of_a_workload_entrys_metadata_go_over_those_of_its_spec() -> None:
    entry = m.workload_entry("shop/vm", "10.0.0.1", labels={"a": "1", "istio.io/rev": "canary"})
    entry["spec"]["labels"] = {"a": "0", "b": "2"}
    assert fact(entry).labels == (("a", "1"), ("b", "2"), ("istio.io/rev", "canary"))
    assert fact(entry).revision == "canary"
