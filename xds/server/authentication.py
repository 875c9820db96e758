"""Who is at the other end of a call, settled before a single message of it is decoded.

In: the call's metadata (`authorization: Bearer <token>`, `clusterid`) and a TokenReviewer, which the embedding
implements by Kubernetes' TokenReview and by the keys of other clusters, or TokenFile here, for places without one. Out:
a Caller. It does not say what the caller may do: that is access.py. Tokens appear in no message, log line or
representation.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakValueDictionary

import grpc
import msgspec
from cachetools import LRUCache

from xds.server import refusals
from xds.server.rates import MOST_KEYS, Rate, Rates, host_of
from xds.server.refusals import Refusal

logger = logging.getLogger(__name__)

# SPIFFE-ID section 2.1 (trust domain); Kubernetes' DNS-1123 label (namespace) and subdomain (service account).
_SPIFFE: Final = re.compile(
    r"spiffe://(?P<trust_domain>[a-z0-9._-]{1,255})"
    r"/ns/(?P<namespace>[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)"
    r"/sa/(?P<service_account>[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)"
)
# How often the log says of a cluster that its tokens cannot be reviewed: every call of its proxies meets it.
_LINES: Final = Rate(per_second=0.1, burst=5)
# A projected token is some 1 to 2 KB; whatever is much longer need not be sent to an API server to be refused.
LONGEST_TOKEN: Final = 16 * 1024
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class Identity(msgspec.Struct, frozen=True, gc=False):
    """A Kubernetes service account of one trust domain, as Istio's meshes name it:
    `spiffe://<trust domain>/ns/<namespace>/sa/<service account>`.

    `pod`, `pod_uid` and `node` say what the token is bound to, "" when the reviewer could not tell, and `cluster` which
    cluster's it is, "" for home. They are part of what was proven, not of the SPIFFE id.
    """

    trust_domain: str
    namespace: str
    service_account: str
    pod: str = ""
    node: str = ""
    pod_uid: str = ""
    cluster: str = ""

    def __str__(self) -> str:
        return f"spiffe://{self.trust_domain}/ns/{self.namespace}/sa/{self.service_account}"

    @property
    def account(self) -> str:
        """`<namespace>/<service account>`, for messages."""
        return f"{self.namespace}/{self.service_account}"

    @classmethod
    def parse(cls, uri: str, pod: str = "", node: str = "") -> Identity:
        """The identity a SPIFFE URI names; raises ValueError for every other form of SPIFFE id or URI."""
        match = _SPIFFE.fullmatch(uri)
        if match is None:
            raise ValueError(
                f"{uri[:300]!r} is not of the form spiffe://<trust domain>/ns/<namespace>/sa/<service account>"
            )
        return cls(**match.groupdict(), pod=pod, node=node)


class Caller(msgspec.Struct, frozen=True):
    """One end of a call before it said anything: `peer` is its address as gRPC writes it, `cluster` the cluster it says
    it is of ("" where it says nothing), `identity` None on the plaintext port only.
    """

    peer: str
    identity: Identity | None = None
    cluster: str = ""

    @property
    def source(self) -> str:
        """Whose calls are counted together: those of a pod, else those of an account from one host."""
        identity = self.identity
        if identity is None:
            return host_of(self.peer)
        return f"{identity.cluster}/{identity.account}/{identity.pod or host_of(self.peer)}"


class TokenReviewer(Protocol):
    """What the server needs to have tokens judged."""

    async def review(self, token: str, cluster: str) -> Identity | None:
        """The identity behind a token that is valid for this server in `cluster` ("": the home cluster), else None.

        Raises when it cannot tell, such as when the API server is out of reach: that is not a refusal.
        """


class Proof(Protocol):
    """How a caller has proven who it is, to be asked again while its stream is open."""

    async def refusal(self) -> Refusal | None:
        """Why it does not hold any more; None as long as it does, or nobody can tell."""

    @property
    def ends(self) -> float:
        """When it ends by itself, in seconds since the epoch; infinite where it does not say."""


class Authenticator:
    """Judges the metadata of calls. At most `concurrency` reviews of a cluster run at once, so that a flood of calls
    with random tokens cannot become a flood of requests to an API server, and one that does not answer holds up no
    other's; each may take `timeout` seconds. From an address whose calls were refused more often than `refused` allows,
    no token is reviewed until that is over but those that were accepted before: pods may share the address of their
    node.
    """

    def __init__(
        self,
        reviewer: TokenReviewer,
        *,
        timeout: float = 10.0,
        concurrency: int = 64,
        refused: Rate = Rate(per_second=5.0, burst=100),  # noqa: B008 - frozen
    ) -> None:
        self._reviewer = reviewer
        self._timeout = timeout
        self._concurrency = concurrency
        # Of the clusters that calls name now: whoever holds or awaits a turn keeps them.
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._refused = Rates(refused)
        self._accepted: LRUCache[bytes, None] = LRUCache(MOST_KEYS)
        self._told = Rates(_LINES)

    async def authenticate(self, peer: str, metadata: Iterable[tuple[str, str | bytes]]) -> tuple[Caller, TokenProof]:
        """The caller and its proof, a token. Raises Refusal: UNAUTHENTICATED, UNAVAILABLE when nobody could judge,
        RESOURCE_EXHAUSTED when too much of that address was refused.
        """
        address = host_of(peer)
        try:
            token, cluster = _credentials(metadata)
            digest = _token_digest(token)
            if self._refused.spent(address) and digest not in self._accepted:
                raise refusals.exhausted("too many calls of this address had no token that is accepted: wait a while")
            identity = await self.review(token, cluster, peer)
        except Refusal as refusal:
            if refusal.code is grpc.StatusCode.UNAUTHENTICATED:
                self._refused.take(address)
            raise
        self._accepted[digest] = None
        return Caller(peer=peer, identity=identity, cluster=cluster), TokenProof(self, token, cluster, identity, peer)

    async def review(self, token: str, cluster: str, peer: str) -> Identity:
        """The identity behind a token. Raises Refusal: UNAUTHENTICATED, or UNAVAILABLE when nobody could judge."""
        try:
            async with asyncio.timeout(self._timeout), self._turns_of(cluster):
                identity = await self._reviewer.review(token, cluster)
        except Exception as failure:  # noqa: BLE001 - whatever the trouble is, it says nothing about the token.
            # Only the type: the text of a failed request may quote the request.
            if self._told.take((cluster, type(failure))):
                logger.warning("token review failed", extra={"peer": peer, "cause": type(failure).__name__})
            raise refusals.unavailable("the token could not be reviewed now; try again") from None
        if identity is None:
            raise refusals.unauthenticated(
                f"the token is not accepted for cluster {cluster!r}: it may have expired or be meant for another "
                "audience or cluster; mount a service account token of this cluster and audience"
            )
        return identity

    def _turns_of(self, cluster: str) -> asyncio.Semaphore:
        turns = self._turns.get(cluster)
        if turns is None:
            turns = self._turns[cluster] = asyncio.Semaphore(self._concurrency)
        return turns


class TokenProof:
    """A Proof: the token a call came with. Nothing shows it."""

    ends = math.inf
    """A token is asked for again and again, and is refused once it has ended."""

    def __init__(self, authenticator: Authenticator, token: str, cluster: str, identity: Identity, peer: str) -> None:
        self._authenticator = authenticator
        self._token = token
        self._cluster = cluster
        self._identity = identity
        self._peer = peer

    def __repr__(self) -> str:
        return f"TokenProof({self._identity})"

    async def refusal(self) -> Refusal | None:
        """See Proof."""
        try:
            identity = await self._authenticator.review(self._token, self._cluster, self._peer)
        except Refusal as refusal:
            return None if refusal.code is grpc.StatusCode.UNAVAILABLE else refusal
        if identity != self._identity:
            return refusals.unauthenticated("the token is somebody else's by now: connect again")
        return None


class CertificateProof:
    """A Proof: the certificate a connection was made with, good until `ends`. TLS has looked at it once and for all."""

    def __init__(self, ends: float, now: Callable[[], float] = time.time) -> None:
        self.ends = ends
        self._now = now

    async def refusal(self) -> Refusal | None:
        """See Proof."""
        if self._now() < self.ends:
            return None
        return refusals.unauthenticated("the client certificate has expired: connect with the renewed one")


def _credentials(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[str, str]:
    """(token, cluster) of a call. gRPC hands keys over in lower case; values of keys that end in -bin are bytes."""
    authorizations = []
    cluster = ""
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str):
            authorizations.append(value)
        elif key == "clusterid" and isinstance(value, str):
            cluster = value
    if not authorizations:
        raise refusals.unauthenticated("no token: send metadata 'authorization: Bearer <service account token>'")
    if len(authorizations) > 1:
        raise refusals.unauthenticated("more than one authorization header: send one")
    scheme, _, token = authorizations[0].partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise refusals.unauthenticated("the authorization header is not of the form 'Bearer <service account token>'")
    if len(token) > LONGEST_TOKEN:
        raise refusals.unauthenticated(f"the token is longer than {LONGEST_TOKEN} bytes")
    if not _TOKEN.fullmatch(token):
        # It goes on into a request to an API server, which need not be asked.
        raise refusals.unauthenticated("the token holds characters that no token has: send it as it was issued")
    if len(cluster) > 253:
        raise refusals.unauthenticated("the clusterid header is longer than 253 characters")
    return token, cluster


class TokenFileError(Exception):
    """A token file that cannot be used; the message names file, field, cause and cure, and no token."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    identity: str
    pod: str = ""
    node: str = ""
    cluster: str = ""


class TokenFile:
    """A TokenReviewer over a JSON or YAML file, where no API server can review tokens: demos, tests, directories.

    The file maps each token to `{identity: spiffe://..., pod: ..., node: ..., cluster: ...}`; pod and node may be left
    out, and cluster for the tokens of home. It is read again when it changes; a changed file that cannot be used leaves
    the last good content in force and is logged once. Only digests of tokens are kept, and a look-up by digest takes
    equally long however much of a token is right.
    """

    def __init__(self, path: Path) -> None:
        """Raises TokenFileError."""
        self._path = path
        self._identities = _read_tokens(path)
        self._stamp = _stamp(path)

    async def review(self, token: str, cluster: str) -> Identity | None:
        """The identity of a token in the file; the file holds for every cluster."""
        self._refresh()
        return self._identities.get(_token_digest(token))

    def _refresh(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._identities = _read_tokens(self._path)
        except TokenFileError as error:
            logger.error("token file not usable, keeping its last good content", extra={"cause": str(error)})


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _token_digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _read_tokens(path: Path) -> dict[bytes, Identity]:
    try:
        document = msgspec.yaml.decode(path.read_bytes())  # JSON is YAML.
    except OSError as error:
        raise TokenFileError(f"token file {path}: {error.strerror}; give a readable file") from None
    except msgspec.DecodeError:
        # The parser's message quotes the line, and so perhaps a token.
        raise TokenFileError(f"token file {path}: neither JSON nor YAML; write a map of tokens") from None
    if not isinstance(document, dict):
        raise TokenFileError(
            f"token file {path}: the top level is no map; write {{<token>: {{identity: spiffe://...}}}}"
        )
    identities = {}
    for number, (token, value) in enumerate(document.items(), start=1):
        where = f"token file {path}: entry {number}"
        if not isinstance(token, str) or not token:
            raise TokenFileError(f"{where}: the token is no text; quote it")
        try:
            entry = msgspec.convert(value, _Entry)
            identity = Identity.parse(entry.identity, pod=entry.pod, node=entry.node)
            identities[_token_digest(token)] = msgspec.structs.replace(identity, cluster=entry.cluster)
        except msgspec.ValidationError as error:
            raise TokenFileError(f"{where}: {error}; known fields are identity, pod, node, cluster") from None
        except ValueError as error:
            raise TokenFileError(f"{where}: field identity: {error}") from None
    return identities
