"""Who is at the other end of a connection with a client certificate, which TLS has verified already.

In: gRPC's account of the peer. Out: its identity, and until when the certificate is good. The chain, its dates and its
purpose were judged by TLS against the roots of the mesh; here is only the name. A certificate is that of a service
account and says nothing of a pod or a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cryptography import x509

from xds.server import refusals
from xds.server.authentication import Identity

_PEM: Final = "x509_pem_cert"
_CURE: Final = "connect with the certificate of a workload of the mesh"


def client_identity(peer: Mapping[str, Iterable[bytes]]) -> tuple[Identity, float]:
    """The identity of a peer, and when its certificate ends (seconds since the epoch).

    `peer` is what `auth_context()` of a call returns. As the X.509-SVID standard has it (section 2), a certificate has
    exactly one URI among its names, its SPIFFE id; other kinds of names do not count. Raises Refusal (UNAUTHENTICATED).
    """
    pem = next(iter(peer.get(_PEM, ())), None)
    if pem is None:
        raise refusals.unauthenticated(f"no client certificate: {_CURE}")
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        constraints = [one.value for one in certificate.extensions if isinstance(one.value, x509.BasicConstraints)]
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        ends = certificate.not_valid_after_utc.timestamp()
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise refusals.unauthenticated(f"the client certificate names no SPIFFE id: {_CURE}") from None
    if any(one.ca for one in constraints):
        raise refusals.unauthenticated(f"the client certificate is that of an authority: {_CURE}")
    if len(uris) != 1:
        raise refusals.unauthenticated(f"the client certificate names {len(uris)} URIs and not one: {_CURE}")
    try:
        return Identity.parse(uris[0]), ends
    except ValueError as error:
        raise refusals.unauthenticated(f"the client certificate: {error}") from None
