"""Secrets as gateways are told them, under whatever name they ask: pairs and roots of the model as resources."""

from __future__ import annotations

from aggregator.security.certificates import Certificate
from aggregator.security.trust_bundles import Bundle
from xds.encoded import Resource, wrap
from xds.messages.secret import SECRET_TYPE, KeyPair, TrustedRoots, encode_key_pair, encode_roots


def pair_secret(name: str, certificate: Certificate, ocsp_staple: bytes = b"") -> Resource:
    """A certificate and its key."""
    return wrap(
        SECRET_TYPE, name, encode_key_pair(KeyPair(name, certificate.chain, certificate.key, ocsp_staple))
    )


def roots_secret(name: str, bundle: Bundle) -> Resource:
    """Roots that are trusted, and what they have revoked."""
    return wrap(SECRET_TYPE, name, encode_roots(TrustedRoots(name, bundle.roots, bundle.crl)))
