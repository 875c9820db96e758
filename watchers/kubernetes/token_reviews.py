"""Whose token it is, asked of the home cluster's API server (TokenReview, authentication.k8s.io/v1).

In: tokens of proxies that connect. Out: the service account, pod and node a token was made for, or that it is not
accepted. An answer counts for a minute; while the API server cannot be asked it counts for ten, and never longer than
the token lives, so that proxies that were accepted before can come back. Callers with one token ask once between them.
Only digests of tokens are kept, and no token is in a log line, an error or a repr.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable

import msgspec
from cachetools import TLRUCache

from watchers.kubernetes.expiry import token_expiry
from watchers.kubernetes.reviews import Undecided, review
from watchers.kubernetes.session import Sends

log = logging.getLogger(__name__)

AUDIENCE = "istio-ca"
"""What tokens of proxies are made for, unless told otherwise (Istio's projected tokens)."""
FRESH = 60.0
"""Seconds for which an answer counts."""
HONOURED = 600.0
"""Seconds for which an answer that was yes counts while nobody can be asked."""

_REFUSED = 10.0
_MOST = 20_000
# A DNS label and a DNS subdomain, as the API server has them: they become parts of a SPIFFE id.
_USER = re.compile(
    r"system:serviceaccount:([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?):([a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)"
)
_GROUP = "system:serviceaccounts"
_POD = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_NODE = "authentication.kubernetes.io/node-name"


class Account(msgspec.Struct, frozen=True):
    """The owner of a token: a service account, and the pod (name, uid) and node the token is bound to, "" where it does
    not say.
    """

    namespace: str
    name: str
    pod: str = ""
    node: str = ""
    pod_uid: str = ""


class _User(msgspec.Struct):
    username: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _User | None = None
    audiences: list[str] | None = None


class _Answer(msgspec.Struct, frozen=True):
    """What was answered: whose the token is (None: not accepted), when, and until when that counts at most."""

    account: Account | None
    asked: float
    until: float


class TokenReviews:
    """Reviews by one API server. ``audiences`` are those a token must be made for, any of them; ``wall`` is Unix time
    in seconds, which a token's own end is told in.
    """

    def __init__(
        self, requests: Sends, *, wall: Callable[[], float], audiences: tuple[str, ...] = (AUDIENCE,)
    ) -> None:
        self._requests = requests
        self._wall = wall
        self._audiences = audiences
        self._answers: TLRUCache[bytes, _Answer] = TLRUCache(_MOST, ttu=lambda _, answer, __: answer.until, timer=wall)
        self._asking: dict[bytes, asyncio.Task[_Answer]] = {}
        self._trouble = ""

    async def review(self, token: str) -> Account | None:
        """Whose token it is; None if it is not accepted. Raises Undecided."""
        digest = hashlib.sha256(token.encode()).digest()
        known: _Answer | None = self._answers.get(digest)
        if known is not None and self._wall() < known.asked + (_REFUSED if known.account is None else FRESH):
            return known.account
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.create_task(self._ask(token), name="review a token")
            task.add_done_callback(lambda done: self._asked(digest, done))
        try:
            # Whoever asked first may go away; the others still wait.
            return (await asyncio.shield(task)).account
        except Undecided:
            if known is not None and known.account is not None:
                return known.account
            raise

    def _asked(self, digest: bytes, task: asyncio.Task[_Answer]) -> None:
        del self._asking[digest]
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None:
            self._answers[digest] = task.result()
        elif not isinstance(failure, Undecided):
            log.error("token review failed", exc_info=failure)

    async def _ask(self, token: str) -> _Answer:
        try:
            spec = {"token": token, "audiences": self._audiences}
            account = self._account(
                await review(self._requests, "authentication.k8s.io/v1", "TokenReview", spec, _Status)
            )
        except Undecided as error:
            # Once for each trouble: every proxy of the cluster meets it.
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("tokens cannot be reviewed", extra={"cause": self._trouble})
            raise
        self._trouble = ""
        now = self._wall()
        if account is None:
            return _Answer(None, now, now + _REFUSED)
        return _Answer(account, now, min(now + HONOURED, token_expiry(token) or now + HONOURED))

    def _account(self, status: _Status) -> Account | None:
        """The account of an answer. An API server that knows no audiences names none: then nothing is accepted."""
        user = status.user
        if not status.authenticated or user is None or not set(status.audiences or ()) & set(self._audiences):
            return None
        named = _USER.fullmatch(user.username)
        if named is None or _GROUP not in (user.groups or ()):
            return None
        namespace, name = named.groups()
        extra = user.extra or {}
        return Account(
            namespace, name, _first(extra.get(_POD)), _first(extra.get(_NODE)), _first(extra.get(_POD_UID))
        )


def _first(values: list[str] | None) -> str:
    return values[0] if values else ""
