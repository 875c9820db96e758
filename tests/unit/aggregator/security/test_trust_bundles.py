"""Trust bundles: what roots must be, and what stays behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.security.trust_bundles import MOST_CRLS, MOST_ROOTS, InvalidBundle, bundle
from tests.kit import certificates as c

ROOT, OTHER = c.Issuer("one"), c.Issuer("two", ends=c.NOW + timedelta(days=5))
PEM = c.pem(ROOT.certificate)


def revocations(issuer: c.Issuer) -> bytes:
    """A list of one revoked certificate."""
    now = datetime.now(UTC)
    revoked = x509.RevokedCertificateBuilder().serial_number(5).revocation_date(now).build()
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(now)
        .next_update(now + timedelta(days=1))
        .add_revoked_certificate(revoked)
        .sign(issuer.key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


def refused(roots: bytes, crl: bytes = b"") -> str:
    with pytest.raises(InvalidBundle) as caught:
        bundle(roots, crl)
    assert "BEGIN" not in str(caught.value)
    return str(caught.value)


def test_roots_are_served_as_they_are_given_and_kept_once() -> None:
    assert bundle(PEM).roots is PEM


def test_a_bundle_is_good_until_the_last_of_its_roots_is_not() -> None:
    both = bundle(c.pem(OTHER.certificate, ROOT.certificate))
    assert both.not_after == ROOT.certificate.not_valid_after_utc.timestamp()


def test_whatever_is_no_certificate_stays_behind() -> None:
    found = bundle(c.host_pair("a")[1] + b"my roots\n" + PEM + c.host_pair("a")[1])
    assert found.roots == PEM


@pytest.mark.parametrize(
    "roots", [b"", b"hello", b"\x00\xff", c.host_pair("a")[1], b"-----BEGIN CERTIFICATE-----\nA\n"]
)
def test_what_is_no_certificate_is_refused(roots: bytes) -> None:
    assert refused(roots)


def test_a_broken_certificate_among_good_ones_is_refused() -> None:
    assert refused(PEM + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


def test_roots_without_end_are_refused() -> None:
    assert f"{MOST_ROOTS + 1} roots" in refused(PEM * (MOST_ROOTS + 1))


def test_revocations_of_several_issuers_are_served() -> None:
    lists = revocations(ROOT) + b"text between\n" + revocations(OTHER)
    assert bundle(PEM, lists).crl.count(b"BEGIN X509 CRL") == 2
    assert b"text between" not in bundle(PEM, lists).crl


def test_none_is_no_list_of_revocations() -> None:
    assert bundle(PEM, b"\n").crl == b""


@pytest.mark.parametrize(
    "crl",
    [
        b"hello",
        PEM,
        b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
        revocations(ROOT) * (MOST_CRLS + 1),
    ],
)
def test_roots_are_not_served_without_the_revocations_that_were_meant(crl: bytes) -> None:
    assert "revocations" in refused(PEM, crl)
