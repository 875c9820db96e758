"""Facts of Secrets that hold certificates, as they are stored: a pair, and roots to trust.

Secrets of type kubernetes.io/tls become TLSSecrets, wherever they are. Of others nothing is read but those that were
asked for by name, and what lies in a directory anyhow: NamedSecrets. Whether a pair fits is judged elsewhere; here only
the encoding is. Neither ever shows what it holds: not in its repr, and so in no log line, trace or test report.
"""

from __future__ import annotations

import binascii
from base64 import b64decode

import msgspec

from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import ObjectKey, Shared
from watchers.facts.metadata import Name, namespaced_key

TLS_TYPE = "kubernetes.io/tls"
MOST_BYTES = 1 << 20
"""No Secret is longer: the API server's own limit."""

_LINE_ENDS = str.maketrans("", "", "\r\n")
# Issuers write the same roots into every Secret.
_roots: Shared[bytes, bytes] = Shared(1_024)


class TLSSecret(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="TLSSecret"):
    """``tls.crt`` and ``tls.key`` of a Secret, PEM as given; ``roots`` and ``crl`` as of a NamedSecret, and
    ``ocsp_staple`` (DER), b"" where there are none.
    """

    certificate: bytes
    key: bytes
    roots: bytes = b""
    crl: bytes = b""
    ocsp_staple: bytes = b""

    def __repr__(self) -> str:
        return f"TLSSecret({len(self.certificate)} bytes, key of {len(self.key)} bytes)"

    def __rich_repr__(self) -> list[tuple[str, int]]:
        return [("certificate", len(self.certificate)), ("key", len(self.key))]


class NamedSecret(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="NamedSecret"):
    """What a Secret of any type holds of use, each b"" where it does not.

    A pair stands under ``cert`` and ``key`` or, where these two are not there, under ``tls.crt`` and ``tls.key``, which
    ``generic`` tells; roots under ``cacert`` (revocations under ``crl``), else under ``ca.crt`` (``ca.crl``). ``users``
    are the lines of an htpasswd file, under ``auth``.
    """

    certificate: bytes = b""
    key: bytes = b""
    roots: bytes = b""
    crl: bytes = b""
    ocsp_staple: bytes = b""
    generic: bool = False
    users: bytes = b""

    def __repr__(self) -> str:
        return f"NamedSecret({len(self.certificate)} bytes, key of {len(self.key)} bytes)"

    def __rich_repr__(self) -> list[tuple[str, int]]:
        return [("certificate", len(self.certificate)), ("key", len(self.key))]


class SecretMeta(Name, gc=False):
    """``metadata`` of a Secret."""


class SecretEntries(msgspec.Struct, gc=False):
    """``data`` or ``stringData`` of a Secret: the entries that are read."""

    certificate: str | None = msgspec.field(default=None, name="tls.crt")
    key: str | None = msgspec.field(default=None, name="tls.key")
    ocsp_staple: str | None = msgspec.field(default=None, name="tls.ocsp-staple")
    ca: str | None = msgspec.field(default=None, name="ca.crt")
    ca_crl: str | None = msgspec.field(default=None, name="ca.crl")
    generic_certificate: str | None = msgspec.field(default=None, name="cert")
    generic_key: str | None = msgspec.field(default=None, name="key")
    generic_ca: str | None = msgspec.field(default=None, name="cacert")
    generic_crl: str | None = msgspec.field(default=None, name="crl")
    users: str | None = msgspec.field(default=None, name="auth")

    def __repr__(self) -> str:
        return "SecretEntries()"

    def __rich_repr__(self) -> list[tuple[str, int]]:
        return []


_FIELDS = {one.name: one.encode_name for one in msgspec.structs.fields(SecretEntries)}


class SecretObject(msgspec.Struct, gc=False):
    """A Secret on the wire. ``stringData`` is what manifests may hold instead of ``data``; it goes before it."""

    metadata: SecretMeta
    type: str | None = None
    data: SecretEntries | None = None
    plain: SecretEntries | None = msgspec.field(default=None, name="stringData")


def is_tls_secret(wire: SecretObject) -> bool:
    """Whether the Secret is of type kubernetes.io/tls."""
    return wire.type == TLS_TYPE


def holds_credential(wire: SecretObject) -> bool:
    """Whether the Secret has all the entries of a pair, or roots, or users."""
    has = _Values(wire).has
    return any(
        (
            has("generic_certificate") and has("generic_key"),
            has("certificate") and has("key"),
            has("generic_ca"),
            has("ca"),
            has("users"),
        )
    )


def read_tls_secret(wire: SecretObject, cluster: str) -> tuple[ObjectKey, TLSSecret]:
    """Key and fact of a Secret of type kubernetes.io/tls."""
    values = _Values(wire)
    for entry in ("certificate", "key"):
        if not values.has(entry):
            raise InvalidObject(
                ("data", _FIELDS[entry]), "is missing", "a Secret of type kubernetes.io/tls needs tls.crt and tls.key"
            )
    return namespaced_key(cluster, "TLSSecret", wire.metadata), TLSSecret(
        values.get("certificate"), values.get("key"), *values.roots(), values.get("ocsp_staple")
    )


def read_named_secret(wire: SecretObject, cluster: str) -> tuple[ObjectKey, NamedSecret]:
    """Key and fact of a Secret of any type."""
    values = _Values(wire)
    key = namespaced_key(cluster, "NamedSecret", wire.metadata)
    certificate, private = values.get("generic_certificate"), values.get("generic_key")
    if certificate and private:
        return key, NamedSecret(certificate, private, *values.roots(), generic=True, users=values.get("users"))
    return key, NamedSecret(
        values.get("certificate"),
        values.get("key"),
        *values.roots(),
        values.get("ocsp_staple"),
        users=values.get("users"),
    )


class _Values:
    """The entries of a Secret, decoded one by one."""

    def __init__(self, wire: SecretObject) -> None:
        self._data, self._plain = wire.data or SecretEntries(), wire.plain or SecretEntries()

    def has(self, entry: str) -> bool:
        return getattr(self._plain, entry) is not None or getattr(self._data, entry) is not None

    def get(self, entry: str) -> bytes:
        """The bytes of one entry; none is empty bytes, which are no certificate and no key."""
        plain, encoded, name = getattr(self._plain, entry), getattr(self._data, entry), _FIELDS[entry]
        if plain is not None:
            return _bounded(plain.encode(errors="replace"), "stringData", name)
        if encoded is None:
            return b""
        try:
            # Lines may be broken, as in a manifest written by hand; the API server reads over that too.
            value = b64decode(encoded.translate(_LINE_ENDS), validate=True)
        except (binascii.Error, ValueError):
            raise InvalidObject(("data", name), "is not base64", "encode it, or write it under stringData") from None
        return _bounded(value, "data", name)

    def roots(self) -> tuple[bytes, bytes]:
        """Roots and the revocations that belong to them."""
        roots, crl = self.get("generic_ca"), "generic_crl"
        if not roots:
            roots, crl = self.get("ca"), "ca_crl"
        return shared_roots(roots), self.get(crl) if roots else b""


def shared_roots(roots: bytes) -> bytes:
    """Roots, so that equal ones are kept once."""
    return (_roots.get(roots) or _roots.add(roots, roots)) if roots else b""


def _bounded(value: bytes, field: str, name: str) -> bytes:
    if len(value) > MOST_BYTES:
        raise InvalidObject((field, name), f"is longer than {MOST_BYTES:,} bytes", "no Secret can be")
    return value
