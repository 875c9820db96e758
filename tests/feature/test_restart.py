"""A control plane that restarts knows less than its proxies do: until every cluster has been read or has passed its
limit, it takes nothing away from them that an unread one may have a part in.

What ztunnels hold is in test_ztunnel.py; here are gateways, whose endpoints come by EDS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit import golden
from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.manifests import write_manifests
from tests.kit.plane import Clock, Plane, write_identities
from tests.kit.two_clusters import TwoClusters
from xds.client import DeltaStream, Response
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.session.requests import FOR_ON_DEMAND

TOKEN = "gateway-token"
NODE = "router~10.10.1.200~ingress-1.istio-system~istio-system.svc.cluster.local"


class Shop(TwoClusters):
    """`cart`, and `books`, which is at home alone, behind an ingress gateway of alpha."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.identities = write_identities(directory / "identities.json", {TOKEN: ("istio-system/ingress", "alpha-1")})
        labels = {"gateway.istio.io/managed": "isthmus.dev-ingress-gateway"}
        write_manifests(
            self.alpha,
            m.pod("istio-system/ingress-1", "10.10.1.200", labels=labels, account="ingress", node="alpha-1"),
            m.ingress("shop/cart", "cart.example", "cart"),
            file="ingress.yaml",
        )

    def open_books(self) -> None:
        """`books` and its Ingress."""
        write_manifests(
            self.alpha,
            m.service("shop/books", "10.96.1.11", selector={"app": "books"}),
            m.pod("shop/books-1", "10.10.1.50", labels={"app": "books"}),
            m.ingress("shop/books", "books.example", "books"),
            file="books.yaml",
        )


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@asynccontextmanager
async def reading(plane: Plane, held: Mapping[str, str] | None = None) -> AsyncIterator[DeltaStream]:
    """A gateway's stream that has asked for all endpoints, and holds some already."""
    async with plane.client(TOKEN, NODE) as client:
        for extension in sorted(FOR_ON_DEMAND):
            client.node.extensions.add(name=extension)
        async with client.delta() as stream:
            await stream.subscribe(ASSIGNMENT_TYPE, held=held)
            yield stream


async def next_of(stream: DeltaStream) -> Response:
    """The next response, accepted."""
    response = await asyncio.wait_for(stream.receive(), 10)
    await stream.ack(response)
    return response


def endpoints(response: Response) -> dict[str, int]:
    """How many endpoints each assignment of a response has."""

    def count(assignment: Mapping[str, Any]) -> int:
        return sum(len(locality.get("lb_endpoints", ())) for locality in assignment.get("endpoints", ()))

    return {one.name: count(golden.decode(ASSIGNMENT_TYPE, one.body)) for one in response.resources}


async def test_a_gateway_keeps_the_endpoints_of_an_unread_cluster_until_that_is_read(shop: Shop) -> None:
    async with shop.plane() as plane, reading(plane) as stream:
        first = await next_of(stream)
        (cart,) = endpoints(first)
        assert endpoints(first) == {cart: 3}
        held = {one.name: one.version for one in first.resources}
    async with shop.plane(held=["beta"], remote_timeout=3600) as plane, reading(plane, held) as stream:
        await eventually(plane.control.aggregator.complete.is_set)
        # Home has one pod more; what is held is of more clusters, and stays.
        shop.cart_pod(shop.alpha, 3)
        shop.open_books()
        seen: list[Response] = []
        while not any("books" in one.name for response in seen for one in response.resources):
            seen.append(await next_of(stream))
        assert {one.name for response in seen for one in response.resources} & {cart} == set()
        assert [name for response in seen for name in response.removed] == []
        plane.release("beta")
        assert endpoints(await next_of(stream)) == {cart: 4}


async def test_a_gateway_loses_the_endpoints_of_an_unread_cluster_once_its_limit_has_passed(shop: Shop) -> None:
    async with shop.plane() as plane, reading(plane) as stream:
        first = await next_of(stream)
        held = {one.name: one.version for one in first.resources}
        (cart,) = held
    clock = Clock()
    async with (
        shop.plane(held=["beta"], now=clock, remote_timeout=30) as plane,
        reading(plane, held) as stream,
    ):
        await eventually(plane.control.aggregator.complete.is_set)
        clock.now += 31
        # Something has to happen for a clock that is moved by hand to be looked at.
        shop.cart_pod(shop.alpha, 3)
        told: dict[str, int] = {}
        while told != {cart: 3}:
            told = endpoints(await next_of(stream))
            assert told in ({}, {cart: 2}, {cart: 3})


async def test_a_gateway_that_holds_what_is_true_is_told_nothing_by_a_restarted_control_plane(shop: Shop) -> None:
    async with shop.plane() as plane, reading(plane) as stream:
        held = {one.name: one.version for one in (await next_of(stream)).resources}
    async with shop.plane(held=["beta"], remote_timeout=3600) as plane, reading(plane, held) as stream:
        await eventually(plane.control.aggregator.complete.is_set)
        plane.release("beta")
        await plane.serving()
        shop.open_books()
        seen: list[Response] = []
        while not any(response.resources for response in seen):
            seen.append(await next_of(stream))
        assert [name for response in seen for name in (*endpoints(response), *response.removed)] == [
            one.name for one in seen[-1].resources
        ]
        assert "books" in seen[-1].resources[0].name
