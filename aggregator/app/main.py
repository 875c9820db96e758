"""One control plane in one process: joins watchers, graph and server, and runs them until cancelled.

In: the settings. Out: one line when it serves, and then service. The only module that knows all three packages. Every
task belongs to one TaskGroup, so a task that dies takes the process down with its reason, and a process that is told to
stop drains its streams first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator import __version__
from aggregator.admin.clusters import add_cluster_pages
from aggregator.admin.pages import Pages, admin_app, health_app
from aggregator.admin.server import HttpListener
from aggregator.app import memory, traces
from aggregator.app.address_books import SharedBook
from aggregator.app.admin_access import admin_access
from aggregator.app.aggregate import Aggregator, Tables
from aggregator.app.clock import steady_clock
from aggregator.app.cluster_limits import ClusterLimits
from aggregator.app.clusters import Clusters, WatchSource
from aggregator.app.loop_watch import LoopWatch
from aggregator.app.metrics import ClusterStates, Exposition, RecordCounts
from aggregator.app.readiness import Readiness, readiness
from aggregator.app.records import Records
from aggregator.app.rejections import Rejections
from aggregator.app.reviewers import reviewer
from aggregator.app.setting_values import Address as SettingsAddress
from aggregator.app.setting_values import ObjectName
from aggregator.app.settings import Settings, SettingsError
from aggregator.app.subscriptions import Interest, Surroundings, TableAdmissions, TableViews
from aggregator.mesh.home import Home
from aggregator.operate.clusters import ClusterQuestions
from aggregator.pipeline import Pipeline
from aggregator.views import ztunnel
from aggregator.writes.root_certificates import ROOTS
from watchers.lookups.dns import Lookups, Resolve
from watchers.metrics import LookupMetrics
from xds.server.access import Access
from xds.server.authentication import Authenticator
from xds.server.certificate_authority import CertificateAuthority, CertificateAuthorityError
from xds.server.certificate_files import load_authority
from xds.server.certificate_service import CertificateService
from xds.server.listener import Address, Listener, ListenError, ListenerSettings, Ports
from xds.server.proxies import Proxy
from xds.server.streams import Streams

if TYPE_CHECKING:
    from aggregator.app.writing import Writing

log = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    """Run a control plane until cancelled; then drain.

    Raises what cannot be cured from within, each with a text that says what to do: SettingsError, SourceError,
    ListenError, TokenFileError, CertificateAuthorityError.
    """
    began = time.monotonic()
    memory.prepare()
    async with memory.tended():
        await ControlPlane(settings).run(began, when_serving=memory.set_aside)


class ControlPlane:
    """The parts of one process. `run` is its life; `serving` is set while it serves.

    `now` is the time in seconds since the epoch, a steady clock unless given; `watch` what follows the source of one
    cluster, `resolve` what asks for a DNS name, the name servers of the machine unless given. Several may live in one
    loop.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], float] | None = None,
        watch: WatchSource | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        now = now or steady_clock()
        self.settings = settings
        self.records = Records()
        self.tables = Tables.empty()
        self.clusters = Clusters(settings, self.tables.facts, self.tables.selections, now=now, watch=watch)
        self.pipeline = Pipeline(
            Home(
                cluster=settings.home,
                system_namespace=settings.system_namespace,
                trust_domain=settings.trust_domain,
                domain_suffix=settings.domain_suffix,
                clusterset_domain=settings.clusterset_domain,
                export_clusterset_only=settings.export_clusterset_only,
                multicluster_services=settings.multicluster_services,
                ztunnel_accounts=tuple((one.namespace, one.name) for one in settings.ztunnel_accounts),
                istio_classes=settings.istio_classes,
                distributes_roots=settings.distributes_roots,
                revision=settings.revision,
                remote_entries=settings.remote_entries,
                ingress_service=_object(settings.ingress_service),
                ingress_addresses=settings.ingress_address,
                stale_after=settings.stale_after,
                stale_ttl=settings.stale_ttl,
            )
        )
        self.limits = ClusterLimits(self.tables.past_limit)
        self.aggregator = Aggregator(self.pipeline, self.tables, self.records, now=now)
        self.lookups = Lookups(
            self.tables.hostnames,
            self.tables.facts,
            patience=settings.remote_timeout,
            metrics=LookupMetrics(),
            resolve=resolve,
        )
        self.writing = self._read_writing(now)
        self.loop_watch = LoopWatch()
        self.authority = _authority(settings)
        self.tables.roots.apply([(ROOTS, self.authority.root_certificates)])
        interest = Interest(self.tables)
        # Home's ztunnels are always served, so what they are told is always at hand.
        interest.keep(*ztunnel.VIEWS)
        lifetime, home = settings.workload_cert_ttl, settings.home
        addresses = SharedBook(self.tables, home)
        self._around = Surroundings(self.tables, interest, self.authority, lifetime, home, addresses)
        access = Access(TableAdmissions(self.tables, self.aggregator.complete))
        rejections = Rejections(self.pipeline, self.tables, self.records)
        self.streams = Streams(access, self._views_for, rejections)
        self._plaintext = _address(settings.xds_plaintext) if settings.xds_plaintext else None
        tokens = reviewer(settings, self.clusters.home_session, now)
        self.listener = Listener(
            ListenerSettings(tls=_address(settings.xds), names=settings.xds_names, plaintext=self._plaintext),
            streams=self.streams,
            authenticator=Authenticator(tokens),
            authority=self.authority,
            certificates=CertificateService(self.authority, access),
            ready=lambda: self.readiness().ready,
        )
        self.ports: Ports | None = None
        self.serving = asyncio.Event()
        self._stopping = False
        self.pages = Pages()
        self.health = HttpListener(
            health_app(self.readiness), flag="--health", host=settings.health.host, port=settings.health.port
        )
        exposition = Exposition(
            [
                RecordCounts(self.records),
                ClusterStates(self.clusters.statuses),
                self.clusters.metrics.all,
                self.lookups.metrics.all,
                self.loop_watch.metrics,
                *((self.writing.metrics,) if self.writing is not None else ()),
            ],
            __version__,
        )
        self.admin = HttpListener(
            admin_app(exposition.render, __version__, self.pages, admin_access(settings, tokens)),
            flag="--admin",
            host=settings.admin.host,
            port=settings.admin.port,
        )
        questions = ClusterQuestions(self.clusters, self.pipeline, replica=socket.gethostname(), now=now)
        add_cluster_pages(self.pages, questions)
        if self.writing is not None:
            self.pages.add("/writes", "what home's objects are still to be told, and who tells them", self.writing.page)
        self.pages.add("/findings", "what is wrong with which objects, and the cure", lambda _: self.findings())

    def _read_writing(self, now: Callable[[], float]) -> Writing | None:
        """What writes to home; None where home cannot be written to."""
        session, lives = self.clusters.home_session, self.clusters.lives
        if session is None or lives is None:
            return None
        # Imported only now, as the clients of API servers are.
        from aggregator.app.writing import Writing

        return Writing(self.settings, self.tables.writes, session, lives, now=now)

    def _views_for(self, proxy: Proxy, bell: Callable[[], None]) -> TableViews:
        return TableViews(self._around, proxy, bell)

    def readiness(self) -> Readiness:
        """Whether new proxies may come, and what is waited for."""
        return readiness(
            self.clusters.states(),
            passed=self.aggregator.complete.is_set(),
            settled=self.aggregator.settled.is_set(),
            listeners={"xds": self.ports is not None},
            stopping=self._stopping,
            unanswered=self.lookups.unanswered,
            past_limit=self.limits.past,
        )

    def findings(self) -> list[str]:
        """Every finding as a line, sorted."""
        return sorted(str(finding) for _, found in self.tables.findings.scan() for finding in found)

    async def run(self, began: float, when_serving: Callable[[], None] = lambda: None) -> None:
        """Serve until cancelled, then drain. Leaves nothing bound, however it ends.

        `began` is when the process started (monotonic seconds); `when_serving` is called once it serves.
        """
        try:
            await self._listen()
            async with asyncio.TaskGroup() as tasks:
                self._start(tasks)
                try:
                    await self.aggregator.settled.wait()
                    print(self.summary(time.monotonic() - began), flush=True)  # noqa: T201 - scripts wait for this line
                    self.serving.set()
                    when_serving()
                    await asyncio.Event().wait()
                finally:
                    # All else still runs: /ready says that no new proxy should come, and a proxy whose stream is not
                    # ended yet is still kept up to date.
                    self._stopping = True
                    if self.writing is not None:
                        # At once, so that another process writes while this one drains.
                        self.writing.stop()
                    self.serving.clear()
                    await self.listener.stop(self.settings.drain)
                    if self.writing is not None:
                        await self.writing.stopped()
        finally:
            await self.listener.stop(0)
            self.health.close()
            self.admin.close()

    async def _listen(self) -> None:
        """Everything a person may have got wrong comes before anything runs."""
        self.health.bind()
        self.admin.bind()
        try:
            self.ports = await self.listener.start()
        except ListenError as error:
            name = "xds_plaintext" if error.address == self._plaintext else "xds"
            problem = f"cannot listen on {error.address}: {error.problem}"
            raise SettingsError(self.settings.origin(name), problem, error.cure) from None
        if self.settings.root_cert_out is not None:
            _write_root(self.settings, self.settings.root_cert_out, self.authority.root_certificates)
        self._log_listeners(self.ports)

    def _start(self, tasks: asyncio.TaskGroup) -> None:
        self.clusters.watch(tasks)
        tasks.create_task(self.aggregator.run(), name="aggregate")
        tasks.create_task(self.loop_watch.run(), name="watch the loop")
        if self.writing is not None:
            self.writing.start(tasks)
        tasks.create_task(self.lookups.run(), name="look up names")
        tasks.create_task(self.health.serve(), name="health")
        tasks.create_task(self.admin.serve(), name="admin")
        if traces.wanted(os.environ):
            # Imported only now: off, it costs nothing.
            from aggregator.app import telemetry

            exporting = telemetry.export_traces(self.records, self.settings.home)
            tasks.create_task(exporting, name="telemetry")

    def _log_listeners(self, ports: Ports) -> None:
        settings = self.settings
        log.info("listening", extra={"object_name": "xds", "host": settings.xds.host, "port": ports.tls})
        if settings.xds_plaintext is not None:
            extra = {"object_name": "xds plaintext", "host": settings.xds_plaintext.host, "port": ports.plaintext}
            log.info("listening", extra=extra)
        for name, listener in (("health", self.health), ("admin", self.admin)):
            log.info("listening", extra={"object_name": name, "host": listener.host, "port": listener.port})

    def summary(self, seconds: float) -> str:
        """The line that says the process serves."""
        clusters = sum(1 for _ in self.clusters.states())
        held, model = self.pipeline.graph.values, self.pipeline
        services = len(held(model.services))
        workloads = sum(len(held(found)) for found in model.workloads.collections)
        domains = len(held(model.hosts.hosts))
        counts = f"{clusters} clusters, {services} services, {workloads} workloads, {domains} domains"
        return f"ready in {seconds:.2f} s: {counts}"


def _authority(settings: Settings) -> CertificateAuthority:
    if settings.cacerts is not None:
        try:
            return load_authority(settings.cacerts)
        except CertificateAuthorityError as error:
            raise CertificateAuthorityError(f"{settings.origin('cacerts')}: {error}") from None
    log.warning(
        "signing with a root of its own",
        extra={"cause": "--cacerts is off", "effect": "certificates are worth nothing after a restart"},
    )
    return CertificateAuthority.self_signed(settings.trust_domain)


def _object(given: ObjectName | None) -> tuple[str, str] | None:
    return (given.namespace, given.name) if given is not None else None


def _address(given: SettingsAddress) -> Address:
    return Address(given.host, given.port)


def _write_root(settings: Settings, path: Path, root: str) -> None:
    """Whole or not at all, since proxies may be reading it. Raises SettingsError."""
    staged = path.with_name(f".{path.name}.new")
    try:
        staged.write_text(root)
        staged.replace(path)
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror or error}"
        raise SettingsError(settings.origin("root_cert_out"), problem, "check path and permissions") from None
