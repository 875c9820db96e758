"""What Services are told: with whom they are shared, whether those agree, through which waypoint they are reached."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.kit import manifests as m
from tests.kit.kube_writes import apply_status
from tests.kit.manifests import Manifest
from tests.unit.aggregator.writes.told import ToldWorld

NAME = "shop/cart"
USES = {"istio.io/use-waypoint": "way"}
SHARED = {"isthmus.dev/Global": "True Shared", "isthmus.dev/ClustersAgree": "True ClustersAgree"}
ALONE = {"isthmus.dev/Global": "True NotSharedElsewhere"}
BOUND = {"istio.io/WaypointBound": "True WaypointAccepted"}


def cart(**more: Any) -> Manifest:
    return m.service(NAME, "10.96.0.1", **more)


def way(name: str = "shop/way", **more: Any) -> Manifest:
    return m.gateway(name, addresses=["10.96.0.9"], **more)


def told(*documents: Manifest, elsewhere: tuple[tuple[str, Manifest], ...] = (), **settings: Any) -> ToldWorld:
    world = ToldWorld(**settings)
    world.apply(m.namespace("istio-system", network="net-a"), m.namespace("shop"), *documents)
    for cluster, document in elsewhere:
        world.world.apply(cluster, m.namespace("istio-system", network=f"net-{cluster}"), m.namespace("shop"), document)
    world.settle()
    return world


def message(world: ToldWorld, type_: str) -> str:
    (found,) = [one["message"] for one in world.status("Service", NAME)["conditions"] if one["type"] == type_]
    return str(found)


def test_a_global_service_says_that_others_share_it() -> None:
    world = told(cart(is_global=True), elsewhere=(("beta", cart(is_global=True)), ("delta", cart())))
    assert world.conditions("Service", NAME) == SHARED


def test_a_cluster_that_joins_or_leaves_those_that_share_it_has_nothing_written() -> None:
    elsewhere = tuple([(f"c{number:02}", cart(is_global=True)) for number in range(3)])
    world = told(cart(is_global=True), elsewhere=elsewhere)
    world.world.apply("late", m.namespace("shop"), cart(is_global=True))
    assert world.settle() == []
    world.world.leave("c01")
    assert world.settle() == []


def test_a_service_that_is_global_nowhere_else_says_so() -> None:
    assert told(cart(is_global=True), elsewhere=(("beta", cart()),)).conditions("Service", NAME) == ALONE


def test_the_first_who_joins_and_the_last_who_leaves_change_the_condition_and_endpoints_do_not() -> None:
    world = told(cart(is_global=True, selector={"app": "cart"}))
    world.world.apply("beta", m.namespace("shop"), cart(is_global=True))
    assert len(world.settle()) == 1
    assert world.conditions("Service", NAME) == SHARED
    world.apply(m.pod("shop/cart-1", "10.1.0.1", labels={"app": "cart"}))
    assert world.settle() == []
    world.world.leave("beta")
    world.settle()
    assert world.conditions("Service", NAME) == ALONE


def test_clusters_that_contradict_each_other_are_told_with_what_they_say() -> None:
    world = told(cart(is_global=True), elsewhere=(("beta", cart(is_global=True, ports={"http": 81})),))
    assert world.conditions("Service", NAME)["isthmus.dev/ClustersAgree"] == "False ServicePortConflict"
    assert "Alpha has 80 http; beta has 81 http." in message(world, "isthmus.dev/ClustersAgree")
    assert "Give the Service the same ports" in message(world, "isthmus.dev/ClustersAgree")


def test_a_message_is_no_longer_than_an_api_server_takes_and_comes_to_rest() -> None:
    ports = {f"port-{number}": 1000 + number for number in range(100)}
    elsewhere = tuple([(f"c{number:02}", cart(is_global=True, ports=ports)) for number in range(30)])
    world = told(cart(is_global=True), elsewhere=elsewhere)
    assert len(message(world, "isthmus.dev/ClustersAgree")) == 32768
    assert world.settle() == []


def test_a_service_that_is_not_shared_is_told_nothing_and_loses_what_we_wrote() -> None:
    world = told(cart(is_global=True), elsewhere=(("beta", cart(is_global=True)),))
    world.apply(cart())
    assert len(world.settle()) == 1
    assert world.status("Service", NAME) == {}
    assert world.settle() == []


def test_nothing_is_said_of_other_clusters_before_all_have_answered() -> None:
    world = ToldWorld()
    world.world.cluster("beta", "syncing")
    world.apply(m.namespace("shop"), cart(is_global=True))
    assert world.writes() == {}
    world.world.cluster("beta")
    assert len(world.writes()) == 1


def test_what_was_said_of_a_cluster_is_not_taken_back_while_one_has_never_been_read() -> None:
    world = told(cart(is_global=True), elsewhere=(("beta", cart(is_global=True)),))
    world.world.leave("beta")
    world.world.cluster("beta", "connecting", deadline=0.0)
    assert world.settle() == []
    world.world.leave("beta")
    world.settle()
    assert world.conditions("Service", NAME) == ALONE


def test_a_cluster_past_its_limit_does_not_hold_up_what_was_never_said() -> None:
    world = ToldWorld()
    world.world.cluster("beta", "connecting", deadline=0.0)
    world.apply(m.namespace("shop"), cart(is_global=True))
    world.settle()
    assert world.conditions("Service", NAME) == ALONE


def test_services_of_remote_clusters_are_told_nothing() -> None:
    assert told(elsewhere=(("beta", cart(is_global=True)),)).writes() == {}


# Waypoints.


def in_charge(*documents: Manifest) -> ToldWorld:
    return told(*documents, istio_classes=True)


def test_a_service_is_told_the_waypoint_it_has_and_keeps_its_load_balancer() -> None:
    service = {**cart(labels=USES), "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    world = in_charge(service, way())
    assert world.conditions("Service", NAME) == BOUND
    assert message(world, "istio.io/WaypointBound") == "Attached to waypoint shop/way."
    assert world.status("Service", NAME)["loadBalancer"] == {"ingress": [{"ip": "192.0.2.1"}]}


def test_a_waypoint_of_the_namespace_is_told_too_and_what_ingress_gateways_and_canaries_do() -> None:
    labels = {**USES, "istio.io/ingress-use-waypoint": "true", "istio.io/use-waypoint-canary": "next"}
    annotations = {"istio.io/use-waypoint-canary-weight": "20"}
    place = m.namespace("shop", labels=labels, annotations=annotations)
    world = in_charge(place, cart(), way(), way("shop/next"))
    assert world.conditions("Service", NAME) == BOUND
    assert message(world, "istio.io/WaypointBound") == (
        "Attached to waypoint shop/way. 20 percent of the traffic go through shop/next."
        " Traffic of ingress gateways goes through it as well."
    )


REFUSALS: dict[str, tuple[str, tuple[Manifest, ...]]] = {
    "missing": ("WaypointIsNotReady", (cart(labels=USES),)),
    "without address": ("WaypointIsNotReady", (cart(labels=USES), m.gateway("shop/way"))),
    "not admitted": (
        "AttachmentDenied",
        (cart(labels={**USES, "istio.io/use-waypoint-namespace": "infra"}), m.namespace("infra"), way("infra/way")),
    ),
    "of workloads": ("UnsupportedTrafficType", (cart(labels=USES), way(labels={"istio.io/waypoint-for": "workload"}))),
    "canary of no weight": (
        "CanaryInvalidWeight",
        (
            cart(
                labels={**USES, "istio.io/use-waypoint-canary": "next"},
                annotations={"istio.io/use-waypoint-canary-weight": "many"},
            ),
            way(),
            way("shop/next"),
        ),
    ),
    "canary is the same": (
        "CanarySameAsPrimary",
        (cart(labels={**USES, "istio.io/use-waypoint-canary": "way"}), way()),
    ),
    "canary is missing": ("WaypointIsNotReady", (cart(labels={**USES, "istio.io/use-waypoint-canary": "no"}), way())),
}


@pytest.mark.parametrize(("reason", "documents"), REFUSALS.values(), ids=REFUSALS)
def test_a_service_that_cannot_have_what_it_asks_for_is_told_why(
    reason: str, documents: tuple[Manifest, ...]
) -> None:
    world = in_charge(*documents)
    assert world.conditions("Service", NAME) == {"istio.io/WaypointBound": f"False {reason}"}
    # The same in words as the finding, which stands for those who watch over the mesh.
    assert {one.code for one in world.world.findings()} >= {reason}
    assert message(world, "istio.io/WaypointBound").count(". ") >= 1


def test_a_canary_that_cannot_be_had_does_not_take_the_waypoint_away() -> None:
    world = in_charge(cart(labels={**USES, "istio.io/use-waypoint-canary": "no"}), way())
    assert message(world, "istio.io/WaypointBound").startswith("All traffic goes through waypoint shop/way, without")


def test_the_condition_goes_when_no_waypoint_is_asked_for_any_more() -> None:
    world = in_charge(cart(labels=USES, is_global=True), way())
    assert world.conditions("Service", NAME) == {**ALONE, **BOUND}
    world.apply(cart(is_global=True))
    assert len(world.settle()) == 1
    assert world.conditions("Service", NAME) == ALONE


def test_the_condition_follows_the_waypoint() -> None:
    world = in_charge(cart(labels=USES))
    world.apply(way())
    world.settle()
    assert world.conditions("Service", NAME) == BOUND


def test_what_another_control_plane_wrote_stays_and_is_not_written_against() -> None:
    world = told(cart(labels=USES), way())
    document = {"type": "istio.io/WaypointBound", "status": "True", "reason": "R"}
    bound = msgspec.json.encode({"kind": "Service", "status": {"conditions": [document]}})
    apply_status(world.store, "Service", ("shop", "cart"), bound, "istio-ambient-service", force=True)
    world.apply(cart(labels=USES, is_global=True))
    world.settle()
    assert world.conditions("Service", NAME) == {"istio.io/WaypointBound": "True R", **ALONE}
    world.apply(cart())
    world.settle()
    assert world.conditions("Service", NAME) == {"istio.io/WaypointBound": "True R"}


def test_beside_istiod_nothing_is_told_of_waypoints_and_what_we_wrote_is_taken_back() -> None:
    world = in_charge(cart(labels=USES), way())
    again = ToldWorld()
    again.store = world.store
    for kind, name in (("Namespace", ("", "shop")), ("Gateway", ("shop", "way")), ("Service", ("shop", "cart"))):
        again._see(kind, name)
    assert len(again.settle()) == 1
    assert again.status("Service", NAME) == {}


def test_a_process_that_starts_anew_writes_nothing() -> None:
    world = in_charge(cart(labels=USES, is_global=True), way())
    again = ToldWorld(istio_classes=True)
    again.store = world.store
    for kind, name in (("Namespace", ("", "shop")), ("Gateway", ("shop", "way")), ("Service", ("shop", "cart"))):
        again._see(kind, name)
    assert {key for key in again.writes() if key[1] == "Service"} == set()
