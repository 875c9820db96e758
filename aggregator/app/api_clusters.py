"""The clusters of this process that are read through their API servers: home if it is one, and the remotes.

In: the settings, kubeconfigs in files, Secrets of home. Out: the tasks that follow them. Joins what `watchers` has for
that; decides nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from aggregator.app.selections import follow
from aggregator.app.setting_values import ClusterSource
from aggregator.app.settings import Settings
from aggregator.cache.table import Table
from aggregator.mesh.selection import Selected
from watchers.cluster import ClusterWatch
from watchers.clusters import Clusters, Credential, SecretClaims
from watchers.facts import Fact, ObjectKey
from watchers.kubernetes.budget import Limits
from watchers.kubernetes.connection import Reader
from watchers.kubernetes.kubeconfig import (
    SERVICE_ACCOUNT,
    Allowances,
    ApiServer,
    InvalidKubeconfig,
    in_cluster,
    read_kubeconfig,
)
from watchers.kubernetes.newest import NewestSession
from watchers.kubernetes.remote_tokens import RemoteTokens
from watchers.kubernetes.token_renewal import Lives, warn
from watchers.metrics import WatchMetrics
from watchers.registration import Claim, Reserved
from watchers.registration_files import (
    Found,
    follow_kubeconfig,
    follow_kubeconfigs,
    follow_service_account,
    kubeconfig_in,
    kubeconfigs_in,
)
from watchers.selection import Selections
from watchers.status import ClusterStatus
from watchers.watching import SourceError


class ApiClusters:
    """Home, unless it is one of the `directories` (by cluster), and all remotes with a kubeconfig.

    Reads the kubeconfigs in files at once, so that their clusters are known before anything runs; raises SourceError
    for what the settings name and cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        facts: Table[ObjectKey, Fact],
        selections: Table[tuple[str], Selected],
        *,
        now: Callable[[], float],
        metrics: WatchMetrics,
        directories: Mapping[str, Path],
        environment: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._metrics = metrics
        self._wall = now
        self._selected = selections
        self._selections = Selections()
        allowed = settings.kubeconfig_allow
        self._allowances = Allowances(
            plain_http="plain-http" in allowed,
            insecure_skip_tls_verify="insecure-skip-tls-verify" in allowed,
            proxy_url="proxy-url" in allowed,
        )
        reader = Reader(
            facts,
            system_namespace=settings.system_namespace,
            patience=settings.remote_timeout,
            metrics=metrics,
            selections=self._selections,
            wall=now,
            remote_entries=settings.remote_entries,
            roots=settings.distributes_roots,
            limits=Limits(
                settings.cluster_objects, settings.object_bytes, settings.cluster_bytes, settings.cluster_events
            ),
        )
        reserved = {cluster: Reserved(f"read from the directory {path}") for cluster, path in directories.items()}
        self._clusters = Clusters(
            facts,
            reserved={**reserved, settings.home: Reserved("the home cluster")},
            make=reader.remote,
            now=lambda: int(now() * 1e9),
            allowances=self._allowances,
            removed=self._removed,
            grace=settings.removal_grace,
        )
        self.lives = Lives(self._clusters.owners, self._allowances)
        """When the tokens of remotes end."""
        self.remote_tokens = RemoteTokens(self._clusters.registered, audiences=settings.token_audience, now=now)
        """Whose the tokens are that proxies of remotes present."""
        self._home: ClusterWatch[Credential, Any] | None = None
        self.home_session: NewestSession | None = None
        """Requests to home beside its watches, with the same credential; None if home is a directory."""
        if settings.home not in directories:
            secrets = SecretClaims(self._clusters)
            self._home = reader.home(settings.home, secrets, self._home_identified)
            self.home_session = NewestSession()
            server = self._home_server(environment)
            self._home.use(Credential(server))
            self.home_session.use(server)
        self._files = [source for source in settings.remote if source.name not in directories]
        for source in self._files:
            found = self._at_start("remote", partial(kubeconfig_in, source.name, source.path, "--remote"))
            self._check("remote", found.claims)
            self._register(source, found)
        if settings.remotes is not None:
            self._register(None, self._at_start("remotes", partial(kubeconfigs_in, settings.remotes)))

    def watch(self, tasks: asyncio.TaskGroup) -> None:
        """Starts the tasks."""
        settings = self._settings
        if self._home is not None:
            tasks.create_task(self._home.run(), name=f"watch {settings.home}")
            if settings.local is not None:
                following = follow_kubeconfig(settings.home, settings.local.path, "--local", self._use_for_home)
                tasks.create_task(self._follow("local", following), name="follow --local")
            else:
                following = follow_service_account(self._environment, SERVICE_ACCOUNT, self._use_service_account)
                tasks.create_task(self._follow("local", following), name="follow the service account")
        tasks.create_task(self._clusters.run(), name="watch remotes")
        tasks.create_task(follow(self._selected, self._selections), name="follow selections")
        tasks.create_task(warn(self.lives, self._wall), name="warn of tokens that end")
        for source in self._files:
            following = follow_kubeconfig(source.name, source.path, "--remote", partial(self._register, source))
            tasks.create_task(self._follow("remote", following), name=f"follow --remote {source.name}")
        if settings.remotes is not None:
            following = follow_kubeconfigs(settings.remotes, partial(self._register, None))
            tasks.create_task(self._follow("remotes", following), name="follow --remotes")

    def statuses(self) -> list[ClusterStatus]:
        """How each is doing, home first; for a while also those that went."""
        found = self._clusters.statuses()
        if self._home is not None:
            place = "the cluster this process runs in" if self._settings.local is None else "--local"
            found.insert(0, msgspec.structs.replace(self._home.status(), registered_by=place))
        return found

    async def confirm(self, cluster: str | None, seconds: float) -> None:
        """Asks the API server of a cluster, or of all, whether it is there; waits at most so long for the answers."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._clusters.confirm(cluster, seconds), name="confirm remotes")
            if self._home is not None and cluster in (None, self._settings.home):
                tasks.create_task(self._home.confirm(seconds), name="confirm home")

    def _removed(self, cluster: str) -> None:
        self._metrics.forget(cluster)
        self.remote_tokens.forget(cluster)

    def _home_identified(self, _credential: Credential, uid: str) -> None:
        self._clusters.identify(self._settings.home, uid)

    def _home_server(self, environment: Mapping[str, str]) -> ApiServer:
        local = self._settings.local
        if local is not None:
            found = self._at_start("local", partial(kubeconfig_in, local.name, local.path, "--local"))
            return self._check("local", found.claims)
        try:
            return in_cluster(environment)
        except InvalidKubeconfig as error:
            raise SourceError(f"{self._settings.origin('local')}: {error}") from None

    def _use_service_account(self, server: ApiServer) -> None:
        if self._home is not None and self.home_session is not None:
            self._home.use(Credential(server))
            self.home_session.use(server)

    def _use_for_home(self, found: Found) -> None:
        if self._home is None or self.home_session is None:
            return
        for claim in found.claims:
            try:
                server = read_kubeconfig(claim.kubeconfig, self._allowances)
            except InvalidKubeconfig as error:
                self._home.refuse(f"{claim.place}: {error}")
            else:
                self._home.use(Credential(server))
                self.home_session.use(server)
        for refused in found.refused:
            self._home.refuse(f"{refused.place} {refused.cause}")

    def _register(self, source: ClusterSource | None, found: Found) -> None:
        name = f"--remote {source.name}" if source else "--remotes"
        self._clusters.register(name, found.claims, found.refused)

    def _at_start(self, setting: str, read: Callable[[], Found]) -> Found:
        try:
            return read()
        except SourceError as error:
            raise SourceError(f"{self._settings.origin(setting)}: {error}") from None

    def _check(self, setting: str, claims: tuple[Claim, ...]) -> ApiServer:
        """What somebody has just written into the settings has to be right."""
        (claim,) = claims
        try:
            return read_kubeconfig(claim.kubeconfig, self._allowances)
        except InvalidKubeconfig as error:
            raise SourceError(f"{self._settings.origin(setting)}: cluster {claim.cluster!r}: {error}") from None

    async def _follow(self, setting: str, following: Awaitable[None]) -> None:
        try:
            await following
        except SourceError as error:
            raise SourceError(f"{self._settings.origin(setting)}: {error}") from None
