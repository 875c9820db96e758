"""A credential in use: the session it opens, which API server that leads to, and what is read over it.

Joins `session` and `reflector` for `watchers.cluster`, and says what is read of which cluster: of home all that becomes
facts and the Secrets that register clusters; of a remote what the reader role allows, which holds no Secrets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from watchers.cluster import ClusterWatch, Turns
from watchers.clusters import Credential
from watchers.facts.kinds import KINDS
from watchers.generation import Health, Report, Unidentified, Unusable
from watchers.kubernetes.budget import Limits
from watchers.kubernetes.events import refusal
from watchers.kubernetes.flow import Flow, Rounds
from watchers.kubernetes.heartbeat import Heartbeat
from watchers.kubernetes.kubeconfig import ApiServer, InvalidKubeconfig
from watchers.kubernetes.listwatch import USUAL, Pace
from watchers.kubernetes.quota import Holdings
from watchers.kubernetes.reflector import Reflector
from watchers.kubernetes.resources import Resource, resources
from watchers.kubernetes.session import Broken, Requests, Session
from watchers.metrics import WatchMetrics
from watchers.registration import LABEL, REMOTE_SECRET
from watchers.selection import Selection, Selections
from watchers.staging import Sink
from watchers.status import Access

REQUIRED = frozenset({"Namespace", "Pod", "Service", "EndpointSlice"})
"""Without one of these a cluster is of no use."""
OF_REMOTES = REQUIRED | {"Node", "Gateway", "ServiceExport"}
"""What is read of a remote: with these the reader role gets by."""
ENTRIES = frozenset({"ServiceEntry", "WorkloadEntry"})
"""What is read of a remote only if that is asked for; its reader has to be granted `istio-config`."""

ROOTS = "RootCertificates"
"""What is read of home only if it is written there."""

_SECONDS = 10.0
_LONGEST_BODY = 64 << 10


class ReadResource(msgspec.Struct, frozen=True):
    """Objects that are read, and whether a cluster is of no use without them."""

    resource: Resource
    required: bool

    @property
    def fact(self) -> str:
        """The kind in the keys of their facts."""
        return self.resource.kind.fact


def of_remote(system_namespace: str, *, entries: bool = False) -> tuple[ReadResource, ...]:
    """What is read of a remote cluster."""
    kinds = [kind.elsewhere() for kind in KINDS if kind.fact in (OF_REMOTES | ENTRIES if entries else OF_REMOTES)]
    return tuple(ReadResource(one, one.kind.fact in REQUIRED) for one in resources(system_namespace, kinds))


def of_home(system_namespace: str, *, roots: bool = False) -> tuple[ReadResource, ...]:
    """What is read of home, without the Secrets that register clusters; with ``roots`` the certificates that its
    namespaces trust as well.
    """
    kinds = [kind for kind in KINDS if roots or kind.fact != ROOTS]
    return tuple(ReadResource(one, one.kind.fact in REQUIRED) for one in resources(system_namespace, kinds))


def registrations(system_namespace: str) -> ReadResource:
    """The Secrets that register clusters."""
    return ReadResource(
        Resource(REMOTE_SECRET, namespace=system_namespace, label_selector=f"{LABEL}=true"), required=False
    )


class _Meta(msgspec.Struct):
    uid: str


class _Namespace(msgspec.Struct):
    metadata: _Meta


class OpenSession(Requests, Protocol):
    """Requests that can be ended, and where they lead to."""

    @property
    def access(self) -> Access:
        """Where they lead to, and how long that lasts."""

    async def close(self) -> None:
        """Closes every socket."""


class ApiConnection:
    """A session with an API server for one cluster; see `watchers.generation.Connection`.

    ``open_session`` makes the session, and may raise InvalidKubeconfig; this raises Unusable then. ``selection`` are
    the namespaces that are read, None for all.
    """

    def __init__(
        self,
        server: ApiServer,
        cluster: str,
        *,
        system_namespace: str,
        metrics: WatchMetrics,
        flow: Flow,
        selection: Selection | None = None,
        chance: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        pace: Pace = USUAL,
        open_session: Callable[[ApiServer], OpenSession] = Session,
    ) -> None:
        try:
            self._session = open_session(server)
        except InvalidKubeconfig as error:
            raise Unusable(str(error)) from None
        self._cluster = cluster
        self._system_namespace = system_namespace
        self._metrics = metrics
        self._flow = flow
        self._holdings = Holdings(flow.limits.objects)
        self._selection = selection
        self._chance = chance
        self._clock = clock
        self._wall = wall
        self._pace = pace
        self._kinds: list[str] = []
        self._heartbeat = Heartbeat(self._session, heard=_last_heard(cluster, self._kinds, metrics), now=wall)

    async def identify(self) -> str:
        """The uid of the namespace kube-system, which tells API servers apart; "" if it may not be read."""
        try:
            async with self._session.get("/api/v1/namespaces/kube-system", {}, silence=_SECONDS) as response:
                body = b""
                async for chunk in response.chunks():
                    body += chunk
                    if len(body) > _LONGEST_BODY:
                        raise Unidentified("what answers is no API server: it says too much", denied=False)
                status = response.status
        except Broken as error:
            raise Unidentified(str(error), denied=False) from None
        if status in (403, 404):
            return ""
        if status != 200:
            raise Unidentified(str(refusal(status, body)), denied=status == 401)
        try:
            return msgspec.json.decode(body, type=_Namespace).metadata.uid
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unidentified("what answers is no API server", denied=False) from None

    async def reflect(self, kind: ReadResource, facts: Sink, report: Report) -> None:
        """Reads a kind until cancelled."""
        self._kinds.append(kind.fact)
        reflector = Reflector(
            kind.resource,
            self._cluster,
            self._session,
            facts,
            system_namespace=self._system_namespace,
            report=report,
            metrics=self._metrics,
            flow=self._flow,
            holdings=self._holdings,
            selection=self._selection,
            chance=self._chance,
            pace=self._pace,
            now=self._clock,
            wall=self._wall,
        )
        await reflector.run()

    async def attend(self, changed: Callable[[], None]) -> None:
        """Asks again and again whether the API server is there."""
        await self._heartbeat.run(changed)

    async def confirm(self, seconds: float) -> None:
        """Has it asked now."""
        await self._heartbeat.confirm(seconds)

    @property
    def health(self) -> Health:
        """Whether it answers."""
        return self._heartbeat.health

    @property
    def access(self) -> Access:
        """Where the session leads to, and how long that lasts."""
        return self._session.access

    def heard(self, kind: ReadResource) -> float:
        """When the watch of a kind last said something."""
        return self._metrics.heard.values.get((self._cluster, kind.fact), 0.0)

    async def close(self) -> None:
        """Closes every socket."""
        self._holdings.quotas.clear()
        await self._session.close()


def _last_heard(cluster: str, kinds: list[str], metrics: WatchMetrics) -> Callable[[], float]:
    """Tells when any of the watches last said something. Knows no connection, so that none keeps itself alive."""
    heard = metrics.heard.values
    return lambda: max((heard.get((cluster, kind), 0.0) for kind in kinds), default=0.0)


class Reader:
    """Makes the watches of a process: what of home, what of a remote, and where it goes.

    Of remotes ServiceEntries and WorkloadEntries are read as well with ``remote_entries``, of home the certificates
    that its namespaces trust with ``roots``.
    A remote is waited for so many seconds (``patience``) from when it is made; ``turns`` is how many of them read
    everything at a time; ``selections`` tell which namespaces are read (None: all), ``limits`` what one
    cluster may have. ``chance`` gives numbers from 0 to 1; ``clock`` and ``wall`` are the time in seconds, one that
    only grows and Unix time.
    """

    def __init__(
        self,
        facts: Sink,
        *,
        system_namespace: str,
        patience: float,
        metrics: WatchMetrics,
        selections: Selections | None = None,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        pace: Pace = USUAL,
        open_session: Callable[[ApiServer], OpenSession] = Session,
        turns: int = 4,
        limits: Limits | None = None,
        remote_entries: bool = False,
        roots: bool = False,
    ) -> None:
        self._facts = facts
        self._remote_entries = remote_entries
        self._roots = roots
        self._system_namespace = system_namespace
        self._patience = patience
        self._selections = selections
        self._metrics = metrics
        self._chance = chance
        self._clock = clock
        self._wall = wall
        self._pace = pace
        self._open_session = open_session
        self._turns = Turns(turns)
        self._limits = limits or Limits()
        self._rounds = Rounds()

    def home(
        self, cluster: str, secrets: Sink, identified: Callable[[Credential, str], None]
    ) -> ClusterWatch[Credential, ReadResource]:
        """The watch of home; ``secrets`` takes those that register clusters."""
        read = of_home(self._system_namespace, roots=self._roots)
        kinds: list[tuple[ReadResource, Sink]] = [(kind, self._facts) for kind in read]
        kinds.append((registrations(self._system_namespace), secrets))
        return self._watch(cluster, kinds, identified, home=True)

    def remote(
        self, cluster: str, identified: Callable[[Credential, str], None]
    ) -> ClusterWatch[Credential, ReadResource]:
        """The watch of a remote cluster."""
        kinds = [(kind, self._facts) for kind in of_remote(self._system_namespace, entries=self._remote_entries)]
        return self._watch(cluster, kinds, identified, home=False)

    def _watch(
        self,
        cluster: str,
        kinds: Sequence[tuple[ReadResource, Sink]],
        identified: Callable[[Credential, str], None],
        *,
        home: bool,
    ) -> ClusterWatch[Credential, ReadResource]:
        selection = self._selections.of(cluster) if self._selections is not None else None

        flow = Flow(cluster, self._limits, self._rounds, self._metrics, self._clock)

        def connect(credential: Credential) -> ApiConnection:
            return ApiConnection(
                credential.server,
                cluster,
                system_namespace=self._system_namespace,
                metrics=self._metrics,
                flow=flow,
                selection=selection,
                chance=self._chance,
                clock=self._clock,
                wall=self._wall,
                pace=self._pace,
                open_session=self._open_session,
            )

        return ClusterWatch(
            cluster,
            self._facts,
            home=home,
            deadline=self._wall() + self._patience,
            kinds=kinds,
            connect=connect,
            delays=lambda: growing(self._chance, self._pace),
            now=lambda: int(self._wall() * 1e9),
            identified=identified,
            # Home is waited for by everybody, and waits for nobody.
            turns=None if home else self._turns,
        )


def growing(chance: Callable[[], float], pace: Pace = USUAL) -> Iterator[float]:
    """Seconds to wait after the first failure, the second and so on: growing, jittered, capped."""
    wait = pace.first_wait
    while True:
        yield wait * (1 + chance()) / 2
        wait = min(wait * 2, pace.longest_wait)
