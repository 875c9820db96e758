"""The keys an API server signs tokens of service accounts with, as it publishes them (JSON Web Keys, RFC 7517).

In: two documents of one API server, hostile until read here: its OpenID configuration, of which the issuer and the
algorithms count and nothing else, and its key set. Out: a KeySet, which holds public keys alone. A key that cannot be
used spoils no other. Where the configuration says that the keys are (`jwks_uri`) is not read: they are asked of the API
server itself. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

LONGEST_DOCUMENT = 128 << 10
"""Bytes; a key of 4,096 bits takes 900."""
MOST_KEYS = 64
"""An API server has one, and some more while it changes from one to the next."""
RSA_BITS = range(2048, 8193)
"""How long RSA keys may be: shorter ones are not safe, and with a longer one a single look takes a millisecond."""

_OF_RSA = frozenset({"RS256", "RS384", "RS512"})
_OF_CURVES = MappingProxyType(
    {"P-256": frozenset({"ES256"}), "P-384": frozenset({"ES384"}), "P-521": frozenset({"ES512"})}
)
ALGORITHMS = _OF_RSA.union(*_OF_CURVES.values())
"""What a signature may be made with. API servers sign by RS256, or by the algorithm of a key's curve. Those of shared
secrets (HS256 and its like) and `none` are never among them: whoever knows a public key could sign.
"""

_LONGEST_ISSUER = 2048
_LONGEST_KEY_ID = 256
# Of the exponent in base64: 48 bits. With a longer one OpenSSL is asked for work that no honest key needs.
_LONGEST_EXPONENT = 8

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey

Document = TypeVar("Document")


class InvalidKeySet(ValueError):
    """Documents that tell of no issuer and keys; the message says why, and quotes nothing."""


class Key(msgspec.Struct, frozen=True):
    """A public key, and the algorithms its signatures may be of: none that is for keys of another type."""

    public: PublicKey
    algorithms: Set[str]


class KeySet(msgspec.Struct, frozen=True):
    """Who issues the tokens of a cluster, and by their ids the keys they are signed with."""

    issuer: str
    keys: Mapping[str, Key]


class _Configuration(msgspec.Struct):
    issuer: str
    algorithms: list[str] | None = msgspec.field(default=None, name="id_token_signing_alg_values_supported")


class _Keys(msgspec.Struct):
    keys: list[msgspec.Raw]


class _Key(msgspec.Struct):
    """What is read of a key: nothing that is private."""

    kty: str
    kid: str
    use: str = "sig"
    key_ops: list[str] = msgspec.field(default_factory=lambda: ["verify"])
    alg: str = ""
    n: str = ""
    e: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""


def read_key_set(configuration: bytes, keys: bytes) -> KeySet:
    """The keys that two documents of one API server tell of; raises InvalidKeySet.

    Of several keys with one id the first that can be used counts.
    """
    told = _read(configuration, _Configuration, "the OpenID configuration")
    if not 0 < len(told.issuer) <= _LONGEST_ISSUER:
        raise InvalidKeySet("the OpenID configuration names no issuer")
    signed_by = ALGORITHMS if told.algorithms is None else ALGORITHMS.intersection(told.algorithms)
    raw = _read(keys, _Keys, "the key set").keys
    if len(raw) > MOST_KEYS:
        raise InvalidKeySet(f"the key set holds more than {MOST_KEYS} keys")
    found: dict[str, Key] = {}
    for one in raw:
        try:
            wire = _read(one, _Key, "a key")
        except InvalidKeySet:
            continue
        if wire.kid not in found and (key := _key(wire, signed_by)) is not None:
            found[wire.kid] = key
    if not found:
        raise InvalidKeySet(f"the key set holds no key for signatures by {', '.join(sorted(ALGORITHMS))}")
    return KeySet(told.issuer, found)


def _read(data: bytes, wanted: type[Document], what: str) -> Document:
    if len(data) > LONGEST_DOCUMENT:
        raise InvalidKeySet(f"{what} is longer than {LONGEST_DOCUMENT} bytes")
    try:
        return msgspec.json.decode(data, type=wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidKeySet(f"{what} is none") from None


def _key(wire: _Key, signed_by: Set[str]) -> Key | None:
    """A key, None if it cannot be used here."""
    if not 0 < len(wire.kid) <= _LONGEST_KEY_ID or wire.use != "sig" or "verify" not in wire.key_ops:
        return None
    fitting = _OF_RSA if wire.kty == "RSA" else _OF_CURVES.get(wire.crv, frozenset())
    algorithms = frozenset(name for name in fitting & signed_by if wire.alg in ("", name))
    try:
        public = _rsa(wire) if wire.kty == "RSA" else _elliptic(wire)
    except (PyJWTError, ValueError, UnsupportedAlgorithm):
        return None
    return Key(public, algorithms) if public is not None and algorithms else None


def _rsa(wire: _Key) -> RSAPublicKey | None:
    if len(wire.e) > _LONGEST_EXPONENT:
        return None
    key = RSAAlgorithm.from_jwk({"kty": "RSA", "n": wire.n, "e": wire.e})
    return key if isinstance(key, RSAPublicKey) and key.key_size in RSA_BITS else None


def _elliptic(wire: _Key) -> EllipticCurvePublicKey | None:
    # That a point lies on its curve, and is as long as that, is seen to when it is loaded.
    key = ECAlgorithm.from_jwk({"kty": wire.kty, "crv": wire.crv, "x": wire.x, "y": wire.y})
    return key if isinstance(key, EllipticCurvePublicKey) else None
