"""A control plane in the loop of the test: the real parts, from directories to gRPC on loopback, without a process.

`Plane` runs one for as long as its context lasts and connects ztunnel stand-ins and ADS clients to it. Clusters are
directories, each called as its directory. A cluster can be held, as one whose API server does not answer, and the
clock of the world be set by hand; the event loop's own time is real, since gRPC's is.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from aggregator.app.clusters import WatchSource
from aggregator.app.main import ControlPlane
from aggregator.app.records import Pass
from aggregator.app.setting_values import Address, ClusterSource
from aggregator.app.settings import Settings
from tests.kit.eventually import eventually
from tests.kit.pages import Page, page
from tests.kit.ztunnel import Received, Ztunnel, ZtunnelClient, ZtunnelMachine
from tests.kit.ztunnel.grpc_transport import GrpcDialer
from watchers.directory import watch_directory
from watchers.facts.cluster import Cluster
from watchers.lookups.dns import Resolve
from watchers.sink import Facts
from xds.client import AdsClient
from xds.records import Push

LOOPBACK = Address("127.0.0.1", 0)
ZTUNNEL_NODE = "ztunnel~127.0.0.1~ztunnel-1.istio-system~istio-system.svc.cluster.local"


class Clock:
    """Seconds since the epoch, standing still until they are set."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Plane:
    """A control plane of the home cluster in `home` and the remotes in `remotes`; use it as an async context manager.

    A path is a directory or a kubeconfig; without `home` it runs in a cluster, as the environment has it.

    `held` names clusters that are not read before `release`; `watches` follow clusters in the place of the real watch,
    `resolve` asks for DNS names. `settings` are further fields of Settings; listeners are on free ports of loopback,
    plaintext included, and draining takes no time. Entering waits until it serves (where a cluster is held or followed
    by another watch: until it answers on its ports) and raises what it fails with instead.
    """

    def __init__(
        self,
        home: Path | None,
        *remotes: Path,
        held: Iterable[str] = (),
        watches: Mapping[str, WatchSource] = {},
        now: Callable[[], float] | None = None,
        resolve: Resolve | None = None,
        **settings: Any,
    ) -> None:
        self._held = {name: asyncio.Event() for name in held}
        self._watches = watches
        local, *others = (ClusterSource(path.name, path) if path else None for path in (home, *remotes))
        given = Settings(
            local=local,
            remote=tuple(other for other in others if other),
            **{
                "xds": LOOPBACK,
                "xds_mtls": LOOPBACK,
                "ca_secret": None,
                "xds_plaintext": LOOPBACK,
                "health": LOOPBACK,
                "admin": LOOPBACK,
                "drain": 0.0,
                **settings,
            },
        )
        self.control = ControlPlane(given, now=now, watch=self._watch, resolve=resolve)
        self._life: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        life = self._life = asyncio.create_task(self.control.run(time.monotonic()), name="control plane")
        try:
            if self._held or self._watches:
                await eventually(lambda: life.done() or (self.control.ports and self.control.health.open))
            else:
                await self.serving()
        except BaseException:
            life.cancel()
            await asyncio.wait((life,))
            raise
        if life.done():
            life.result()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def serving(self, deadline: float = 10.0) -> None:
        """Waits until it serves, or has ended."""
        waiter = asyncio.create_task(self.control.serving.wait())
        try:
            done, _ = await asyncio.wait((waiter, self.life), timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
        if not done:
            raise TimeoutError(f"not serving within {deadline} s: {self.control.readiness()}")

    async def stop(self, deadline: float = 10.0) -> None:
        """Tells it to stop, as a signal does, and waits for its end; raises what it failed with, if it did."""
        self.life.cancel()
        _, running = await asyncio.wait((self.life,), timeout=deadline)
        if running:
            raise TimeoutError(f"still running {deadline} s after it was told to stop")
        failure = None if self.life.cancelled() else self.life.exception()
        if failure is not None and failure is not self._failure:
            raise failure

    async def failure(self, deadline: float = 10.0) -> BaseException:
        """Waits until it fails by itself; returns with what, which is then no surprise to `stop` any more."""
        await asyncio.wait((self.life,), timeout=deadline)
        if not self.life.done():
            raise TimeoutError(f"still running after {deadline} s")
        failure = self._failure = self.life.exception()
        assert failure is not None, "it ended without a failure"
        return failure

    @property
    def life(self) -> asyncio.Task[None]:
        """The task it runs as."""
        assert self._life is not None, "enter the context first"
        return self._life

    def release(self, cluster: str) -> None:
        """Lets a held cluster be read."""
        self._held[cluster].set()

    # Its clients.

    @property
    def plaintext(self) -> str:
        """Where it takes streams in plaintext, host and port."""
        assert self.control.ports is not None, "not listening yet"
        return f"127.0.0.1:{self.control.ports.plaintext}"

    @property
    def tls(self) -> str:
        """Where it takes streams with a token over TLS, host and port."""
        assert self.control.ports is not None, "not listening yet"
        return f"localhost:{self.control.ports.tls}"

    def dial(self, token: str = "") -> GrpcDialer:
        """Connections as a ztunnel's: over TLS with a token, in plaintext without."""
        if not token:
            return GrpcDialer(self.plaintext)
        root = self.control.authority.root_certificates.encode()
        return GrpcDialer(self.tls, root=root, token=token, cluster=self.control.settings.home)

    @asynccontextmanager
    async def connect(self, ztunnel: Ztunnel, token: str = "") -> AsyncIterator[ZtunnelClient]:
        """A stream of a ztunnel, which goes on until the context ends or the control plane ends it."""
        dialer = self.dial(token)
        client = ZtunnelClient(ztunnel.machine)
        transport = await dialer.open()
        running = asyncio.create_task(client.run(transport), name="ztunnel")
        try:
            yield client
        finally:
            transport.cancel()
            await running
            await dialer.close()

    def client(self, token: str = "", node_id: str = ZTUNNEL_NODE, *, cluster: str = "") -> AdsClient:
        """A client that decides nothing by itself: over TLS with a token, of that cluster, in plaintext without."""
        if not token:
            return AdsClient(self.plaintext, node_id=node_id)
        root = self.control.authority.root_certificates.encode()
        return AdsClient(self.tls, node_id=node_id, root_certificates=root, token=token, cluster=cluster)

    # What it shows of itself.

    def pushes(self) -> list[Push]:
        """The responses it has sent, oldest first, of those it remembers."""
        return [record for record in self.control.records.recent() if isinstance(record, Push)]

    def passes(self) -> list[Pass]:
        """The passes of its graph, oldest first, of those it remembers."""
        return [record for record in self.control.records.recent() if isinstance(record, Pass)]

    def cluster(self, name: str) -> Cluster:
        """The state of a cluster."""
        return dict(self.control.clusters.states())[name]

    async def health(self, path: str) -> Page:
        """A page of the health port."""
        return await page(self.control.health.port, path)

    async def admin(self, path: str) -> Page:
        """A page of the admin port."""
        return await page(self.control.admin.port, path)

    async def _watch(
        self, cluster: str, path: Path, facts: Facts, *, home: bool, system_namespace: str, deadline: float
    ) -> None:
        if cluster in self._held:
            await self._held[cluster].wait()
        watch = self._watches.get(cluster, watch_directory)
        await watch(cluster, path, facts, home=home, system_namespace=system_namespace, deadline=deadline)


def write_identities(path: Path, tokens: Mapping[str, tuple[str, str]]) -> Path:
    """Writes a file for `--identities`, in one step: token -> (`namespace/service account`, node)."""
    entries = {}
    for token, (account, node) in tokens.items():
        namespace, _, name = account.partition("/")
        entries[token] = {"identity": f"spiffe://cluster.local/ns/{namespace}/sa/{name}", "node": node}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(entries))
    return draft.replace(path)


async def learned(client: ZtunnelClient) -> ZtunnelMachine:
    """The machine of a client that has been told everything there is."""
    await client.until(lambda machine: machine.ready)
    return client.machine


async def told(client: ZtunnelClient, name: str) -> Received:
    """The next response, of those not seen yet, that is about the resource of that name."""
    seen = len(client.machine.received)
    await client.until(lambda machine: any(name in (*r.resources, *r.removed) for r in list(machine.received)[seen:]))
    return next(r for r in list(client.machine.received)[seen:] if name in (*r.resources, *r.removed))
