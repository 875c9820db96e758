"""When credentials end, as they say themselves; what cannot be read has no end, and nothing else goes wrong."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.kit.certificates import VERSION_7, Issuer, host_pair, malformed
from watchers.kubernetes.expiry import certificate_expiry, token_expiry


def part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def token(payload: object) -> str:
    return f"{part({'alg': 'RS256'})}.{part(payload)}.signature"


@pytest.mark.parametrize("end", [1, 1_800_000_000, 1_800_000_000.5])
def test_a_token_ends_when_it_says(end: float) -> None:
    assert token_expiry(token({"iss": "kubernetes", "exp": end})) == end


@pytest.mark.parametrize(
    "given",
    [
        "",
        "opaque",
        "a.b",
        "a.b.c",
        "a.\xe9.c",
        "..",
        token({}),
        token([]),
        token({"exp": "soon"}),
        token({"exp": None}),
        token({"exp": -1}),
        token({"exp": 1e300}),
        f"a.{'[' * 100_000}.c",
        f"a.{urlsafe_b64encode(b'[' * 100_000).decode()}.c",
        f"a.{urlsafe_b64encode(bytes([255, 254])).decode()}.c",
    ],
)
def test_a_token_that_does_not_say_has_no_end(given: str) -> None:
    assert token_expiry(given) == 0.0


def test_a_certificate_ends_when_it_says_in_either_form() -> None:
    chain, _ = host_pair("localhost")
    certificate = x509.load_pem_x509_certificate(chain)
    end = certificate.not_valid_after_utc.timestamp()
    assert end > datetime.now(UTC).timestamp()
    assert certificate_expiry(chain.decode()) == end
    assert certificate_expiry(certificate.public_bytes(Encoding.DER)) == end


@pytest.mark.parametrize("given", ["", "no certificate", b"", b"\x30\x80", "\xe9"])
def test_what_is_no_certificate_has_no_end(given: str | bytes) -> None:
    assert certificate_expiry(given) == 0.0


def test_a_certificate_of_a_version_nobody_knows_has_no_end() -> None:
    assert certificate_expiry(malformed(Issuer("a").certificate, VERSION_7).decode()) == 0.0
