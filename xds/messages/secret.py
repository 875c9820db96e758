"""Secret of Envoy's SDS: a certificate with its key, or the roots to trust, under a name.

From keys and certificates as PEM to bytes; whether they fit was judged before. Records here never show what they hold.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from xxhash import xxh3_128_digest

from xds import protos
from xds.encoded import Encoded, Resource, encode, varint, varint_at, wrap

SECRET_TYPE: Final = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 - a type

WORKLOAD_CERTIFICATE: Final = "default"
"""The name under which a proxy asks for the certificate of its own identity."""
ROOTS: Final = "ROOTCA"
"""The name under which a proxy asks for the roots of the mesh."""
_NAME: Final = b"\x0a"  # Secret.name = 1


class KeyPair(Struct, frozen=True, gc=False):
    """A certificate chain, leaf first, and the key of its leaf, both PEM; an OCSP response about it (DER), if any."""

    name: str
    chain: bytes
    key: bytes
    ocsp_staple: bytes = b""

    def __repr__(self) -> str:
        return f"KeyPair({self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name)]


class TrustedRoots(Struct, frozen=True, gc=False):
    """Root certificates and, if any, lists of what their issuers revoked; PEM."""

    name: str
    roots: bytes
    crl: bytes = b""


def encode_key_pair(pair: KeyPair) -> Encoded:
    """A Secret with tls_certificate."""
    message = protos.envoy.extensions.transport_sockets.tls.v3.Secret(name=pair.name)
    message.tls_certificate.certificate_chain.inline_bytes = pair.chain
    message.tls_certificate.private_key.inline_bytes = pair.key
    if pair.ocsp_staple:
        message.tls_certificate.ocsp_staple.inline_bytes = pair.ocsp_staple
    return encode(message)


def encode_roots(trusted: TrustedRoots) -> Encoded:
    """A Secret with validation_context."""
    message = protos.envoy.extensions.transport_sockets.tls.v3.Secret(name=trusted.name)
    message.validation_context.trusted_ca.inline_bytes = trusted.roots
    if trusted.crl:
        message.validation_context.crl.inline_bytes = trusted.crl
    return encode(message)


def renamed(secret: Resource, name: str) -> Resource:
    """The same secret under another name: the bytes that encoding it under that name would give."""
    body = secret.body
    length, start = varint_at(body, len(_NAME))
    own = name.encode()
    data = _NAME + varint(len(own)) + own + bytes(body[start + length :])
    return wrap(SECRET_TYPE, name, Encoded(data, xxh3_128_digest(data)))
