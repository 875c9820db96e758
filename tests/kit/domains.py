"""Domains without Envoys: a control plane whose home is fed by hand, and gateways that only answer what they are told.

`Domains` is the control plane, in the loop of the test, with objects that come when the test says so. `RouteGateway` is
the stream of one ingress gateway: it asks for routes, and accepts, refuses, or lets a response wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from aggregator.operate.domain_list import Domain
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.pages import Page
from tests.kit.plane import Plane, write_identities
from tests.kit.world import fact
from watchers.facts.cluster import Cluster
from watchers.sink import Cause, Facts
from xds.client import DeltaStream, Response, StreamEnded
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.session.requests import FOR_ON_DEMAND

HOME: Final = "west"
_TOKEN: Final = "gateway-token"
_LABELS: Final = {"gateway.istio.io/managed": "isthmus.dev-ingress-gateway"}

NOW: Final = datetime(2026, 11, 2, 9, 14, 4, tzinfo=UTC)


def domain(host: str = "shop.example.org", **fields: Any) -> Domain:
    """A domain that is well, unless it is said otherwise."""
    well = Domain(
        host=host,
        state="Served",
        reason="",
        ingresses=("shop/web",),
        secret="shop/web",
        certificate_expires=NOW.replace(month=12),
        changed=NOW.replace(hour=7),
        activation=0.043,
        gateways=2,
        acknowledged=2,
        findings=0,
        replica="isthmus-0",
        observed=NOW,
    )
    return msgspec.structs.replace(well, **fields)


class RouteGateway:
    """The stream of a gateway that has asked for all routes."""

    def __init__(self, stream: DeltaStream) -> None:
        self._stream = stream
        self.refused: set[str] = set()
        """Names of scopes that it refuses."""
        self.answering = True
        self.waiting: list[Response] = []
        """Responses that were not answered."""
        self.held: dict[str, str] = {}

    async def run(self) -> None:
        """Hears responses until the stream ends."""
        try:
            await self._stream.subscribe(SCOPED_ROUTE_TYPE, held=self.held)
            async for response in self._stream:
                self.waiting.append(response)
                if self.answering:
                    await self.answer()
        except StreamEnded:
            pass

    async def answer(self) -> None:
        """Answers all that waits."""
        while self.waiting:
            response = self.waiting.pop(0)
            bad = [one.name for one in response.resources if one.name in self.refused]
            if bad:
                await self._stream.nack(response, "; ".join(f"{name}: no such filter" for name in bad))
            else:
                self.held |= {one.name: one.version for one in response.resources}
                await self._stream.ack(response)


class Domains:
    """A control plane of a home that holds a Service `shop/web` with a pod, and what the test adds."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        (directory / HOME).mkdir(exist_ok=True)
        self._facts: Facts | None = None
        identities = write_identities(directory / "identities.json", {_TOKEN: ("istio-system/ingress", "")})
        self.plane = Plane(directory / HOME, watches={HOME: self._watch}, identities=identities, **settings)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Plane]:
        """Runs it."""
        async with self.plane as plane:
            await plane.serving()
            yield plane

    def apply(self, *objects: Manifest) -> None:
        """Create or change objects; the news of them is of now."""
        assert self._facts is not None
        self._facts.apply([fact(HOME, one) for one in objects], Cause(time.time_ns(), "the test", len(objects)))

    def delete(self, *objects: Manifest) -> None:
        """Delete objects."""
        assert self._facts is not None
        self._facts.apply([(fact(HOME, one)[0], None) for one in objects])

    @asynccontextmanager
    async def gateway(self, *, answering: bool = True, refused: tuple[str, ...] = ()) -> AsyncIterator[RouteGateway]:
        """One more gateway."""
        async with self.plane.client(_TOKEN, "router~10.9.9.9~ingress-1.istio-system~istio-system.svc") as client:
            for extension in sorted(FOR_ON_DEMAND):
                client.node.extensions.add(name=extension)
            async with client.delta() as stream:
                gateway = RouteGateway(stream)
                gateway.answering = answering
                gateway.refused |= set(refused)
                task = asyncio.create_task(gateway.run(), name="gateway")
                try:
                    yield gateway
                finally:
                    stream.cancel()
                    await asyncio.wait((task,))

    async def ask(self, path: str = "") -> Page:
        """The page /domains, or one below it."""
        return await self.plane.admin(f"/domains{path}")

    async def one(self, host: str) -> Mapping[str, Any]:
        """One domain as JSON."""
        found = (await self.ask(f"/{host}")).json()
        assert isinstance(found, dict)
        return found

    async def until(self, host: str, **fields: Any) -> Mapping[str, Any]:
        """Waits until a domain is so."""
        async with asyncio.timeout(10):
            while True:
                found = await self.one(host)
                if all(found.get(name) == value for name, value in fields.items()):
                    return found
                await asyncio.sleep(0.01)

    async def _watch(
        self, cluster: str, path: Path, facts: Facts, *, home: bool, system_namespace: str, deadline: float
    ) -> None:
        del path, system_namespace
        state = Cluster(state="synced", home=home, deadline=deadline, reason="")
        base = (
            m.namespace("istio-system", network="near"),
            m.namespace("shop"),
            m.pod("istio-system/ingress-1", "10.9.9.9", labels=_LABELS, account="ingress"),
            m.service("shop/web", selector={"app": "web"}),
            m.pod("shop/web-1", "10.1.1.1", labels={"app": "web"}),
        )
        facts.replace((cluster,), [((cluster, "Cluster", "", cluster), state), *(fact(HOME, one) for one in base)])
        self._facts = facts
        await asyncio.Event().wait()


def secured(host: str, *, names: tuple[str, ...] = (), **fields: Any) -> tuple[Manifest, Manifest]:
    """An Ingress and the TLS Secret of its host, both in `shop` and called like it."""
    name = host.replace(".", "-").replace("*", "any")
    secret = m.tls_secret(f"shop/{name}", *c.host_pair(*(names or (host,)), **fields))
    return m.ingress(f"shop/{name}", host, "web", secret=name), secret

