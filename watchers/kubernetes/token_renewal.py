"""Readers' tokens are renewed by themselves: a new one is asked for with the old, and written to its Secret at home.

In: what the clusters are registered by. Out: TokenRequests to remotes that grant them to their reader (and to nobody
else: `watchers.reader_role`), patches of Secrets of home. What was written comes back as any changed registration
does, and takes over as one does. Runs while this process leads; `warn` runs always, and is all there is for tokens
that nobody may renew. No token is ever in a log line, an error or a repr.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from watchers.kubernetes.events import refusal
from watchers.kubernetes.expiry import token_payload
from watchers.kubernetes.kubeconfig import Allowances, ApiServer, InvalidKubeconfig, read_kubeconfig, with_token
from watchers.kubernetes.session import Broken, Method, Reply, Sends, Session
from watchers.registration import Claim, Origin
from watchers.renewals import ExpiryWarnings, Renewals, TokenLife, read_life

log = logging.getLogger(__name__)

SHORTEST = 600.0
"""Seconds; API servers grant no less."""
MERGE_PATCH = "application/merge-patch+json"

_TICK = 15.0
_WARN_TICK = 60.0
_SECONDS = 10.0


class OpenSession(Protocol):
    """Makes a session; may raise InvalidKubeconfig."""

    def __call__(self, server: ApiServer) -> ClosableSends:
        """The session, to be closed."""
        ...


class ClosableSends(Sends, Protocol):
    """A session that can be ended."""

    async def close(self) -> None:
        """Closes every socket."""


class _Refused(Exception):
    """The renewal came to nothing; the message says where and why."""

    def __init__(self, message: str, *, forbidden: bool = False) -> None:
        super().__init__(message)
        self.forbidden = forbidden


class _TokenStatus(msgspec.Struct):
    token: str


class _TokenAnswer(msgspec.Struct):
    status: _TokenStatus


class _Meta(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion")


class _Secret(msgspec.Struct):
    metadata: _Meta
    data: dict[str, str] | None = None


class ReaderToken(NamedTuple):
    """What a cluster is registered by, where that leads, and the life of its token."""

    claim: Claim
    server: ApiServer
    life: TokenLife


class Lives:
    """The tokens that clusters are read with, as far as they say when they end."""

    def __init__(self, owners: Callable[[], Mapping[str, Claim]], allowances: Allowances) -> None:
        self._owners = owners
        self._allowances = allowances
        self._read_of: dict[str, tuple[Claim, ReaderToken | None]] = {}

    def now(self) -> dict[str, ReaderToken]:
        """Those of now, by cluster."""
        before = self._read_of
        self._read_of = {
            cluster: known if (known := before.get(cluster)) and known[0] == claim else (claim, self._read(claim))
            for cluster, claim in self._owners().items()
        }
        return {cluster: token for cluster, (_, token) in self._read_of.items() if token is not None}

    def _read(self, claim: Claim) -> ReaderToken | None:
        try:
            server = read_kubeconfig(claim.kubeconfig, self._allowances)
            life = read_life(token_payload(server.token))
        except (InvalidKubeconfig, ValueError):
            return None
        return None if life is None else ReaderToken(claim, server, life)


class TokenRenewal:
    """Renews tokens that Secrets of home hold; ``home`` is its API server, ``leads`` is asked before every write.

    ``wall`` is Unix time, ``chance`` gives numbers from 0 to 1.
    """

    def __init__(
        self,
        home: Sends,
        lives: Lives,
        *,
        leads: Callable[[], bool],
        wall: Callable[[], float],
        chance: Callable[[], float],
        open_session: OpenSession = Session,
    ) -> None:
        self._home = home
        self._lives = lives
        self._leads = leads
        self._wall = wall
        self._open_session = open_session
        self._renewals = Renewals(chance)
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Renews what is due, until cancelled."""
        while True:
            await self.renew_due()
            await asyncio.sleep(_TICK)

    async def renew_due(self) -> None:
        """Renews what is due now, one after the other."""
        found = {cluster: one for cluster, one in self._lives.now().items() if one.claim.origin is Origin.SECRET}
        self._told = {cluster: told for cluster, told in self._told.items() if cluster in found}
        lives = {cluster: one.life for cluster, one in found.items()}
        for cluster in self._renewals.due(lives, self._wall()):
            claim, server, life = found[cluster]
            forbidden = False
            try:
                await self._renew(claim, server, life)
            except _Refused as error:
                forbidden = error.forbidden
                self._tell(cluster, str(error))
            else:
                self._told.pop(cluster, None)
                log.info("token renewed", extra={"cluster": cluster, "object_name": claim.place})
            self._renewals.tried(cluster, life, self._wall(), forbidden=forbidden)

    def _tell(self, cluster: str, cause: str) -> None:
        """Says once why, however often it is tried."""
        if self._told.get(cluster) != cause:
            self._told[cluster] = cause
            log.warning("token not renewed", extra={"cluster": cluster, "cause": cause})

    async def _renew(self, claim: Claim, server: ApiServer, life: TokenLife) -> None:
        """First it is seen whether the Secret is still as it was read: no token is made for nothing."""
        version = await self._version(claim)
        token = await self._new_token(server, life)
        try:
            kubeconfig = with_token(claim.kubeconfig, token)
        except InvalidKubeconfig as error:
            raise _Refused(f"{claim.place}: {error}") from None
        if not self._leads():
            raise _Refused("this process leads no more")
        change = {
            "metadata": {"resourceVersion": version},
            "data": {claim.cluster: b64encode(kubeconfig).decode()},
        }
        query = {"fieldManager": "isthmus"}
        _check(await _send(self._home, "PATCH", _path(claim), change, query, MERGE_PATCH), f"patch {claim.place}")

    async def _version(self, claim: Claim) -> str:
        reply = await _send(self._home, "GET", _path(claim))
        _check(reply, f"get {claim.place}")
        try:
            secret = msgspec.json.decode(reply.body, type=_Secret)
            held = b64decode((secret.data or {}).get(claim.cluster, ""))
        except (ValueError, msgspec.DecodeError, RecursionError):
            raise _Refused(f"get {claim.place}: what answers is no Secret") from None
        if held != claim.kubeconfig:
            raise _Refused(f"{claim.place} has changed meanwhile")
        return secret.metadata.version

    async def _new_token(self, server: ApiServer, life: TokenLife) -> str:
        spec: dict[str, object] = {"expirationSeconds": round(max(SHORTEST, life.length))}
        if life.audiences:
            spec["audiences"] = [*life.audiences]
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{life.namespace}/serviceaccounts/{life.account}/token"
        what = f"create a token of ServiceAccount {life.namespace}/{life.account}"
        try:
            session = self._open_session(server)
        except InvalidKubeconfig as error:
            raise _Refused(str(error)) from None
        try:
            reply = await _send(session, "POST", path, request)
        finally:
            await session.close()
        _check(reply, what)
        try:
            return msgspec.json.decode(reply.body, type=_TokenAnswer).status.token
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _Refused(f"{what}: what answers gives no token") from None


async def warn(lives: Lives, wall: Callable[[], float]) -> None:
    """Warns of tokens that are about to end, until cancelled."""
    warnings = ExpiryWarnings()
    while True:
        found = lives.now()
        for cluster, left in warnings.due({cluster: one.life for cluster, one in found.items()}, wall()):
            extra = {"cluster": cluster, "object_name": found[cluster].claim.place, "hours": round(left / 3600)}
            log.warning("credential ends" if left else "credential has ended", extra=extra)
        await asyncio.sleep(_WARN_TICK)


async def _send(
    session: Sends,
    method: Method,
    path: str,
    body: object = None,
    query: Mapping[str, str] | None = None,
    content_type: str = "application/json",
) -> Reply:
    data = b"" if body is None else msgspec.json.encode(body)
    try:
        return await session.send(method, path, query or {}, data, content_type=content_type, seconds=_SECONDS)
    except Broken as error:
        raise _Refused(str(error)) from None


def _check(reply: Reply, what: str) -> None:
    if reply.status not in (200, 201):
        raise _Refused(f"{what}: {refusal(reply.status, reply.body)}", forbidden=reply.status == 403)


def _path(claim: Claim) -> str:
    return f"/api/v1/namespaces/{claim.namespace}/secrets/{claim.name}"
