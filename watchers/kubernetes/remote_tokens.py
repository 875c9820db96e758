"""Whose tokens of remote clusters are, each judged by the keys of the cluster it is said to be of.

In: tokens and the ids of clusters, as callers name them; what is registered. Out: the account, and the trust domain it
is of; None for a token that is not accepted, or of a cluster that is not registered. Many clusters call their issuer
the same, so whose a token is follows from the keys of the named cluster and of no other. Keys and verified tokens of a
cluster are forgotten with its registration, and when it turns out to lead to another API server. Only digests of tokens
are kept, and no token is in a log line, an error or a repr.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from cachetools import TLRUCache

from watchers.clusters import Registered
from watchers.kubernetes.issuer_keys import IssuerKeys, OpenSession, open_session
from watchers.kubernetes.kubeconfig import ApiServer
from watchers.kubernetes.reviews import Undecided
from watchers.kubernetes.token_reviews import Account
from watchers.kubernetes.token_verification import NotAccepted, read_token, verify

log = logging.getLogger(__name__)

VERIFIED = 60.0
"""Seconds for which a token that was verified counts, if it does not end before."""

# Of one cluster; each takes some 0.5 KB.
_MOST = 5_000


class RemoteAccount(NamedTuple):
    """The owner of a token, and the trust domain of its cluster: "" for home's."""

    account: Account
    trust_domain: str


class _Judged(msgspec.Struct, frozen=True):
    """Whose a token is, and until when that need not be asked again."""

    account: Account
    until: float


class _Judge:
    """Judges tokens by the keys of one API server; ``now`` is a time that only grows, ``wall`` Unix time."""

    def __init__(
        self, keys: IssuerKeys, audiences: tuple[str, ...], now: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self.keys = keys
        self._audiences = audiences
        self._now = now
        self._wall = wall
        self._judged: TLRUCache[bytes, _Judged] = TLRUCache(_MOST, ttu=lambda _, one, __: one.until, timer=now)

    async def judge(self, text: str) -> Account:
        """Whose a token is; raises NotAccepted, Undecided."""
        token = read_token(text)
        digest = hashlib.sha256(text.encode()).digest()
        known: _Judged | None = self._judged.get(digest)
        if known is not None:
            return known.account
        keys = await self.keys.newest(token.key_id)
        moment = self._wall()
        found = verify(token, keys, self._audiences, moment)
        self._judged[digest] = _Judged(found.account, self._now() + min(VERIFIED, found.ends - moment))
        return found.account


class RemoteTokens:
    """Reviews of tokens of remote clusters. ``registered`` tells what a cluster is registered as, None if it is not;
    ``audiences`` are those a token must be made for, any of them; ``now`` is a time in seconds that only grows,
    ``wall`` Unix time, which tokens are told in.
    """

    def __init__(
        self,
        registered: Callable[[str], Registered | None],
        *,
        audiences: tuple[str, ...],
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
        open_session: Callable[[ApiServer], OpenSession] = open_session,
    ) -> None:
        self._registered = registered
        self._audiences = audiences
        self._now = now
        self._wall = wall
        self._open_session = open_session
        self._judges: dict[str, tuple[tuple[ApiServer, str], _Judge]] = {}

    async def review(self, token: str, cluster: str) -> RemoteAccount | None:
        """Whose a token of that cluster is; None if it is not accepted. Raises Undecided."""
        registered = self._registered(cluster)
        if registered is None:
            return None
        judge = self._judge(cluster, registered)
        try:
            account = await judge.judge(token)
        except NotAccepted as refusal:
            log.debug("token not accepted", extra={"cluster": cluster, "cause": str(refusal)})
            return None
        # While keys were read, the cluster may have gone, or been sent elsewhere.
        registered = self._registered(cluster)
        if registered is None:
            return None
        if self._judge(cluster, registered) is not judge:
            raise Undecided("the cluster leads to another API server now")
        return RemoteAccount(account, registered.trust_domain)

    def forget(self, cluster: str) -> None:
        """The cluster is not registered any more."""
        _, judge = self._judges.pop(cluster, (None, None))
        if judge is not None:
            judge.keys.end()

    def _judge(self, cluster: str, registered: Registered) -> _Judge:
        """Who judges tokens of a cluster: somebody else as soon as it leads to another API server. Raises Undecided."""
        server = registered.server
        if server is None:
            raise Undecided("the cluster has not been reached yet")
        place = server.place, registered.uid
        known = self._judges.get(cluster)
        if known is not None and known[0] == place:
            known[1].keys.use(server)
            return known[1]
        self.forget(cluster)
        keys = IssuerKeys(cluster, server, self._now, open_session=self._open_session)
        judge = _Judge(keys, self._audiences, self._now, self._wall)
        self._judges[cluster] = place, judge
        return judge
