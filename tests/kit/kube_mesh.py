"""Home and remotes behind fake API servers, read as the process reads them: by Secrets of home, into one table.

Without sockets (the default) it lives in virtual time; with ``sockets`` real sessions talk to a `KubeApi`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from aggregator.cache.table import Table
from tests.kit.kube_api import KubeCluster
from tests.kit.kube_session import MemorySession
from tests.kit.kubeconfigs import kubeconfig, remote_secret
from tests.kit.manifests import CREATED
from watchers.clusters import REGISTRATIONS, Clusters, Credential, SecretClaims
from watchers.facts import Cluster, Fact, ObjectKey, SourceFault
from watchers.kubernetes.budget import Limits
from watchers.kubernetes.connection import OF_REMOTES, OpenSession, Reader
from watchers.kubernetes.kubeconfig import Allowances, ApiServer
from watchers.kubernetes.listwatch import USUAL, Pace
from watchers.kubernetes.session import Session
from watchers.metrics import WatchMetrics
from watchers.registration import Reserved

DEAD = "http://dead.example"
"""A server that cannot be reached."""
REMOTE_KINDS = len(OF_REMOTES)
"""How many kinds are listed and watched in a remote whose entries are not asked for."""


class KubeMesh:
    """A home cluster and others that may be registered; use it as an async context manager.

    It begins to read when the context is entered. `sessions` are those that were opened in memory; `opened` hears of
    real ones.
    """

    def __init__(
        self,
        home: KubeCluster,
        *others: KubeCluster,
        pace: Pace = USUAL,
        sockets: bool = False,
        limits: Limits | None = None,
        grace: float = 0.0,
        remote_entries: bool = False,
    ) -> None:
        self.home = home
        self.table: Table[ObjectKey, Fact] = Table("facts")
        self.metrics = WatchMetrics()
        self.sessions: list[MemorySession] = []
        self.opened: Callable[[Session], None] = lambda _session: None
        self._sockets = sockets
        for cluster in (home, *others):
            cluster.url = cluster.url or f"http://{cluster.name}.example"
        dead = KubeCluster("dead")
        dead.refuse_connections = True
        self._apis = {cluster.url: cluster for cluster in (home, *others)} | {DEAD: dead}
        loop = asyncio.get_running_loop()
        self.reader = Reader(
            self.table,
            system_namespace="istio-system",
            patience=30.0,
            metrics=self.metrics,
            chance=lambda: 0.5,
            clock=loop.time,
            wall=loop.time,
            pace=pace,
            open_session=self._open,
            limits=limits,
            remote_entries=remote_entries,
        )
        self.clusters = Clusters(
            self.table,
            reserved={home.name: Reserved("the home cluster")},
            make=self.reader.remote,
            now=lambda: int(loop.time() * 1e9),
            allowances=Allowances(plain_http=True),
            removed=self.metrics.forget,
            grace=grace,
        )
        identified = self.clusters.identify
        self._watch = self.reader.home(
            home.name, SecretClaims(self.clusters), lambda _credential, uid: identified(home.name, uid)
        )
        self._life: list[asyncio.Task[None]] = []

    def _open(self, server: ApiServer) -> OpenSession:
        if self._sockets:
            real = Session(server)
            self.opened(real)
            return real
        session = MemorySession(self._apis[server.server], server.token)
        self.sessions.append(session)
        return session

    async def __aenter__(self) -> Self:
        self.use("home")
        self._life = [
            asyncio.create_task(self._watch.run(), name="home"),
            asyncio.create_task(self.clusters.run(), name="remotes"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._life:
            task.cancel()
        await asyncio.wait(self._life)
        failures = [task.exception() for task in self._life if not task.cancelled()]
        assert not failures, failures

    def use(self, token: str) -> None:
        """Home is read with this token from now on."""
        self._watch.use(Credential(ApiServer(self.home.url, self.home.ca.decode(), token=token)))

    def register(
        self,
        secret: str,
        clusters: Mapping[str, str | KubeCluster],
        token: str = "t1",
        *,
        created: str = CREATED,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """A Secret of home registers these clusters, given as API server or URL; again: it is changed."""
        kubeconfigs = {
            name: kubeconfig(one, token) if isinstance(one, str) else kubeconfig(one.url, token, one.ca)
            for name, one in clusters.items()
        }
        document = remote_secret(secret, kubeconfigs, created=created)
        document["metadata"]["annotations"] = dict(annotations or {})
        self.home.apply(document)

    def unregister(self, secret: str) -> None:
        """The Secret is deleted."""
        self.home.delete("Secret", f"istio-system/{secret}")

    def state(self, cluster: str) -> str:
        """The state of a cluster, "" if there is none of this id."""
        fact = self.table.get((cluster, "Cluster", "", cluster))
        return fact.state if isinstance(fact, Cluster) else ""

    def reason(self, cluster: str) -> str:
        """Why it is in this state."""
        fact = self.table.get((cluster, "Cluster", "", cluster))
        return fact.reason if isinstance(fact, Cluster) else ""

    def names(self, cluster: str, kind: str = "Pod") -> list[str]:
        """The names of a cluster's facts of a kind."""
        return sorted(key[3] for key, _ in self.table.scan((cluster, kind)))

    def refused(self) -> dict[str, str]:
        """Registrations that do not count, and why."""
        return {fact.file: fact.cause for _, fact in self.table.scan((REGISTRATIONS,)) if isinstance(fact, SourceFault)}
