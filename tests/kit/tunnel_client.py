"""A client of services in another cluster: a pod of west that makes tunnels through a gateway, as its ztunnel would.

In: a running `Mesh`. Out: tunnels to services of east, with the identities of both ends.
"""

from __future__ import annotations

import asyncio

from aggregator.demo.credentials import TRUST_DOMAIN
from aggregator.demo.destination import HBONE_PORT
from aggregator.demo.stage import NAMESPACE
from tests.kit import tunnel as t
from tests.kit.mesh import Mesh
from xds.server.authentication import Identity

HOSTNAME = "catalog.shop.svc.cluster.local"
CATALOG = f"{HOSTNAME}:80"


class Client:
    """A pod elsewhere that makes tunnels to services of east. `close` ends all of them."""

    def __init__(self, mesh: Mesh) -> None:
        credentials = mesh.stage.credentials
        identity = Identity(TRUST_DOMAIN, NAMESPACE, "front", "front-1")
        self.context = t.trusting(credentials.root, *credentials.issue("west", identity))
        (self._gateway,) = mesh.stage.gateways(mesh.stage.east)
        self._ways: list[t.Socket] = []

    async def door(self) -> t.Socket:
        """A connection to the gateway's port."""
        way = await t.dial(self._gateway.bind, HBONE_PORT)
        self._ways.append(way)
        return way

    async def outer(self, authority: str = CATALOG, **headers: str) -> tuple[t.Tunnel, t.Secured]:
        """The outer tunnel, and the TLS it is in."""
        async with asyncio.timeout(10.0):
            return await t.tunnel(await self.door(), self.context, authority, **headers)

    async def both(self, authority: str = CATALOG, **headers: str) -> tuple[t.Tunnel, t.Secured, t.Secured]:
        """The inner tunnel, and the TLS of the outer and of the inner one; `headers` are the outer one's."""
        first, gateway = await self.outer(authority, **headers)
        async with asyncio.timeout(10.0):
            second, pod = await t.tunnel(first, self.context, authority, x_forwarded_network="net-west")
        return second, gateway, pod

    async def ask(self, way: t.Tunnel | None = None, authority: str = CATALOG) -> bytes:
        """The first line of what a pod answers, through both tunnels."""
        if way is None:
            way, _, _ = await self.both(authority)
        async with asyncio.timeout(10.0):
            return (await t.ask(way, HOSTNAME)).partition(b"\r\n")[0]

    async def close(self) -> None:
        for way in self._ways:
            await way.close()
