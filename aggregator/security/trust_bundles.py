"""Trust bundles: roots that Secrets and ConfigMaps hold, and revocations, checked so that no proxy refuses them.

What is no certificate stays behind, whatever it stands beside: roots are for everybody. A bundle whose revocations
cannot be read is no good, since without them more would be trusted than was meant.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.security.certificates import ATTACKS_ON_PARSERS

MOST_ROOTS: Final = 512
"""Certificates of a bundle; those that browsers trust are some 150."""
MOST_CRLS: Final = 64

_CRL = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


class Bundle(msgspec.Struct, frozen=True, gc=False):
    """Roots and revocations (PEM, b"" for none); the last of the roots is good until `not_after` (seconds since the
    epoch).
    """

    roots: bytes
    crl: bytes
    not_after: float


class InvalidBundle(ValueError):
    """Roots that cannot be served; the text says why, and shows nothing of them."""


def bundle(roots: bytes, crl: bytes = b"") -> Bundle:
    """The bundle in what is given. Raises InvalidBundle for whatever a proxy would refuse."""
    if not roots:
        raise InvalidBundle("it holds no roots: write them under ca.crt, or in a Secret under cacert")
    try:
        certificates = x509.load_pem_x509_certificates(roots)
        if len(certificates) > MOST_ROOTS:
            raise InvalidBundle(f"it holds {len(certificates)} roots, and {MOST_ROOTS} are the most")
        # What stands between them stays behind.
        pem = b"".join([one.public_bytes(Encoding.PEM) for one in certificates])
        not_after = max(one.not_valid_after_utc.timestamp() for one in certificates)
    except InvalidBundle:
        raise
    except ATTACKS_ON_PARSERS:
        raise InvalidBundle("its roots are not certificates in PEM") from None
    return Bundle(roots if pem == roots else pem, _revocations(crl), not_after)


def _revocations(crl: bytes) -> bytes:
    if not crl.strip():
        return b""
    found = _CRL.findall(crl)
    if not found or len(found) > MOST_CRLS:
        raise InvalidBundle(f"its revocations are {len(found)} lists in PEM, and 1 to {MOST_CRLS} can be served")
    try:
        for one in found:
            len(x509.load_pem_x509_crl(one))
    except ATTACKS_ON_PARSERS:
        raise InvalidBundle("its revocations are not lists in PEM") from None
    return b"\n".join(found) + b"\n"
