"""Two clusters with real gateways: control planes in the loop of the test, Envoys as processes, on loopback.

`Mesh` sets the stage of the demo on addresses that nobody else uses, so that tests, demos and other tests do not meet,
and runs both control planes in the test's own loop, where their records can be read. Everything ends with its context.
"""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from aggregator.app.setting_values import Address
from aggregator.demo import control
from aggregator.demo.client import Answer, Unanswered
from aggregator.demo.credentials import TRUST_DOMAIN
from aggregator.demo.dataplane import DataPlane
from aggregator.demo.destination import Pod
from aggregator.demo.envoy import Envoy
from aggregator.demo.journey import Journey, Refused, Traveller
from aggregator.demo.ports import Taken, check_free
from aggregator.demo.stage import NAMESPACE, Site, Stage
from tests.kit.plane import Plane
from xds.server.authentication import Identity

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples" / "two-clusters"


class Mesh:
    """West and east. Use it as an async context manager; entering starts the control planes and nothing else.

    `settings` are those of both control planes; `planes` are by the name of their cluster. `start` starts the rest.
    """

    def __init__(self, directory: Path, binary: Path, **settings: Any) -> None:
        self.stage = free_stage(directory)
        self.plane = DataPlane(self.stage, binary, drain_seconds=1)
        self.traveller = Traveller(self.stage, self.plane)
        self.planes: dict[str, Plane] = {}
        self._settings = settings
        self._ending = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as ending:
            ending.push_async_callback(self._stop_planes)
            for site in self.stage.sites:
                await self.start_control(site)
            ending.push_async_callback(self.plane.close)
            self._ending = ending.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ending.aclose()

    async def start(self) -> None:
        """Starts applications and gateways of both clusters; returns when all are ready."""
        for site in self.stage.sites:
            await self.start_pods(site)
        for gateway in [await self.start_gateway(site) for site in self.stage.sites]:
            await gateway.ready()

    async def start_pods(self, site: Site, **accounts: str) -> Envoy:
        """Starts the applications of a cluster and its ztunnel. `accounts` gives the pods of an application the
        certificates of another account than their own.
        """
        pods = [self._disguised(site, pod, accounts) for pod in self.stage.destinations(site)]
        return await self.plane.start_pods(site, pods)

    def _disguised(self, site: Site, pod: Pod, accounts: Mapping[str, str]) -> Pod:
        account = accounts.get(pod.name.rpartition("-")[0])
        if account is None:
            return pod
        identity = Identity(TRUST_DOMAIN, NAMESPACE, account, pod.name)
        certificate, key = self.stage.credentials.issue(site.name, identity)
        return msgspec.structs.replace(pod, certificate=certificate, key=key)

    async def start_gateway(self, site: Site, number: int = 0) -> Envoy:
        """Starts the gateway of a cluster, by its place in the manifests."""
        return await self.plane.start_gateway(self.stage.gateways(site)[number])

    @property
    def ingress(self) -> Envoy:
        """West's ingress gateway."""
        return self.plane.envoys["west-ingress-1"]

    @property
    def east_west(self) -> Envoy:
        """East's first gateway."""
        return self.plane.envoys["east-east-west-1"]

    async def answered(
        self, host: str, path: str, wanted: Callable[[Journey], bool], *, times: int = 1, deadline: float = 15.0
    ) -> float:
        """Asks until answers are `wanted` so many times in a row; returns when the first of them was asked for."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        row: list[float] = []
        last: object = None
        while len(row) < times:
            assert loop.time() < end, f"not within {deadline:g} s; the last was {last}"
            try:
                journey = await self.traveller.follow(host, path)
                row = [*row, journey.answer.asked] if wanted(journey) else []
                last = journey
            except (Refused, Unanswered) as error:
                row, last = [], error
        return row[0]

    async def shown(self, host: str, wanted: Callable[[Answer], bool], *, deadline: float = 15.0) -> None:
        """Asks until an answer is `wanted`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        while not wanted(answer := await self.traveller.get(host, "/")):
            assert loop.time() < end, f"still {answer}"

    async def status(self, host: str, path: str, wanted: int, *, deadline: float = 15.0) -> None:
        """Asks until the answer has a status."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        while (answer := await self.traveller.get(host, path)).status != wanted:
            assert loop.time() < end, f"still {answer.status}"

    def edit(self, site: Site, file: str, old: str, new: str) -> None:
        """Changes a manifest, in one step; `old` must be in it once."""
        path = site.manifests / file
        text = path.read_text()
        assert text.count(old) == 1, f"{text.count(old)} times in {path}: {old}"
        draft = path.with_name(f".{file}.draft")
        draft.write_text(text.replace(old, new))
        draft.replace(path)

    def replace_key(self, secret: str, key: bytes) -> None:
        """Puts another key into a Secret of west."""
        (site, _) = self.stage.sites
        text = (site.manifests / secret).read_text()
        (old,) = (line for line in text.splitlines() if "tls.key:" in line)
        self.edit(site, secret, old, f"  tls.key: {b64encode(key).decode()}")

    async def start_control(self, site: Site) -> Plane:
        """Starts the control plane of a cluster; returns when it serves."""
        (other,) = (one for one in self.stage.sites if one is not site)
        xds, _health, _pages = control.addresses(site)
        credentials = self.stage.credentials
        plane = Plane(
            site.manifests,
            other.manifests,
            xds=Address(xds.host, xds.port),
            xds_names=(xds.host,),
            xds_plaintext=None,
            identities=credentials.identities,
            cacerts=credentials.cacerts,
            **self._settings,
        )
        self.planes[site.name] = await plane.__aenter__()
        return plane

    async def stop_control(self, site: Site) -> None:
        """Stops the control plane of a cluster."""
        await self.planes.pop(site.name).stop()

    async def _stop_planes(self) -> None:
        for plane in self.planes.values():
            await plane.stop()


def free_stage(directory: Path) -> Stage:
    """A stage on two networks of loopback that are free."""
    while True:
        west, east = random.sample(range(16, 255), 2)
        stage = Stage(directory, west, east)
        try:
            check_free([address for site in stage.sites for address in control.addresses(site)])
        except Taken:
            continue
        stage.set(EXAMPLES)
        return stage
