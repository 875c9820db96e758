"""The path of the demo: a visitor, west's ingress gateway, two tunnels to east, a pod there."""

from __future__ import annotations

import pytest

from aggregator.demo.client import Unanswered, get
from aggregator.demo.journey import OPENED
from aggregator.demo.stage import HOST, HTTP_PORT
from tests.kit.mesh import Mesh

INGRESS = "spiffe://cluster.local/ns/istio-system/sa/ingress"
CATALOG = "catalog.shop.svc.cluster.local:80"


async def test_a_request_crosses_in_a_tunnel_within_a_tunnel(mesh: Mesh) -> None:
    journey = await mesh.traveller.follow(HOST, "/", tunnels=("east-east-west-1", "east-ztunnel"))
    assert journey.echo.cluster == "east"
    assert journey.echo.headers["host"] == HOST
    assert journey.answer.certificate == (HOST,)
    tunnels = {hop.name: hop.line for hop in journey.hops if hop.line.get("event") == OPENED}
    # The outer tunnel ends at east's gateway, the inner one at the pod; both are for the service, by the ingress.
    outer, inner = tunnels["east-east-west-1"], tunnels["east-ztunnel"]
    assert (outer["authority"], outer["peer"], outer["source"]) == (CATALOG, INGRESS, "gateway")
    assert (inner["authority"], inner["peer"], inner["network"]) == (CATALOG, INGRESS, "net-west")
    (gateway,) = mesh.stage.gateways(mesh.stage.east)
    assert journey.way_in == f"inner_connect_originate/{gateway.bind}:15008"


async def test_a_pod_at_home_answers_before_one_elsewhere_in_one_tunnel_under_its_own_address(mesh: Mesh) -> None:
    journey = await mesh.traveller.follow(HOST, "/orders", tunnels=("west-ztunnel",))
    assert (journey.echo.cluster, journey.echo.app) == ("west", "orders-1")
    (tunnel,) = (hop.line for hop in journey.hops if hop.line.get("event") == OPENED)
    address = mesh.stage.west.address("1.2")
    assert (tunnel["authority"], tunnel["peer"], tunnel["network"]) == (f"{address}:8080", INGRESS, None)
    for _ in range(10):
        _, echo = await mesh.traveller.ask(HOST, "/orders")
        assert echo.cluster == "west"


async def test_plain_http_is_sent_to_https(mesh: Mesh) -> None:
    answer = await get(HOST, "/orders?x=1", at=(mesh.traveller.ingress.bind, HTTP_PORT))
    assert answer.status == 308
    assert answer.headers["location"] == f"https://{HOST}/orders?x=1"


async def test_a_host_nobody_has_gets_no_handshake_and_at_once(mesh: Mesh) -> None:
    with pytest.raises(Unanswered, match="handshake"):
        await mesh.traveller.get("unknown.example", "/", timeout=3.0)


async def test_a_host_that_the_connection_was_not_made_for_is_misdirected(mesh: Mesh) -> None:
    answer = await mesh.traveller.get(HOST, "/", headers={"host": "unknown.example"})
    assert answer.status == 421


async def test_headers_by_which_routes_are_found_cannot_be_set_from_outside_and_are_not_passed_on(mesh: Mesh) -> None:
    forged = {"x-isthmus-class": "other", "x-isthmus-host": "unknown.example"}
    answer = await mesh.traveller.get(HOST, "/", headers=forged)
    assert answer.status == 200
    assert b"x-isthmus" not in answer.body


async def test_nothing_of_it_was_refused_by_a_gateway(mesh: Mesh) -> None:
    await mesh.traveller.ask(HOST, "/")
    for name in ("west-ingress-1", "east-east-west-1"):
        rejected = await mesh.plane.envoys[name].stats("update_rejected")
        assert rejected
        assert not any(rejected.values()), rejected
    for plane in mesh.planes.values():
        assert [finding for finding in plane.control.findings() if "Rejected" in finding] == []
