"""What Gateways and GatewayClasses are told: by whom, in which words, and dated how."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.findings import CATALOGUE
from aggregator.views.rejections import Rejection
from tests.kit import manifests
from tests.kit.manifests import Manifest
from tests.unit.aggregator.writes.told import NOW, ToldWorld

NAME = "istio-system/east-west"
MESH = manifests.listener(tls_mode="Terminate")
GOOD = {"Accepted": "True Accepted", "Programmed": "True Programmed"}


def east_west(*listeners: Manifest, addresses: tuple[Any, ...] = ("192.0.2.1",), **given: Any) -> Manifest:
    given = {"class_name": "isthmus-east-west", "network": "net1", **given}
    class_name = given.pop("class_name")
    document = manifests.gateway(NAME, class_name, *(listeners or (MESH,)), addresses=addresses, **given)
    document["metadata"]["generation"] = 3
    return document


def told(*documents: Manifest, **settings: Any) -> ToldWorld:
    world = ToldWorld(**settings)
    world.apply(*documents)
    world.settle()
    return world


def stand_in(name: str, address: str | tuple[str, str]) -> Manifest:
    return manifests.gateway(f"istio-system/{name}", "elsewhere", addresses=[address], network="net2")


ELSEWHERE = manifests.gateway_class("elsewhere", "isthmus.dev/unmanaged-gateway")


def test_a_gateway_that_works_is_accepted_and_programmed_as_is_its_listener() -> None:
    world = told(east_west())
    assert world.conditions("Gateway", NAME) == GOOD
    assert world.listener(NAME, "mesh") == {
        **GOOD,
        "ResolvedRefs": "True ResolvedRefs",
        "Conflicted": "False NoConflicts",
    }
    status = world.status("Gateway", NAME)
    assert {one["observedGeneration"] for one in status["conditions"]} == {3}
    assert {one["lastTransitionTime"] for one in status["conditions"]} == {NOW}
    assert (status["listeners"][0]["attachedRoutes"], status["listeners"][0]["supportedKinds"]) == (0, [])


def test_addresses_of_a_gateway_are_left_to_whoever_knows_them() -> None:
    assert told(east_west()).status("Gateway", NAME)["addresses"] == [{"type": "IPAddress", "value": "192.0.2.1"}]


FLAWS: dict[str, tuple[Manifest, str, str]] = {
    "no address": (east_west(addresses=()), "True Accepted", "False AddressNotAssigned"),
    "no usable address": (
        east_west(addresses=(("example.com/pool", "blue"),)),
        "True Accepted",
        "False AddressNotUsable",
    ),
    "no network": (east_west(network=""), "True Accepted", "False Invalid"),
    "no tunnels": (east_west(manifests.listener(protocol="HTTPS")), "False ListenersNotValid", "False Invalid"),
    "no end of tunnels": (east_west(manifests.listener()), "False ListenersNotValid", "False Invalid"),
    "one listener too many": (
        east_west(MESH, manifests.listener("http", 80, "HTTP")),
        "True ListenersNotValid",
        "True Programmed",
    ),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_what_is_wrong_is_told_with_its_cure(flaw: str) -> None:
    document, accepted, programmed = FLAWS[flaw]
    world = told(document)
    assert world.conditions("Gateway", NAME) == {"Accepted": accepted, "Programmed": programmed}
    for condition in world.status("Gateway", NAME)["conditions"]:
        cures = [entry.cure for entry in CATALOGUE.values() if entry.reason == condition["reason"]]
        assert (condition["reason"] == condition["type"]) or any(condition["message"].endswith(cure) for cure in cures)


def test_each_listener_is_told_what_is_wrong_with_it() -> None:
    second = manifests.listener("second", 15009, tls_mode="Terminate")
    world = told(east_west(manifests.listener("http", 80, "HTTP"), manifests.listener("open"), MESH, second))
    assert {name: world.listener(NAME, name)["Accepted"] for name in ("http", "open", "mesh", "second")} == {
        "http": "False UnsupportedProtocol",
        "open": "False UnsupportedValue",
        "mesh": "True Accepted",
        "second": "False PortUnavailable",
    }


def test_listeners_wait_with_their_gateway() -> None:
    assert told(east_west(addresses=())).listener(NAME, "mesh")["Programmed"] == "False Pending"


def test_a_listener_that_is_gone_is_spoken_of_no_more() -> None:
    world = told(east_west(MESH, manifests.listener("http", 80, "HTTP")))
    world.apply(east_west())
    world.settle()
    assert [one["name"] for one in world.status("Gateway", NAME)["listeners"]] == ["mesh"]
    assert world.conditions("Gateway", NAME) == GOOD


def test_the_time_of_a_condition_moves_with_its_status_only() -> None:
    old = "2026-01-01T00:00:00Z"
    document = east_west()
    before = {"status": "True", "reason": "Old", "message": "", "observedGeneration": 2, "lastTransitionTime": old}
    document["status"]["conditions"] = [{"type": name, **before} for name in ("Accepted", "Programmed")]
    world = told(document)
    assert [one["lastTransitionTime"] for one in world.status("Gateway", NAME)["conditions"]] == [old, old]
    gone = east_west(addresses=())
    world.apply(gone)
    world.settle()
    times = {one["type"]: one["lastTransitionTime"] for one in world.status("Gateway", NAME)["conditions"]}
    assert times == {"Accepted": old, "Programmed": NOW}


def test_a_stand_in_is_programmed_if_one_of_its_addresses_leads_somewhere() -> None:
    world = told(ELSEWHERE, stand_in("first", "192.0.2.1"), stand_in("second", "192.0.2.1"))
    assert world.conditions("Gateway", "istio-system/first") == GOOD
    assert world.conditions("Gateway", "istio-system/second")["Programmed"] == "False AddressNotUsable"


def test_a_stand_in_known_by_name_is_programmed_once_the_name_has_an_address() -> None:
    world = told(ELSEWHERE, stand_in("named", ("Hostname", "lb.example.com")))
    assert world.conditions("Gateway", "istio-system/named") == {}
    world.world.resolve("lb.example.com", reason="NXDOMAIN")
    world.settle()
    assert world.conditions("Gateway", "istio-system/named")["Programmed"] == "False AddressNotUsable"
    world.world.resolve("lb.example.com", "192.0.2.1")
    world.settle()
    assert world.conditions("Gateway", "istio-system/named") == GOOD


def test_a_resource_that_a_proxy_refused_is_told_on_the_gateway_it_was_made_from() -> None:
    world = told(east_west(), manifests.service("shop/cart", "10.0.0.1"))
    key, resource = next(iter(world.world.resources.items()))
    rejection = Rejection((("alpha", "Gateway", "istio-system", "east-west"),), resource.version, "proxy", "no")
    world.world.step({world.world.pipeline.rejections: {key: rejection}})
    world.settle()
    assert world.conditions("Gateway", NAME)["Programmed"] == "False Invalid"


@pytest.mark.parametrize("class_name", ["istio-east-west", "istio-remote", "someone-elses"])
def test_gateways_of_other_controllers_are_left_alone(class_name: str) -> None:
    world = told(east_west(class_name=class_name))
    assert "conditions" not in world.status("Gateway", NAME)


def test_istios_gateways_are_told_in_istios_place() -> None:
    assert told(east_west(class_name="istio-east-west"), istio_classes=True).conditions("Gateway", NAME) == GOOD


def test_a_gateway_that_is_ours_no_more_loses_what_we_wrote() -> None:
    world = told(east_west())
    world.apply(east_west(class_name="istio-east-west"))
    assert len(world.settle()) == 1
    assert set(world.status("Gateway", NAME)) == {"addresses"}


def test_a_gateway_class_of_ours_is_accepted_and_no_other() -> None:
    world = told(ELSEWHERE, manifests.gateway_class("istio", "istio.io/unmanaged-gateway"))
    assert world.conditions("GatewayClass", "elsewhere") == {"Accepted": "True Accepted"}
    assert world.conditions("GatewayClass", "istio") == {}


def test_a_class_that_is_not_served_is_not_accepted() -> None:
    assert told(manifests.gateway_class("some", "isthmus.dev/some-gateway")).conditions("GatewayClass", "some") == {}


def test_gateways_of_remote_clusters_are_never_written() -> None:
    world = told()
    world.world.apply("beta", east_west(), ELSEWHERE)
    assert world.writes() == {}


def test_nothing_is_written_before_home_is_known() -> None:
    world = ToldWorld()
    world.apply(east_west(), ELSEWHERE)
    world.world.cluster("alpha", "syncing")
    assert world.writes() == {}


def test_what_is_said_already_is_not_written_by_a_process_that_has_just_started() -> None:
    world = told(east_west(), ELSEWHERE)
    again = ToldWorld()
    again.store = world.store
    again._see("Gateway", ("istio-system", "east-west"))
    again._see("GatewayClass", ("", "elsewhere"))
    assert again.writes() == {}
