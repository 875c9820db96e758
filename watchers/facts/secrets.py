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

_LINE_ENDS = str.maketrans("", "", "\r\n")


class TLSSecret(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="TLSSecret"):
    """``tls.crt`` and ``tls.key`` of a Secret, PEM as given."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"TLSSecret({len(self.certificate)} bytes, key of {len(self.key)} bytes)"

    def __rich_repr__(self) -> list[tuple[str, int]]:
        return [("certificate", len(self.certificate)), ("key", len(self.key))]


class SecretMeta(Name, gc=False):
    """``metadata`` of a Secret."""


class SecretEntries(msgspec.Struct, gc=False):
    """``data`` or ``stringData`` of a Secret: the two entries that are read."""

    certificate: str | None = msgspec.field(default=None, name="tls.crt")
    key: str | None = msgspec.field(default=None, name="tls.key")

    def __repr__(self) -> str:
        return "SecretEntries()"

    def __rich_repr__(self) -> list[tuple[str, int]]:
        return []


class SecretObject(msgspec.Struct, gc=False):
    """A Secret on the wire. ``stringData`` is what manifests may hold instead of ``data``; it goes before it."""

    metadata: SecretMeta
    type: str | None = None
    data: SecretEntries | None = None
    plain: SecretEntries | None = msgspec.field(default=None, name="stringData")


def is_tls_secret(wire: SecretObject) -> bool:
    """Whether the Secret is of the one type that is read."""
    return wire.type == TLS_TYPE


def read_tls_secret(wire: SecretObject, cluster: str) -> tuple[ObjectKey, TLSSecret]:
    """Key and fact of a Secret of type kubernetes.io/tls."""
    data, plain = wire.data or SecretEntries(), wire.plain or SecretEntries()
    return namespaced_key(cluster, "TLSSecret", wire.metadata), TLSSecret(
        _value(data.certificate, plain.certificate, "tls.crt"), _value(data.key, plain.key, "tls.key")
    )


def _value(encoded: str | None, plain: str | None, name: str) -> bytes:
    """The bytes of one entry; none is empty bytes, which are no certificate and no key."""
    if plain is not None:
        return _bounded(plain.encode(errors="replace"), "stringData", name)
    if encoded is None:
        raise InvalidObject(
            ("data", name), "is missing", "a Secret of type kubernetes.io/tls needs tls.crt and tls.key"
        )
    try:
        # Lines may be broken, as in a manifest written by hand; the API server reads over that too.
        value = b64decode(encoded.translate(_LINE_ENDS), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidObject(("data", name), "is not base64", "encode it, or write it under stringData") from None
    return _bounded(value, "data", name)


def _bounded(value: bytes, field: str, name: str) -> bytes:
    if len(value) > MOST_BYTES:
        raise InvalidObject((field, name), f"is longer than {MOST_BYTES:,} bytes", "no Secret can be")
    return value
