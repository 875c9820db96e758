"""Facts of the Multi-Cluster Services API."""

from __future__ import annotations

import copy
from typing import Any

from tests.unit.watchers.recorded import recorded
from watchers.facts import ServiceExport, ServiceImport
from watchers.facts.conditions import Condition
from watchers.facts.kinds import decode
from watchers.facts.multicluster import ImportPort, ImportSpec

VALID = Condition("Valid", "True", "Valid", "", 2, "2026-02-01T08:00:02Z")
READY = Condition("Ready", "True", "Ready", "", 1, "2026-02-01T08:00:03Z")


def fact(document: Any) -> Any:
    keyed = decode(document, "west", "istio-system")
    assert keyed is not None
    return keyed[1]


def test_a_recorded_export() -> None:
    assert decode(recorded("service_export"), "west", "istio-system") == (
        ("west", "ServiceExport", "shop", "cart"),
        ServiceExport(
            created="2026-02-01T08:00:01Z",
            generation=2,
            labels=(("tier", "front"),),
            annotations=(("example.com/docs", "https://docs.example.com/cart?from=a b"),),
            conditions=(VALID,),
            told=True,
        ),
    )


def test_a_recorded_import() -> None:
    assert decode(recorded("service_import"), "west", "istio-system") == (
        ("west", "ServiceImport", "shop", "cart"),
        ServiceImport(
            owned=True,
            uid="0c7a1e2b-7ea0-4b56-8a86-11d2b9c3a022",
            generation=1,
            labels=(("app.kubernetes.io/managed-by", "isthmus"), ("tier", "front")),
            annotations=(("example.com/docs", "https://docs.example.com/cart"),),
            spec=ImportSpec(
                type="ClusterSetIP",
                ports=(ImportPort("http", 80, "TCP", "kubernetes.io/h2c"), ImportPort("dns", 53, "UDP", "")),
                addresses=("240.240.18.7",),
                families=("IPv4",),
                affinity="ClientIP",
                affinity_seconds=10800,
                internal_traffic_policy="Cluster",
                traffic_distribution="PreferClose",
            ),
            clusters=("alpha", "beta"),
            conditions=(READY,),
        ),
    )


def test_an_import_that_others_made_is_not_owned_though_its_status_was_written_by_us() -> None:
    document = copy.deepcopy(recorded("service_import"))
    document["metadata"]["managedFields"][0]["manager"] = "kubectl"
    found = fact(document)
    assert (found.owned, found.labels, found.annotations) == (False, (), ())


def test_the_newer_version_of_the_api_reads_the_same() -> None:
    for name in ("service_export", "service_import"):
        document = recorded(name)
        assert fact({**document, "apiVersion": "multicluster.x-k8s.io/v1beta1"}) == fact(document)
