"""What operators of multicluster meshes have met elsewhere, each as a whole kind, on one stage of three networks.

The stage is `tests.kit.three_networks`: home quay, mesa and fjord behind gateways, atoll beside home. Troubles of
single parts (registration, watches, streams, names of gateways) are with those parts.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from aggregator.graph import Pass
from aggregator.views.ingress_gateway import view_of
from tests.kit import manifests as m
from tests.kit import three_networks as stage
from tests.kit.three_networks import (
    APP,
    ORDERS,
    Object,
    cluster_of,
    everything,
    grow,
    once,
    orders,
    pod,
    reach,
    world_of,
)
from tests.kit.world import World, changed_names
from xds.messages.assignment import ASSIGNMENT_TYPE

SHUFFLES = 50
REMOTES = ("mesa", "fjord")


def ends_alike(objects: Iterable[Object], home: str = "quay") -> World:
    """The world these objects end in, which is the same to the byte in whatever order they come."""
    objects = once(objects)
    straight = grow(World(home), objects)
    rng = random.Random(17)
    for _ in range(SHUFFLES):
        shuffled = grow(World(home), rng.sample(objects, len(objects)), every=rng.randint(1, 9))
        assert shuffled.resources == straight.resources
        assert shuffled.findings() == straight.findings()
    return straight


def endpoints(world: World, cluster: str) -> list[str]:
    """The pods of a cluster that are told one by one as endpoints of orders."""
    return [
        name
        for name, told in world.addresses().items()
        if name.startswith(f"{cluster}//Pod/") and ORDERS in told["workload"].get("services", {})
    ]


def spiffe(*accounts: str) -> list[str]:
    return [f"spiffe://cluster.local/ns/shop/sa/{account}" for account in accounts]


# Waypoints elsewhere (istio/istio#60626, #61609).


def test_who_answers_for_a_waypoint_elsewhere_is_accepted_sorted_and_the_same_on_every_rebuild() -> None:
    account = {"gateway.istio.io/service-account": "wp-acct"}
    waypoint = m.gateway("shop/wp", annotations=account, addresses=[("Hostname", "wp.shop.svc.cluster.local")])
    behind = orders("mesa", labels=stage.USE_WAYPOINT)
    world = ends_alike(
        [
            *cluster_of("quay"),
            *cluster_of("mesa", service=behind),
            ("mesa", waypoint),
            *(("mesa", pod("mesa", number, account="orders-acct")) for number in (0, 1)),
        ]
    )
    assert world.address(ORDERS)["subject_alt_names"] == spiffe("orders-acct", "wp-acct")
    assert "waypoint" not in world.address(ORDERS)


def test_a_waypoint_elsewhere_that_goes_is_not_accepted_any_more() -> None:
    waypoint = m.gateway("shop/wp", addresses=[("Hostname", "wp.shop.svc.cluster.local")])
    behind = orders("mesa", labels=stage.USE_WAYPOINT)
    world = world_of([*cluster_of("quay"), *cluster_of("mesa", service=behind), ("mesa", waypoint)])
    assert world.address(ORDERS)["subject_alt_names"] == spiffe("orders", "wp")
    world.delete("mesa", waypoint)
    world.step()
    assert world.address(ORDERS)["subject_alt_names"] == spiffe("orders")


# Ports that differ (istio/istio#46105, submariner-io/lighthouse#1831).


def ports_of(world: World, name: str) -> list[tuple[int, int]]:
    ports = world.address(name)["services"][ORDERS]["ports"]
    return [(one["service_port"], one.get("target_port", 0)) for one in ports]


def test_ports_are_the_union_and_each_endpoint_is_only_under_those_it_serves() -> None:
    mesa = "net-mesa/SplitHorizonWorkload/istio-system/edge/198.51.100.20/" + ORDERS
    theirs = orders("mesa", ports={"web": (90, 9090)})
    world = ends_alike([*cluster_of("quay"), *cluster_of("mesa", service=theirs)])
    merged = world.address(ORDERS)["ports"]
    assert [(one["service_port"], one["target_port"]) for one in merged] == [(80, 8080), (90, 9090)]
    assert ports_of(world, "quay//Pod/shop/orders-0") == [(80, 8080)]
    assert ports_of(world, mesa) == [(90, 9090)]
    (conflict,) = world.findings()
    assert (conflict.object, conflict.code) == (("quay", "Service", "shop", "orders"), "ServicePortConflict")
    assert conflict.detail == "mesa has 90 web; quay has 80 http"
    world.apply("mesa", orders("mesa", ports={"web": (90, 9090), "h": (80, 8081)}))
    world.step()
    assert [number for number, _ in ports_of(world, mesa)] == [80, 90]
    assert ports_of(world, "quay//Pod/shop/orders-0") == [(80, 8080)]
    assert [one.detail for one in world.findings()] == ["mesa has 80 h, 90 web; quay has 80 http"]


# Weights (istio/istio#57537, #56355).


def mesa_of_four(ready: int) -> list[Object]:
    """Four pods in two zones, the first few of them ready."""
    return [
        ("mesa", m.node("node-a", region="eu", zone="a")),
        ("mesa", m.node("node-b", region="eu", zone="b")),
        *(("mesa", pod("mesa", one, node=f"node-{'ab'[one % 2]}", ready=one < ready)) for one in range(4)),
    ]


def test_capacity_is_what_is_ready_behind_the_gateway_in_any_zone() -> None:
    world = world_of([*cluster_of("quay"), *cluster_of("mesa"), *mesa_of_four(4)])
    seen = [reach(world, "mesa")]
    for ready in (1, 0, 3):
        for cluster, manifest in mesa_of_four(ready):
            world.apply(cluster, manifest)
        sent = world.step()
        assert [name.partition("/")[0] for name in changed_names(sent)] == ["net-mesa"]
        seen.append(reach(world, "mesa"))
    assert seen == [4, 1, None, 3]


def test_changes_that_come_together_are_one_push_and_those_that_undo_each_other_none() -> None:
    world = world_of([*cluster_of("quay"), *cluster_of("mesa"), *mesa_of_four(4)])

    def change(*states: bool) -> Pass:
        for ready in states:
            world.apply("mesa", pod("mesa", 1, node="node-b", ready=ready))
        return world.step()

    assert len(changed_names(change(False, True, False))) == 1
    assert changed_names(change(True, False)) == set()


# Scope (istio/istio#58269, #57395, #58064).


def test_a_clusters_endpoints_are_shared_only_if_its_own_object_says_so() -> None:
    mesh = [*cluster_of("quay", service=orders("quay", is_global=False)), *cluster_of("mesa"), *cluster_of("fjord")]
    at_quay = ends_alike(mesh)
    assert endpoints(at_quay, "quay") == ["quay//Pod/shop/orders-0"]
    assert [reach(at_quay, remote) for remote in REMOTES] == [None, None]
    at_fjord = ends_alike(mesh, home="fjord")
    assert endpoints(at_fjord, "fjord") == ["fjord//Pod/shop/orders-0"]
    assert reach(at_fjord, "mesa") == 2
    assert not [name for name in at_fjord.addresses() if name.startswith("net-quay/")]


def test_what_home_keeps_to_itself_is_not_served_by_a_cluster_beside_it_either() -> None:
    world = ends_alike([*cluster_of("quay", service=orders("quay", is_global=False)), *cluster_of("atoll")])
    assert endpoints(world, "quay") == ["quay//Pod/shop/orders-0"]
    assert endpoints(world, "atoll") == []
    assert "atoll//Pod/shop/orders-0" in world.addresses()
    world.apply("quay", orders("quay"))
    world.step()
    assert endpoints(world, "atoll") == ["atoll//Pod/shop/orders-0"]


def test_a_service_that_exists_elsewhere_alone_is_told_with_an_address_of_home_and_the_way() -> None:
    ledger = "shop/ledger.shop.svc.cluster.local"
    world = ends_alike(
        [
            *cluster_of("quay"),
            *cluster_of("mesa"),
            ("mesa", m.service("shop/ledger", "10.20.0.14", selector={"app": "ledger"}, is_global=True)),
            ("mesa", m.pod("shop/ledger-1", "10.2.0.9", labels={"app": "ledger"})),
        ]
    )
    assert world.address(ledger)["hostname"] == "ledger.shop.svc.cluster.local"
    assert [one["network"] for one in world.address(ledger)["addresses"]] == ["net-quay", "net-mesa"]
    assert reach(world, "mesa", ledger) == 1


def test_a_cluster_whose_object_is_not_shared_any_more_is_withdrawn_alone() -> None:
    world = ends_alike(stage_of_three())
    assert [reach(world, remote) for remote in REMOTES] == [2, 1]
    world.apply("mesa", orders("mesa", is_global=False))
    assert changed_names(world.step()) == {
        ORDERS,
        "net-mesa/SplitHorizonWorkload/istio-system/edge/198.51.100.20/" + ORDERS,
    }
    assert [reach(world, remote) for remote in REMOTES] == [None, 1]


def stage_of_three() -> list[Object]:
    return [one for cluster in ("quay", *REMOTES) for one in cluster_of(cluster)]


# Ingress and healthy backends elsewhere (istio/istio#58804, #57779).


def test_an_ingress_goes_to_other_networks_when_there_is_nothing_at_home_without_a_gap() -> None:
    view = view_of(ASSIGNMENT_TYPE, lambda _: "")
    assert view is not None
    world = World("quay")
    world.ask(view)
    for cluster, manifest in (*stage_of_three(), ("quay", m.ingress("shop/site", "shop.example", "orders"))):
        world.apply(cluster, manifest)
    world.step()

    def groups() -> list[tuple[int, list[str]]]:
        (told,) = world.told(view).values()
        return [
            (
                one.get("priority", 0),
                [each["endpoint"]["address"]["envoy_internal_address"]["endpoint_id"] for each in one["lb_endpoints"]],
            )
            for one in told.get("endpoints", [])
        ]

    ways = ["198.51.100.30:15008", "198.51.100.20:15008"]
    assert groups() == [(0, ["10.1.0.5:8080"]), (1, ways)]
    world.delete("quay", pod("quay"))
    sent = world.step()
    assert [name for where, name in sent.published["resources"] if where == view.name] == ["ing|shop|orders|80"]
    assert groups() == [(1, ways)]
    world.apply("quay", pod("quay"))
    world.step()
    assert groups() == [(0, ["10.1.0.5:8080"]), (1, ways)]


# Networks (istio/istio#42675, #54381, #27979).


def odd_mesa(*, labelled: bool) -> list[Object]:
    """Mesa with one pod that says it is in fjord's network."""
    odd = {**APP, "topology.istio.io/network": "net-fjord"}
    return [*cluster_of("mesa", labelled=labelled), ("mesa", pod("mesa", 1, labels=odd))]


def test_an_endpoint_is_in_the_network_of_its_own_label_then_its_clusters_and_nowhere_before_that_is_known() -> None:
    world = world_of([*cluster_of("quay"), *cluster_of("fjord"), *odd_mesa(labelled=False)])
    assert reach(world, "mesa") is None
    assert reach(world, "fjord") == 2
    assert not [name for name in world.addresses() if name.startswith("mesa//Pod/")]
    world.apply("mesa", m.namespace("istio-system", network="net-mesa"))
    world.step()
    assert (reach(world, "mesa"), reach(world, "fjord")) == (1, 2)
    ends_alike([*cluster_of("quay"), *cluster_of("fjord"), *odd_mesa(labelled=True)])
    world.apply("mesa", m.namespace("istio-system"))
    world.step()
    assert (reach(world, "mesa"), reach(world, "fjord")) == (None, 2)


def test_where_no_cluster_has_a_network_all_pods_are_told_one_by_one() -> None:
    clusters = ("quay", *REMOTES)
    world = world_of([one for name in clusters for one in cluster_of(name, labelled=False)[:-1]])
    assert [len(endpoints(world, name)) for name in clusters] == [1, 2, 1]
    assert not [name for name in world.addresses() if "SplitHorizon" in name]
    assert world.findings() == []


# Versions (kumahq/kuma#16187, envoy-control#159).


def test_a_mesh_with_everything_in_it_has_the_same_bytes_in_whatever_order_it_came() -> None:
    ends_alike(everything())


def test_versions_are_the_same_in_another_process_with_another_order_of_sets_and_of_arrival() -> None:
    def versions(seed: str) -> dict[str, str]:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "tests.kit.three_networks", seed]
        root = Path(__file__).parents[2]
        done = subprocess.run(
            command, env=environment, cwd=root, check=True, capture_output=True, text=True, timeout=60
        )
        found: dict[str, str] = json.loads(done.stdout)
        return found

    first = versions("1")
    assert first == versions("2")
    assert {len(version) for version in first.values()} == {32}
    assert {name.split("|", 1)[0] for name in first} == {"ztunnel", "ingress", "east-west"}
