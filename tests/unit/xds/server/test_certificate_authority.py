"""What the authority signs: names, usages, lifetimes, chains."""

from __future__ import annotations

import ssl
import time
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from tests.kit.certificates import NOW, ORDERS, Issuer, p256, pem, rsa_key
from xds.server.authentication import Identity
from xds.server.certificate_authority import CertificateAuthority, CertificateAuthorityError

IDENTITY = Identity.parse(ORDERS)
DAY = 24 * 3600


def now() -> datetime:
    return NOW


def self_signed() -> CertificateAuthority:
    return CertificateAuthority.self_signed("cluster.local", now=now)


def two_tier(**own: object) -> CertificateAuthority:
    root = Issuer("root")
    middle = Issuer("middle", root)
    issuing = Issuer("issuing", middle, **own)  # type: ignore[arg-type]
    assert isinstance(issuing.key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    return CertificateAuthority(
        issuing.key,
        [issuing.certificate, middle.certificate],
        [root.certificate, Issuer("next root").certificate],
        now=now,
    )


def leaf(authority: CertificateAuthority, seconds: int = 0) -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority.issue(p256().public_key(), IDENTITY, seconds)[0].encode())


def lifetime(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - NOW


def test_a_leaf_names_the_identity_and_nothing_else() -> None:
    certificate = leaf(self_signed())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert list(names.value) == [x509.UniformResourceIdentifier(ORDERS)]
    assert names.critical
    assert list(certificate.subject) == []


def test_a_leaf_serves_both_ends_of_a_connection_and_signs_nothing() -> None:
    extensions = leaf(self_signed()).extensions
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert usage.key_encipherment
    assert not usage.key_cert_sign
    assert set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_leaf_carries_the_key_of_the_request() -> None:
    key = rsa_key(3482).public_key()
    (text, _) = self_signed().issue(key, IDENTITY)
    assert x509.load_pem_x509_certificate(text.encode()).public_key() == key


def test_serial_numbers_are_random_and_long() -> None:
    authority = self_signed()
    serials = [leaf(authority).serial_number for _ in range(16)]
    assert len(set(serials)) == 16
    assert max(serial.bit_length() for serial in serials) > 128


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, DAY), (-5, DAY), (3600, 3600), (90 * DAY, 90 * DAY), (91 * DAY, 90 * DAY), (2**63 - 1, 90 * DAY)],
)
def test_a_leaf_lives_as_long_as_asked_within_bounds(seconds: int, expected: int) -> None:
    assert lifetime(leaf(self_signed(), seconds)) == timedelta(seconds=expected)


def test_a_leaf_is_valid_for_clocks_two_minutes_behind() -> None:
    assert leaf(self_signed()).not_valid_before_utc == NOW - timedelta(minutes=2)


def test_a_leaf_never_outlives_its_issuer() -> None:
    assert lifetime(leaf(two_tier(ends=NOW + timedelta(hours=1)))) == timedelta(hours=1)


def test_a_leaf_never_outlives_any_certificate_above_it() -> None:
    root = Issuer("root", ends=NOW + timedelta(hours=2))
    issuing = Issuer("issuing", root)
    assert isinstance(issuing.key, ec.EllipticCurvePrivateKey)
    authority = CertificateAuthority(issuing.key, [issuing.certificate], [root.certificate], now=now)
    assert lifetime(leaf(authority)) == timedelta(hours=2)


def test_an_expired_authority_signs_no_more() -> None:
    with pytest.raises(CertificateAuthorityError, match="replace its certificates"):
        leaf(two_tier(ends=NOW))


def test_the_chain_is_leaf_intermediates_and_all_roots_last() -> None:
    authority = two_tier()
    chain = authority.issue(p256().public_key(), IDENTITY)
    assert list(chain[1:]) == [
        pem(authority.path[0]).decode(),
        pem(authority.path[1]).decode(),
        pem(*authority.roots).decode(),
    ]


def test_the_chain_of_a_root_is_leaf_and_root() -> None:
    authority = self_signed()
    assert list(authority.issue(p256().public_key(), IDENTITY)[1:]) == [authority.root_certificates]


@pytest.mark.parametrize("key", [None, rsa_key(3482), ec.generate_private_key(ec.SECP384R1())])
def test_leaves_verify_against_the_root(key: object) -> None:
    authority = two_tier(key=key)
    chain = [x509.load_pem_x509_certificate(text.encode()) for text in authority.issue(p256().public_key(), IDENTITY)]
    store = Store([authority.roots[0]])
    verified = PolicyBuilder().store(store).time(NOW).build_client_verifier().verify(chain[0], chain[1:-1])
    assert verified.subjects == [x509.UniformResourceIdentifier(ORDERS)]


def test_the_self_signed_root_lasts_ten_years() -> None:
    assert self_signed().expires - NOW == timedelta(days=3650)


def test_a_server_certificate_names_hosts_and_addresses() -> None:
    certificate = self_signed().issue_server(["istiod.istio-system.svc", "127.0.0.1", "::1"])
    made = x509.load_pem_x509_certificate(certificate.chain)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["istiod.istio-system.svc"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert load_pem_private_key(certificate.private_key, None).public_key() == made.public_key()


def test_a_server_presents_its_intermediates_and_no_root() -> None:
    authority = two_tier()
    presented = x509.load_pem_x509_certificates(authority.issue_server(["localhost"]).chain)
    assert presented[1:] == list(authority.path)


def test_a_server_certificate_without_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        self_signed().issue_server([])


def test_roots_are_readable_by_others() -> None:
    ssl.create_default_context(cadata=two_tier().root_certificates)


@pytest.mark.parametrize(("key", "budget"), [(None, 0.005), (rsa_key(4484), 0.02)])
def test_signing_does_not_hold_up_the_event_loop(key: object, budget: float) -> None:
    authority = two_tier(key=key)
    public_key = p256().public_key()
    times = []
    for _ in range(20):
        start = time.thread_time()  # Of the processor: other processes share this machine.
        authority.issue(public_key, IDENTITY)
        times.append(time.thread_time() - start)
    assert min(times) < budget
