"""Facts of Secrets of type kubernetes.io/tls: a certificate and its key, as they are stored.

Of all Secrets these alone are read. Whether the pair fits is judged elsewhere; here only the encoding is. A TLSSecret
never shows what it holds: not in its repr, and so in no log line, trace or test report.
"""

from __future__ import annotations

import binascii
from base64 import b64decode

import msgspec

from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import ObjectKey
from watchers.facts.metadata import Name, namespaced_key

TLS_TYPE = "kubernetes.io/tls"
MOST_BYTES = 1 << 20
"""No Secret is longer: the API server's own limit."""


class TLSSecret(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="TLSSecret"):
    """``tls.crt`` and ``tls.key`` of a Secret, PEM as given."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"TLSSecret({len(self.certificate)} bytes, key of {len(self.key)} bytes)"

    def __rich_repr__(self) -> list[tuple[str, int]]:
        return [("bytes", len(self.certificate))]


class SecretMeta(Name, gc=False):
    """``metadata`` of a Secret."""


class SecretObject(msgspec.Struct, gc=False):
    """A Secret on the wire. ``stringData`` is what manifests may hold instead of ``data``; it goes before it."""

    metadata: SecretMeta
    type: str | None = None
    data: dict[str, str | None] | None = None
    plain: dict[str, str | None] | None = msgspec.field(default=None, name="stringData")

    def __repr__(self) -> str:
        return f"SecretObject({self.metadata.name!r})"


def is_tls_secret(wire: SecretObject) -> bool:
    """Whether the Secret is of the one type that is read."""
    return wire.type == TLS_TYPE


def read_tls_secret(wire: SecretObject, cluster: str) -> tuple[ObjectKey, TLSSecret]:
    """Key and fact of a Secret of type kubernetes.io/tls."""
    key = namespaced_key(cluster, "TLSSecret", wire.metadata)
    return key, TLSSecret(_value(wire, "tls.crt"), _value(wire, "tls.key"))


def _value(wire: SecretObject, name: str) -> bytes:
    plain = (wire.plain or {}).get(name)
    if plain is not None:
        return plain.encode()
    encoded = (wire.data or {}).get(name)
    if not encoded:
        raise InvalidObject(
            ("data", name), "is missing", "a Secret of type kubernetes.io/tls needs tls.crt and tls.key"
        )
    try:
        return b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidObject(("data", name), "is not base64", "encode it, or write it under stringData") from None
