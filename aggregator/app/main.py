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
from typing import TYPE_CHECKING

from aggregator import __version__
from aggregator.admin.clusters import add_cluster_pages
from aggregator.admin.domains import add_domain_pages
from aggregator.admin.pages import Pages, admin_app, health_app
from aggregator.admin.server import HttpListener
from aggregator.app import authority as authorities
from aggregator.app import memory, traces
from aggregator.app.address_books import SharedBook
from aggregator.app.admin_access import admin_access
from aggregator.app.aggregate import Aggregator, Tables
from aggregator.app.clock import steady_clock
from aggregator.app.cluster_limits import ClusterLimits
from aggregator.app.clusters import Clusters, WatchSource
from aggregator.app.ingress_streams import ingress_gateways
from aggregator.app.loop_watch import LoopWatch
from aggregator.app.metrics import ClusterStates, Exposition, RecordCounts
from aggregator.app.readiness import Readiness, readiness
from aggregator.app.records import Records
from aggregator.app.rejections import Rejections
from aggregator.app.reviewers import reviewer
from aggregator.app.setting_values import Address as SettingsAddress
from aggregator.app.setting_values import ObjectName
from aggregator.app.settings import Settings, SettingsError
from aggregator.app.subscriptions import Interest, Surroundings, TableViews
from aggregator.app.table_admissions import TableAdmissions
from aggregator.mesh.home import Home
from aggregator.operate.clusters import ClusterQuestions
from aggregator.operate.domains import DomainQuestions
from aggregator.pipeline import Pipeline
from aggregator.views import ztunnel
from aggregator.writes.root_certificates import ROOTS
from watchers.lookups.dns import Lookups, Resolve
from watchers.metrics import LookupMetrics
from xds.metrics import work_metrics
from xds.server.access import Access
from xds.server.authentication import Authenticator
from xds.server.certificate_service import CertificateService
from xds.server.listener import Address, Listener, ListenError, ListenerSettings, Ports
from xds.server.proxies import Proxy
from xds.server.rechecks import Rechecks
from xds.server.streams import Streams

if TYPE_CHECKING:
    from aggregator.app.asking import Asking
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
                regexes_for_whole_hosts=settings.ingress_regex_scope == "host",
                default_certificate=_object(settings.default_certificate),
                ingress_snippets=settings.ingress_snippets,
                stale_after=settings.stale_after,
                stale_ttl=settings.stale_ttl,
                api_server=self.clusters.home_session is not None,
                # Who connects is who the file says: it stands for what an API server would know of accounts.
                accounts_read_secrets=settings.identities is not None,
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
        self.asking = self._read_asking(now)
        self.loop_watch = LoopWatch()
        self._kept = self.clusters.home_session is not None and authorities.is_kept(settings)
        self.authority = authorities.read_authority(settings, kept=self._kept)
        self.authority.listen(self._tell_roots)
        self.tables.roots.apply([(ROOTS, self.authority.root_certificates)])
        interest = Interest(self.tables)
        # Home's ztunnels are always served, so what they are told is always at hand.
        interest.keep(*ztunnel.VIEWS)
        lifetime, home = settings.workload_cert_ttl, settings.home
        addresses = SharedBook(self.tables, home)
        self._around = Surroundings(self.tables, interest, self.authority, lifetime, home, addresses)
        self._admissions = TableAdmissions(self.tables, self.aggregator.complete)
        access = Access(self._admissions)
        rejections = Rejections(self.pipeline, self.tables, self.records)
        rechecks = Rechecks(every=settings.recheck_tokens)
        self.streams = Streams(access, self._views_for, rejections, rechecks=rechecks)
        self._admissions.changed_pods = self.streams.look_at
        plaintext = _address(settings.xds_plaintext) if settings.xds_plaintext else None
        mtls = _address(settings.xds_mtls) if settings.xds_mtls else None
        self._addresses = {"xds": _address(settings.xds), "xds_mtls": mtls, "xds_plaintext": plaintext}
        tokens = reviewer(settings, self.clusters, now, self._trust_domain)
        self.listener = Listener(
            ListenerSettings(tls=_address(settings.xds), mtls=mtls, plaintext=plaintext),
            streams=self.streams,
            authenticator=Authenticator(tokens),
            certificate=authorities.server_certificate(settings, self.authority),
            roots=lambda: self.authority.root_certificates,
            certificates=CertificateService(self.authority, access) if settings.issue_certificates else None,
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
                self._around.unknown_names.metrics,
                self.listener.metrics.all,
                work_metrics,
                self.aggregator.activations.metrics,
                lambda: authorities.expiries(self.authority),
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
        domains = DomainQuestions(
            self.pipeline,
            self.tables.findings,
            lambda: ingress_gateways(self.streams, self.tables.resources),
            self.aggregator.activations.of,
            replica=socket.gethostname(),
            now=now,
        )
        add_domain_pages(self.pages, domains)
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

    def _read_asking(self, now: Callable[[], float]) -> Asking | None:
        """What asks home for single objects, and what accounts may do; None where home cannot be asked."""
        session = self.clusters.home_session
        if session is None:
            return None
        from aggregator.app.asking import Asking

        return Asking(self.settings, self.tables, session, self.clusters.metrics, now=now)

    def _views_for(self, proxy: Proxy, bell: Callable[[], None]) -> TableViews:
        return TableViews(self._around, proxy, bell)

    def _tell_roots(self) -> None:
        """Other roots are trusted now, or the same by another signer."""
        self.tables.roots.apply([(ROOTS, self.authority.root_certificates)])
        try:
            authorities.write_roots(self.settings, self.authority)
        except SettingsError as error:
            log.error("the roots were not written", extra={"cause": str(error)})

    async def _trust_domain(self) -> str:
        """That of home's identities, which home may say itself."""
        await self.aggregator.complete.wait()
        return self._admissions.trust_domain

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
            self.health.bind()
            self.admin.bind()
            if not self._kept:
                await self._listen()
            async with asyncio.TaskGroup() as tasks:
                self._start(tasks)
                if self._kept:
                    await self._obtain_authority(tasks)
                    await self._listen()
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
        """Everything a person may have got wrong comes before anything runs, if it can be known then."""
        try:
            self.ports = await self.listener.start()
        except ListenError as error:
            name = next(name for name, address in self._addresses.items() if address == error.address)
            problem = f"cannot listen on {error.address}: {error.problem}"
            raise SettingsError(self.settings.origin(name), problem, error.cure) from None
        authorities.write_roots(self.settings, self.authority)
        self._log_listeners(self.ports)

    def _start(self, tasks: asyncio.TaskGroup) -> None:
        self.clusters.watch(tasks)
        tasks.create_task(self.aggregator.run(), name="aggregate")
        if not self._kept:
            tasks.create_task(authorities.follow(self.settings, self.authority), name="follow the authority")
        tasks.create_task(self.loop_watch.run(), name="watch the loop")
        if self.writing is not None:
            self.writing.start(tasks)
        if self.asking is not None:
            self.asking.start(tasks)
        tasks.create_task(self.lookups.run(), name="look up names")
        tasks.create_task(self.health.serve(), name="health")
        tasks.create_task(self.admin.serve(), name="admin")
        if traces.wanted(os.environ):
            # Imported only now: off, it costs nothing.
            from aggregator.app import telemetry

            exporting = telemetry.export_traces(self.records, self.settings.home)
            tasks.create_task(exporting, name="telemetry")

    async def _obtain_authority(self, tasks: asyncio.TaskGroup) -> None:
        """Begins with the authority that home keeps; returns once there is one, and follows it."""
        # Imported only now, as the clients of API servers are.
        from aggregator.app import kept_authority
        from watchers.kept_secret import KeptSecret

        session, name = self.clusters.home_session, self.settings.ca_secret
        if session is None or name is None:
            raise AssertionError("nothing that is kept")
        secret = KeptSecret(session, self.settings.system_namespace, name)
        await kept_authority.obtain(self.authority, secret, self.settings.trust_domain)
        tasks.create_task(kept_authority.follow_secret(self.authority, secret), name="follow the authority")

    def _log_listeners(self, ports: Ports) -> None:
        settings = self.settings
        for name, given, port in (
            ("xds", settings.xds, ports.tls),
            ("xds mtls", settings.xds_mtls, ports.mtls),
            ("xds plaintext", settings.xds_plaintext, ports.plaintext),
        ):
            if given is not None:
                log.info("listening", extra={"object_name": name, "host": given.host, "port": port})
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


def _object(given: ObjectName | None) -> tuple[str, str] | None:
    return (given.namespace, given.name) if given is not None else None


def _address(given: SettingsAddress) -> Address:
    return Address(given.host, given.port)
