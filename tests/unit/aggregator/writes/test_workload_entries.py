"""What WorkloadEntries are told of the waypoint they ask for."""

from __future__ import annotations

from typing import Any

from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.unit.aggregator.writes.told import ToldWorld

NAME = "shop/vm"
USES = {"istio.io/use-waypoint": "way"}
WAY = m.gateway("shop/way", addresses=["10.96.0.9"], labels={"istio.io/waypoint-for": "workload"})


def machine(**more: Any) -> Manifest:
    return m.workload_entry(NAME, "10.9.9.9", **more)


def told(*documents: Manifest, istio_classes: bool = True, **settings: Any) -> ToldWorld:
    world = ToldWorld(istio_classes=istio_classes, **settings)
    world.apply(m.namespace("istio-system"), m.namespace("shop"), *documents)
    world.settle()
    return world


def test_an_entry_is_told_the_waypoint_it_has() -> None:
    world = told(machine(labels=USES), WAY)
    assert world.conditions("WorkloadEntry", NAME) == {"istio.io/WaypointBound": "True WaypointAccepted"}


def test_a_waypoint_of_services_is_not_for_workloads() -> None:
    world = told(machine(labels=USES), m.gateway("shop/way", addresses=["10.96.0.9"]))
    assert world.conditions("WorkloadEntry", NAME) == {"istio.io/WaypointBound": "False UnsupportedTrafficType"}


def test_the_condition_goes_when_none_is_asked_for_any_more() -> None:
    world = told(machine(labels=USES))
    assert world.conditions("WorkloadEntry", NAME) == {"istio.io/WaypointBound": "False WaypointIsNotReady"}
    world.apply(machine())
    assert len(world.settle()) == 1
    assert world.conditions("WorkloadEntry", NAME) == {}


def test_beside_istiod_of_another_revision_and_in_remote_clusters_nothing_is_told() -> None:
    assert told(machine(labels=USES), istio_classes=False).written == []
    world = told(machine(labels={**USES, "istio.io/rev": "other"}), remote_entries=True)
    world.world.apply("beta", m.namespace("shop"), machine(labels=USES))
    assert world.settle() == []
    assert world.conditions("WorkloadEntry", NAME) == {}
