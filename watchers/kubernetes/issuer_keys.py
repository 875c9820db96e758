"""The keys of one cluster over time, read from its own API server and from nowhere else.

In: credentials for that API server, one after another. Out: its KeySet, or Undecided with the cause and a cure. What
was read counts for five minutes; a token by a key that is not known has them read again, at most once in ten seconds,
however many such tokens come. Whoever waits for the same answer shares one request. While the API server does not
answer, or no longer tells, the last keys count for an hour: longer than its restarts and upgrades take, and not so long
that a key which was given up in between is good for a day. Redirects and `jwks_uri` are not followed, so that a cluster
cannot have this process ask somebody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from watchers.kubernetes.events import refusal
from watchers.kubernetes.key_sets import InvalidKeySet, KeySet, read_key_set
from watchers.kubernetes.kubeconfig import ApiServer, InvalidKubeconfig
from watchers.kubernetes.reviews import Undecided
from watchers.kubernetes.session import Broken, Sends, Session

log = logging.getLogger(__name__)

FRESH = 300.0
"""Seconds for which keys that were read count."""
HONOURED = 3600.0
"""Seconds for which they count while they cannot be read again."""
PAUSE = 10.0
"""Seconds between two attempts to read them, at least."""
CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"

# For each of the two requests: together less than a call is given to be judged in.
_SECONDS = 4.0
_CURES = {
    403: "bind ClusterRole system:service-account-issuer-discovery to whom the kubeconfig is of",
    404: "the API server publishes its keys only if its --service-account-issuer is an https URL",
}


class OpenSession(Sends, Protocol):
    """A session for a question or two."""

    async def close(self) -> None:
        """Closes every socket."""


def open_session(server: ApiServer) -> OpenSession:
    """A session that accepts key sets by their own type: an API server answers 406 to whoever does not."""
    return Session(server, accept="application/jwk-set+json, application/json")


class IssuerKeys:
    """The keys of a cluster. To be ended; then nothing counts any more.

    ``now`` is a time in seconds that only grows; ``open_session`` may raise InvalidKubeconfig.
    """

    def __init__(
        self,
        cluster: str,
        server: ApiServer,
        now: Callable[[], float],
        *,
        open_session: Callable[[ApiServer], OpenSession] = open_session,
    ) -> None:
        self._cluster = cluster
        self._server = server
        self._now = now
        self._open_session = open_session
        self._keys: KeySet | None = None
        self._read = 0.0
        self._next = float("-inf")
        self._trouble = "the keys were not read yet"
        self._reading: asyncio.Task[None] | None = None
        self._ended = False

    def use(self, server: ApiServer) -> None:
        """Use this credential, for the same API server, from the next request on."""
        if server != self._server:
            self._server = server
            if self._trouble:
                self._next = float("-inf")

    async def newest(self, key_id: str) -> KeySet:
        """The keys as they are now, as far as that is known, with the key of that id if there is one.

        Raises Undecided if nobody can say.
        """
        if not (self._holds(key_id) and self._now() < self._read + FRESH):
            if self._reading is None and self._now() >= self._next and not self._ended:
                self._reading = asyncio.create_task(self._refresh(), name=f"read the keys of {self._cluster}")
                self._reading.add_done_callback(self._done)
            if self._reading is not None:
                # Whoever asked first may go away; the others still wait.
                await asyncio.wait((self._reading,))
        honoured = self._holds(key_id) and self._now() < self._read + HONOURED
        if self._keys is None or (self._trouble and not honoured):
            raise Undecided(self._trouble)
        return self._keys

    def end(self) -> None:
        """What was read is forgotten, and whoever waits is told that nothing is known."""
        self._ended = True
        self._keys, self._trouble = None, "the cluster is none any more, or leads to another API server"
        if self._reading is not None:
            self._reading.cancel()

    def _holds(self, key_id: str) -> bool:
        return self._keys is not None and key_id in self._keys.keys

    async def _refresh(self) -> None:
        asked = self._now()
        self._next = asked + PAUSE
        try:
            keys = await self._ask()
        except Undecided as error:
            # Once for each trouble: every proxy of the cluster meets it.
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("keys cannot be read", extra={"cluster": self._cluster, "cause": self._trouble})
        else:
            self._keys, self._read, self._trouble = keys, asked, ""

    def _done(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._trouble = "the keys could not be read"
            log.error("keys cannot be read", exc_info=failure, extra={"cluster": self._cluster})

    async def _ask(self) -> KeySet:
        try:
            session = self._open_session(self._server)
        except InvalidKubeconfig as error:
            raise Undecided(str(error)) from None
        try:
            return read_key_set(await _get(session, CONFIGURATION), await _get(session, KEYS))
        except InvalidKeySet as error:
            raise Undecided(str(error)) from None
        finally:
            await session.close()


async def _get(session: OpenSession, path: str) -> bytes:
    try:
        reply = await session.send("GET", path, {}, seconds=_SECONDS)
    except Broken as error:
        raise Undecided(f"GET {path}: {error}") from None
    if reply.status != 200:
        cure = _CURES.get(reply.status, "")
        said = str(refusal(reply.status, reply.body, reply.headers))
        raise Undecided(f"GET {path}: {said}{f'; {cure}' if cure else ''}")
    return reply.body
