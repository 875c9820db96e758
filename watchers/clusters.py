"""All clusters that are registered: each watched while it is, by the credential it is registered with.

In: claims, from wherever registrations stand, and which API server each leads to. Out: a ClusterWatch per cluster that
has an owner, told of every new credential, removed with its last claim; claims that do not count as SourceFaults. Which
claims count is decided in `registration`, anew after every change. Opens no connection itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from watchers.cluster import ClusterWatch
from watchers.facts import Fact, ObjectKey, SourceFault
from watchers.kubernetes.kubeconfig import Allowances, ApiServer, InvalidKubeconfig, read_kubeconfig
from watchers.registration import Claim, Refused, RemoteSecret, Reserved, claims_of, decide
from watchers.sink import Cause, Facts
from watchers.status import ClusterStatus

log = logging.getLogger(__name__)

_REMEMBERED_SECONDS = 600.0
_MOST_REMEMBERED = 100

REGISTRATIONS = ""
"""In the place of a cluster's id: the SourceFaults of registrations. No cluster can be called so."""


class Credential(msgspec.Struct, frozen=True):
    """An API server to read, and the claim that leads there; home needs none."""

    server: ApiServer
    claim: Claim | None = None


class Registered(msgspec.Struct, frozen=True):
    """A cluster that is registered, as it was reached last.

    ``server`` is its API server, which is no other cluster's, with the credential that led there; None as long as that
    has not been reached. ``uid`` is that of its namespace kube-system, "" if that may not be read. ``trust_domain`` is
    that of the cluster's identities, "" for home's.
    """

    server: ApiServer | None = None
    uid: str = ""
    trust_domain: str = ""


class MakeWatch(Protocol):
    """Makes the watch of a remote cluster, which `identified` is to be told to."""

    def __call__(self, cluster: str, identified: Callable[[Credential, str], None]) -> ClusterWatch[Credential, Any]:
        """The watch, which is not running yet."""
        ...


class _Remote:
    """A cluster that has an owner."""

    def __init__(self, watch: ClusterWatch[Credential, Any]) -> None:
        self.watch = watch
        self.claim: Claim | None = None
        self.task: asyncio.Task[None] | None = None
        self.uid = ""
        self.reached = Registered()
        self.leaving: asyncio.TimerHandle | None = None

    def stay(self) -> None:
        """It is registered, again or still."""
        if self.leaving is not None:
            self.leaving.cancel()
            self.leaving = None
            # Whatever was said of its leaving is true no more, though the claim may be the very same.
            self.claim = None


class Clusters:
    """The registered clusters. ``reserved`` are ids nobody can claim; ``now`` is in nanoseconds of Unix time,
    ``removed`` hears of every cluster that goes. One that is not registered any more is read on for ``grace`` seconds,
    so that a registration which is deleted and made again makes no difference.
    """

    def __init__(
        self,
        facts: Facts,
        *,
        reserved: Mapping[str, Reserved],
        make: MakeWatch,
        now: Callable[[], int],
        allowances: Allowances,
        removed: Callable[[str], None] = lambda _cluster: None,
        grace: float = 0.0,
    ) -> None:
        self._facts = facts
        self._grace = grace
        self._reserved = dict(reserved)
        self._make = make
        self._now = now
        self._allowances = allowances
        self._removed = removed
        self._claims: dict[str, tuple[Sequence[Claim], Sequence[Refused]]] = {}
        self._uids: dict[Claim, str] = {}
        self._remotes: dict[str, _Remote] = {}
        self._refused: frozenset[Refused] = frozenset()
        # Clusters that went, the newest last.
        self._gone: dict[str, ClusterStatus] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def watched(self) -> Sequence[str]:
        """The clusters that are watched, sorted."""
        return sorted(self._remotes)

    def owners(self) -> Mapping[str, Claim]:
        """What each cluster that is watched is registered by."""
        return {cluster: remote.claim for cluster, remote in self._remotes.items() if remote.claim is not None}

    def registered(self, cluster: str) -> Registered | None:
        """How a cluster was reached last; None for one that is not registered.

        A credential counts once it is known which API server it leads to: if that is another cluster's, it would
        vouch for that one's accounts under this id.
        """
        remote = self._remotes.get(cluster)
        return remote.reached if remote is not None else None

    def statuses(self) -> list[ClusterStatus]:
        """How every cluster is doing, sorted; for ten minutes also those that went."""
        found = {cluster: _status(remote) for cluster, remote in self._remotes.items()}
        oldest = self._now() / 1e9 - _REMEMBERED_SECONDS
        self._gone = {cluster: one for cluster, one in self._gone.items() if one.since > oldest}
        return [one for _, one in sorted({**self._gone, **found}.items())]

    async def confirm(self, cluster: str | None, seconds: float) -> None:
        """Asks the API server of a cluster, or of all, whether it is there; waits at most so long for the answers."""
        asked = [remote.watch for name, remote in self._remotes.items() if cluster in (None, name)]
        async with asyncio.TaskGroup() as tasks:
            for watch in asked:
                tasks.create_task(watch.confirm(seconds), name=f"confirm {watch.cluster}")

    async def run(self) -> None:
        """Watches the clusters until cancelled. Claims may come before, too."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for cluster, remote in self._remotes.items():
                    self._start(cluster, remote)
                await asyncio.Event().wait()
            finally:
                self._tasks = None
                for remote in self._remotes.values():
                    remote.stay()

    def register(self, source: str, claims: Iterable[Claim], refused: Iterable[Refused] = ()) -> None:
        """These are all claims that stand in that source now, and what of it cannot be used."""
        self._claims[source] = tuple(claims), tuple(refused)
        self._settle()

    def identify(self, cluster: str, uid: str) -> None:
        """A reserved cluster turns out to be that API server (the uid of its kube-system)."""
        reserved = self._reserved[cluster]
        if uid != reserved.uid:
            self._reserved[cluster] = msgspec.structs.replace(reserved, uid=uid)
            self._settle()

    def _identified(self, credential: Credential, uid: str) -> None:
        claim = credential.claim
        if claim is None:
            return
        if self._uids.get(claim, "") != uid:
            self._uids[claim] = uid
            if (remote := self._remotes.get(claim.cluster)) is not None:
                remote.uid = uid
            self._settle()
        # If that was one too many, it owns the cluster no more.
        if (remote := self._remotes.get(claim.cluster)) is not None and remote.claim == claim:
            remote.reached = Registered(credential.server, uid, claim.trust_domain)

    def _settle(self) -> None:
        """What is watched becomes what is registered."""
        claims = [claim for of_source, _ in self._claims.values() for claim in of_source]
        self._uids = {claim: self._uids[claim] for claim in claims if claim in self._uids}
        decided = decide(self._reserved, claims, self._uids)
        servers = {self._uids.get(claim, "") for claim in decided.owners.values()} - {""}
        for cluster in self._remotes.keys() - decided.owners.keys():
            self._leave(cluster, known=self._remotes[cluster].uid in servers)
        for cluster, claim in decided.owners.items():
            remote = self._remotes.get(cluster)
            if remote is None:
                self._gone.pop(cluster, None)
                remote = self._remotes[cluster] = _Remote(self._make(cluster, self._identified))
                if self._tasks is not None:
                    self._start(cluster, remote)
            remote.stay()
            if claim != remote.claim:
                remote.claim = claim
                self._use(remote, claim)
        unread = [one for _, of_source in self._claims.values() for one in of_source]
        self._tell([*unread, *decided.refused])

    def _use(self, remote: _Remote, claim: Claim) -> None:
        # What was read before stands until something else has been; whoever is no longer registered vouches for nobody.
        reached, remote.reached = remote.reached, Registered()
        try:
            server = read_kubeconfig(claim.kubeconfig, self._allowances)
        except InvalidKubeconfig as error:
            remote.watch.refuse(f"{claim.place}: {error}")
            return
        if reached.server is not None and reached.server.place == server.place:
            remote.reached = msgspec.structs.replace(reached, trust_domain=claim.trust_domain)
        remote.watch.use(Credential(server, claim), claim.trust_domain)

    def _start(self, cluster: str, remote: _Remote) -> None:
        if self._tasks is not None:
            remote.task = self._tasks.create_task(remote.watch.run(), name=f"watch {cluster}")

    def _leave(self, cluster: str, *, known: bool) -> None:
        """A cluster that is not registered any more goes: at once, or after the grace, which ends if its API server is
        ``known`` under another id, or it would count twice.
        """
        remote = self._remotes[cluster]
        if not self._grace or self._tasks is None or known:
            self._remove(cluster)
        elif remote.leaving is None:
            remote.leaving = asyncio.get_running_loop().call_later(self._grace, self._remove, cluster)
            remote.watch.refuse(f"it is not registered any more, and is withdrawn after {self._grace:g}s")

    def _remove(self, cluster: str) -> None:
        remote = self._remotes.pop(cluster)
        if remote.leaving is not None:
            remote.leaving.cancel()
        log.info("cluster removed", extra={"cluster": cluster})
        self._remember(_status(remote))
        remote.watch.remove()
        if remote.task is None:
            self._removed(cluster)
        else:
            remote.task.cancel()
            # Only then does nobody count for it any more.
            remote.task.add_done_callback(lambda _: self._ended(cluster))

    def _remember(self, last: ClusterStatus) -> None:
        self._gone[last.cluster] = ClusterStatus(
            cluster=last.cluster,
            home=False,
            state="Removed",
            reason="it is not registered any more",
            since=self._now() / 1e9,
            server=last.server,
            registered_by=last.registered_by,
            uid=last.uid,
        )
        while len(self._gone) > _MOST_REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def _ended(self, cluster: str) -> None:
        if cluster not in self._remotes:
            self._removed(cluster)

    def _tell(self, refused: Iterable[Refused]) -> None:
        faults: dict[ObjectKey, Fact] = {}
        known, self._refused = self._refused, frozenset(refused)
        for one in self._refused:
            if one not in known:
                extra = {"cluster": one.cluster, "object_name": one.place, "cause": one.cause, "cure": one.cure}
                log.warning("registration refused", extra=extra)
            key = (REGISTRATIONS, "SourceFault", "", f"{one.place}: {one.cluster}" if one.cluster else one.place)
            faults[key] = SourceFault(key[3], 1, one.cause, one.cure)
        self._facts.replace((REGISTRATIONS,), faults.items(), Cause(self._now(), "registrations", len(faults)))


def _status(remote: _Remote) -> ClusterStatus:
    place = remote.claim.place if remote.claim is not None else ""
    return msgspec.structs.replace(remote.watch.status(), registered_by=place)


class SecretClaims:
    """A sink for the Secrets that register clusters, which makes them claims: their content goes no further."""

    def __init__(self, clusters: Clusters, source: str = "Secrets") -> None:
        self._clusters = clusters
        self._source = source
        self._rows: dict[ObjectKey, object] = {}

    def get(self, key: ObjectKey) -> Any:
        """What was written last under a key."""
        return self._rows.get(key)

    def scan(self, prefix: tuple[str, ...]) -> Iterator[tuple[ObjectKey, Any]]:
        """What stands under a prefix."""
        return iter([(key, row) for key, row in self._rows.items() if key[: len(prefix)] == prefix])

    def apply(self, changes: Iterable[tuple[ObjectKey, object]], cause: object = None) -> int:
        """As Facts.apply, for RemoteSecrets and the SourceFaults of those that cannot be used."""
        rows = {**self._rows, **dict(changes)}
        return self._register({key: row for key, row in rows.items() if row is not None})

    def replace(self, prefix: tuple[str, ...], items: Iterable[tuple[ObjectKey, object]], cause: object = None) -> int:
        """As Facts.replace, for the same."""
        kept = {key: row for key, row in self._rows.items() if key[: len(prefix)] != prefix}
        return self._register({**kept, **dict(items)})

    def _register(self, rows: dict[ObjectKey, object]) -> int:
        if rows != self._rows:
            self._rows = rows
            claims: list[Claim] = []
            refused: list[Refused] = []
            for key, row in rows.items():
                if isinstance(row, RemoteSecret):
                    claims += claims_of(key, row)
                elif isinstance(row, SourceFault):
                    refused.append(Refused(row.file, "", row.cause, row.cure))
            self._clusters.register(self._source, claims, refused)
        return 0
