"""Whoever restarts: traffic goes on where it can, nothing is sent twice, and service is back at once."""

from __future__ import annotations

import functools
import time

import pytest

from aggregator.demo import changes
from aggregator.demo.client import Unanswered
from aggregator.demo.journey import Refused
from aggregator.demo.stage import HOST
from tests.kit.eventually import eventually
from tests.kit.load import Load
from tests.kit.mesh import Mesh
from tests.kit.plane import Plane


def sent(plane: Plane) -> list[tuple[str, int, int]]:
    """(type, resources, removals) of what a control plane has sent. Empty answers say that all is as it was."""
    told = [(push.type_url.rpartition(".")[2], push.resources, push.removed) for push in plane.pushes()]
    return [one for one in told if one[1:] != (0, 0)]


async def test_without_control_planes_traffic_goes_on_and_when_they_are_back_only_what_has_changed_is_sent(
    mesh: Mesh,
) -> None:
    await mesh.traveller.ask(HOST, "/orders")
    async with Load(mesh.traveller, HOST) as load:
        for site in mesh.stage.sites:
            await mesh.stop_control(site)
        await load.answered(30)
        changes.set_ready(mesh.stage.east, "orders-1", ready=False)
        planes = [await mesh.start_control(site) for site in mesh.stage.sites]
        for plane in planes:
            await eventually(functools.partial(sent, plane), deadline=10.0)
        await load.answered(30)
    assert load.failures == []
    # Of all listeners, clusters, hosts and certificates: the endpoints of the service that has lost one.
    assert [sent(plane) for plane in planes] == [[("ClusterLoadAssignment", 1, 0)]] * 2


async def test_an_ingress_gateway_that_restarts_serves_within_a_second(mesh: Mesh) -> None:
    await mesh.traveller.ask(HOST, "/")
    took = []
    for _ in range(3):  # The best of three: the machine may be busy.
        await mesh.plane.stop(mesh.ingress.name)
        began = time.monotonic()
        await mesh.start_gateway(mesh.stage.west)
        await mesh.answered(HOST, "/", lambda _: True)
        took.append(time.monotonic() - began)
    assert min(took) < 1.0, took


async def test_an_east_west_gateway_that_restarts_serves_within_a_second(mesh: Mesh) -> None:
    await mesh.traveller.ask(HOST, "/")
    took = []
    for _ in range(3):
        await mesh.plane.stop(mesh.east_west.name)
        with pytest.raises((Refused, Unanswered)):
            await mesh.traveller.ask(HOST, "/")
        began = time.monotonic()
        await mesh.start_gateway(mesh.stage.east)
        await mesh.answered(HOST, "/", lambda _: True)
        took.append(time.monotonic() - began)
    assert min(took) < 1.0, took
