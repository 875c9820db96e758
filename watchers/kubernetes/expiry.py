"""When credentials end: tokens by what they say themselves, certificates by theirs. Pure; seconds of Unix time.

For people and alerts, so nothing is verified here. 0 stands for one that does not end, or cannot be read.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode

import msgspec
from cryptography import x509

_LATEST = 253_402_300_799.0
"""The end of the year 9999: what is later is no date."""


class _Claims(msgspec.Struct):
    exp: float = 0.0


def token_expiry(token: str) -> float:
    """When a bearer token ends: the claim exp of a JSON Web Token (RFC 7519), which those of service accounts are."""
    try:
        end = msgspec.json.decode(token_payload(token), type=_Claims).exp
    except (ValueError, msgspec.DecodeError, RecursionError):
        return 0.0
    return end if 0.0 < end <= _LATEST else 0.0


def token_payload(token: str) -> bytes:
    """What a JSON Web Token claims, as JSON, unverified; raises ValueError if it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("no JSON Web Token")
    return urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))


def certificate_expiry(certificate: str | bytes) -> float:
    """When a certificate ends: the first one of a PEM text, or one in DER."""
    try:
        if isinstance(certificate, str):
            found = x509.load_pem_x509_certificate(certificate.encode())
        else:
            found = x509.load_der_x509_certificate(certificate)
        return found.not_valid_after_utc.timestamp()
    except (ValueError, x509.InvalidVersion):
        return 0.0
