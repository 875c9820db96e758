"""A small change in costs a small change out: what runs, and what reaches proxies, for one change in a full world."""

from __future__ import annotations

import pytest

from tests.bench import mesh
from tests.kit import manifests as m
from tests.kit.world import World, changed_names

SERVICES, PODS = 30, 300


@pytest.fixture(scope="module")
def world() -> World:
    """Home c0 and two remote clusters, 30 services and 300 pods each."""
    world = World("c0")
    for cluster in range(3):
        world.apply(f"c{cluster}", *mesh.objects(cluster, SERVICES, PODS))
    world.step()
    return world


def test_an_annotation_that_nobody_reads_runs_nothing(world: World) -> None:
    noisy = mesh.pod(0, SERVICES, 7)
    noisy["metadata"]["annotations"] = {**noisy["metadata"].get("annotations", {}), "example.org/seen": "now"}
    revision = world.facts.revision
    world.apply("c0", noisy)
    assert world.facts.revision == revision


def test_a_heartbeat_of_a_node_runs_nothing(world: World) -> None:
    node = m.node("node-1", region="eu", zone="eu-1")
    node["status"] = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:10Z"}]}
    revision = world.facts.revision
    world.apply("c0", node)
    assert world.facts.revision == revision


def test_one_home_pod_that_changes_readiness_changes_one_resource_and_runs_a_bounded_number_of_functions(
    world: World,
) -> None:
    world.apply("c0", mesh.pod(0, SERVICES, 7, ready=False))
    result = world.step()
    assert changed_names(result) == {"c0//Pod/shop/s7-7"}
    assert result.evaluated <= 6


def test_one_remote_pod_that_changes_readiness_changes_one_resource_and_runs_a_bounded_number_of_functions(
    world: World,
) -> None:
    world.apply("c1", mesh.pod(1, SERVICES, 7, ready=False))
    result = world.step()
    assert changed_names(result) == {
        "n1/SplitHorizonWorkload/istio-system/edge/192.0.2.2/shop/s7.shop.svc.cluster.local"
    }
    assert result.evaluated <= 6


def test_the_functions_one_change_runs_do_not_grow_with_the_mesh() -> None:
    evaluated = []
    for services, pods in ((10, 50), (50, 500)):
        world = World("c0")
        for cluster in range(2):
            world.apply(f"c{cluster}", *mesh.objects(cluster, services, pods))
        world.step()
        world.apply("c1", mesh.pod(1, services, 3, ready=False))
        evaluated.append(world.step().evaluated)
    assert evaluated[0] == evaluated[1]


def test_what_comes_back_to_where_it_was_within_a_pass_publishes_nothing(world: World) -> None:
    world.apply("c0", mesh.pod(0, SERVICES, 11, ready=False))
    world.apply("c0", mesh.pod(0, SERVICES, 11))
    result = world.step()
    assert result.evaluated == 0
    assert not result.published
