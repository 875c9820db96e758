"""Whose a token is, judged by the keys of the API server that issues the tokens of its cluster (RFC 7519, RFC 8725).

In: a token, a KeySet, the audiences it may be made for, and the time. Out: the service account, pod and node it was
made for, and until when; or NotAccepted with the reason, which quotes nothing of the token. Everything about a token is
hostile, whoever signed it: it is bounded before it is read, and names in it are names of Kubernetes or it is refused.
Pure. That an account or a pod still exists is not known here: only the API server can say that.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec
from jwt import PyJWS, PyJWTError

from watchers.kubernetes.key_sets import ALGORITHMS, KeySet
from watchers.kubernetes.token_reviews import Account

LONGEST_TOKEN = 16 << 10
"""Letters. A projected token has some 1,000 to 2,000."""
LONGEST_HEADER = 1024
"""Letters, in base64. That of an API server has some 100."""
LEEWAY = 60.0
"""Seconds by which the clock of an API server may be ahead of this one."""

_TOKEN = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
# DNS-1123 label and subdomain, as Kubernetes has them; what can be part of a SPIFFE id as well.
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]{0,127}")
_USER = "system:serviceaccount:"

_signatures = PyJWS(algorithms=sorted(ALGORITHMS))

Part = TypeVar("Part")


class NotAccepted(Exception):
    """A token that is not accepted, for this reason."""


class Presented(msgspec.Struct, frozen=True):
    """A token as it was presented: nothing about it is proven."""

    text: str
    key_id: str
    algorithm: str

    def __repr__(self) -> str:
        return "Presented()"

    def __rich_repr__(self) -> list[Any]:
        return []


class Verified(msgspec.Struct, frozen=True):
    """Whose a token is, and when it ends, in seconds of Unix time."""

    account: Account
    ends: float


class _Header(msgspec.Struct):
    kid: str
    alg: str


class _Object(msgspec.Struct):
    name: str


class _Pod(msgspec.Struct):
    name: str
    uid: str


class _Bound(msgspec.Struct):
    """What Kubernetes itself claims."""

    namespace: str
    account: _Object = msgspec.field(name="serviceaccount")
    pod: _Pod | None = None
    node: _Object | None = None


class _Claims(msgspec.Struct):
    iss: str
    sub: str
    aud: str | list[str]
    exp: float
    bound: _Bound = msgspec.field(name="kubernetes.io")
    nbf: float = 0.0
    iat: float = 0.0


def read_token(text: str) -> Presented:
    """A token, as far as it says by which key it is to be verified; raises NotAccepted."""
    if len(text) > LONGEST_TOKEN:
        raise NotAccepted("it is too long")
    parts = _TOKEN.fullmatch(text)
    if parts is None or len(parts[1]) > LONGEST_HEADER:
        raise NotAccepted("it is no JSON Web Token of three parts")
    try:
        header = _decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), _Header)
    except ValueError:
        raise NotAccepted("its header cannot be read, or names no key") from None
    return Presented(text, header.kid, header.alg)


def verify(token: Presented, keys: KeySet, audiences: Collection[str], now: float) -> Verified:
    """Whose a token is that any of these audiences may accept; raises NotAccepted."""
    key = keys.keys.get(token.key_id)
    if key is None:
        raise NotAccepted("it is signed by no key of this cluster")
    if token.algorithm not in key.algorithms:
        raise NotAccepted("its signature is of an algorithm that is not for this key")
    try:
        payload = _signatures.decode(token.text, key.public, algorithms=[token.algorithm])
    except (PyJWTError, ValueError):
        raise NotAccepted("its signature is wrong") from None
    try:
        claims = _decode(payload, _Claims)
    except ValueError:
        raise NotAccepted("its claims are not those of a service account's token") from None
    return Verified(_account(claims, keys.issuer, audiences, now), claims.exp)


def _decode(data: bytes, wanted: type[Part]) -> Part:
    """A part of a token; raises ValueError."""
    try:
        return msgspec.json.decode(data, type=wanted)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError from None


def _account(claims: _Claims, issuer: str, audiences: Collection[str], now: float) -> Account:
    if claims.iss != issuer:
        raise NotAccepted("it is of another issuer than this cluster's")
    if not set(audiences).intersection([claims.aud] if isinstance(claims.aud, str) else claims.aud):
        raise NotAccepted("it is made for another audience")
    if claims.exp <= now:
        raise NotAccepted("it has ended")
    if max(claims.nbf, claims.iat) > now + LEEWAY:
        raise NotAccepted("it does not count yet")
    bound = claims.bound
    namespace, name = bound.namespace, bound.account.name
    if not _NAMESPACE.fullmatch(namespace) or not _is_name(name):
        raise NotAccepted("it names no service account")
    if claims.sub != f"{_USER}{namespace}:{name}":
        raise NotAccepted("its subject is another than its service account")
    pod, node = bound.pod, bound.node
    if pod is not None and not (_is_name(pod.name) and _UID.fullmatch(pod.uid)):
        raise NotAccepted("it names no pod that can be")
    if node is not None and not _is_name(node.name):
        raise NotAccepted("it names no node that can be")
    return Account(
        namespace,
        name,
        pod.name if pod is not None else "",
        node.name if node is not None else "",
        pod.uid if pod is not None else "",
    )


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None
