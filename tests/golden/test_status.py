"""What objects of home are told in their status, held to what the peer wrote.

Compared are the kinds and conditions that are about what node proxies are told: for each condition its status and
reason, since messages are our own words. What the peer does not have (`isthmus.dev/...`) has nothing to be held to, and
conditions of policies at waypoints (`WaypointAccepted`) wait for the feature they are about.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.kit import golden
from tests.kit.world import World, manifests_of
from watchers.writes import body

KINDS = ("AuthorizationPolicy", "Service", "ServiceEntry", "WorkloadEntry")
CONDITIONS = ("ZtunnelAccepted", "istio.io/WaypointBound", "istio.io/WaypointMissing")
CASES = golden.names()


def compared(statuses: dict[str, Any]) -> dict[str, Any]:
    """The parts of statuses that are compared, by object; objects of whom nothing is left are left out."""
    found: dict[str, Any] = {}
    for name, status in statuses.items():
        if name.partition("/")[0] not in KINDS:
            continue
        parts: dict[str, Any] = {
            one["type"]: f"{one['status']} {one['reason']}"
            for one in status.get("conditions", ())
            if one["type"] in CONDITIONS
        }
        if "addresses" in status:
            parts["addresses"] = sorted([one["host"], one["value"]] for one in status["addresses"])
        if parts:
            found[name] = parts
    return found


def told(scenario: golden.Scenario) -> dict[str, Any]:
    """What is to be written in the world of a scenario, in Istio's place."""
    world = World(scenario.local_cluster, istio_classes=True)
    for cluster, directory in scenario.directories.items():
        world.apply(cluster, *manifests_of(directory))
    world.step()
    return {
        "/".join(key[1:4]): msgspec.json.decode(body(key, write, "")).get("status", {})
        for key, write in world.published["writes"].items()
    }


def record(scenario: golden.Scenario) -> dict[str, Any]:
    """What the peer wrote; without a record nothing of what is compared."""
    try:
        return compared(dict(scenario.record("status")))
    except FileNotFoundError:
        return {}


@pytest.mark.parametrize("name", CASES)
def test_what_objects_are_told_equals_the_peers_record_apart_from_declared_improvements(name: str) -> None:
    scenario = golden.load(name)
    ours, theirs = compared(told(scenario)), record(scenario)
    comparison = golden.compare({"status": ours}, {"status": theirs}, scenario.improvements_of("status"))
    assert comparison.clean, f"\n{comparison.report()}"


def test_every_condition_that_is_compared_occurs_in_a_record() -> None:
    seen = {part for name in CASES for parts in record(golden.load(name)).values() for part in parts}
    assert seen == {*CONDITIONS, "addresses"}
