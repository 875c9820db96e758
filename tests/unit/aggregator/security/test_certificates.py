"""Certificates in force: what a Secret must hold, what is said of one that does not, and what stays in force then."""

from __future__ import annotations

import time
from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509 import ocsp

from aggregator.security.certificates import MOST_RSA_BITS, Certificate, InvalidPair, certificate
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.hostile import der
from tests.kit.world import World
from watchers.facts.secrets import NamedSecret, TLSSecret

HOST = "a.example"
KEY = ("alpha", "TLSSecret", "shop", "tls")


def read(chain: bytes, key: bytes) -> Certificate:
    return certificate(TLSSecret(chain, key))


def refused(chain: bytes, key: bytes) -> str:
    with pytest.raises(InvalidPair) as caught:
        read(chain, key)
    assert "BEGIN" not in str(caught.value)
    return str(caught.value)


def present() -> World:
    """A world in which it is the time at which the certificates were made."""
    world = World()
    world.now = c.NOW.timestamp()
    return world


def in_force(world: World) -> dict[Any, Certificate]:
    kept: dict[Any, Certificate] = world.published.get("certificates", {})
    return kept


def told(world: World) -> list[tuple[str, str]]:
    """(code, object) of every finding."""
    return [(one.code, "/".join(one.object[2:])) for one in world.findings()]


def test_a_pair_that_fits_is_served_as_it_is_given() -> None:
    chain, key = c.host_pair("B.example", HOST, issuer=c.Issuer("an authority"))
    found = read(chain, key)
    assert (found.chain, found.key) == (chain, key)
    assert found.chain is read(chain, key).chain is chain  # and kept once
    assert found.names == (HOST, "b.example")
    assert found.not_after == (c.NOW + timedelta(days=90)).timestamp()


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
        ed25519.Ed25519PrivateKey.generate(),
        c.rsa_key(3482),
    ],
    ids=["P-384", "P-521", "Ed25519", "RSA"],
)
def test_kinds_of_keys_that_envoy_takes(key: Any) -> None:
    assert read(*c.host_pair(HOST, key=key)).names == (HOST,)


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (ec.generate_private_key(ec.SECP224R1()), "the key is on the curve secp224r1"),
        (ec.generate_private_key(ec.SECP256K1()), "the key is on the curve secp256k1"),
        (c.rsa_key(1886), "the key is RSA of 1886 bits, and 2048 are the least"),
    ],
    ids=["P-224", "secp256k1", "short RSA"],
)
def test_kinds_of_keys_that_envoy_refuses(key: Any, what: str) -> None:
    assert refused(*c.host_pair(HOST, key=key)).startswith(what)


def test_a_key_of_no_use_for_tls_is_refused() -> None:
    key = dsa.generate_private_key(1024)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert refused(c.host_pair(HOST)[0], pem) == "the key is neither RSA nor ECDSA nor Ed25519"


def test_an_rsa_key_whose_numbers_do_not_belong_together_is_refused() -> None:
    right = c.rsa_key(3482).private_numbers()
    wrong = rsa.RSAPrivateNumbers(
        right.p, right.q, right.d + 2, right.dmp1, right.dmq1, right.iqmp, right.public_numbers
    ).private_key(unsafe_skip_rsa_key_validation=True)
    chain, _ = c.host_pair(HOST, key=c.rsa_key(3482))
    assert refused(chain, c.private_pem(wrong)) == "the numbers of the RSA key do not belong together"


@pytest.mark.parametrize("bits", [MOST_RSA_BITS + 1, 100_000, 1_000_000])
@pytest.mark.parametrize("where", ["p and q", "p", "d"])
def test_an_rsa_key_of_huge_numbers_is_refused_without_calculating(bits: int, where: str) -> None:
    huge, right = (1 << bits) - 1, c.rsa_key(3482).private_numbers()
    p, q, d, n = right.p, right.q, right.d, right.public_numbers.n
    if where == "p and q":
        p, q, n = huge, huge - 2, huge * (huge - 2)
    elif where == "p":
        p = huge
    else:
        d = huge
    chain, _ = c.host_pair(HOST)
    key = rsa_pem(n, 65537, d, p, q, right.dmp1, right.dmq1, right.iqmp)
    begun = time.thread_time()
    assert "RSA" in refused(chain, key) or "longer" in refused(chain, key)
    assert time.thread_time() - begun < 0.5


@pytest.mark.parametrize("one_is", ["p", "q"])
def test_an_rsa_key_with_a_factor_of_one_is_refused(one_is: str) -> None:
    right = c.rsa_key(3482).private_numbers()
    n = right.public_numbers.n
    p, q = (1, n) if one_is == "p" else (n, 1)
    key = rsa_pem(n, 65537, right.d, p, q, right.dmp1, right.dmq1, right.iqmp)
    assert refused(c.host_pair(HOST)[0], key) == "the numbers of the RSA key do not belong together"


def rsa_pem(*numbers: int) -> bytes:
    """An RSA key of any numbers (PKCS #1: n, e, d, p, q and so on)."""
    integers = (der(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big")) for number in (0, *numbers))
    text = b64encode(der(0x30, *integers)).decode()
    return f"-----BEGIN RSA PRIVATE KEY-----\n{text}\n-----END RSA PRIVATE KEY-----\n".encode()


@pytest.mark.parametrize("fault", [c.VERSION_7, c.SAME_EXTENSION_TWICE], ids=["version", "extension"])
def test_a_certificate_with_faults_that_are_found_late_is_refused(fault: tuple[bytes, bytes]) -> None:
    issuer = c.Issuer(HOST, ca=False)
    assert "tls.crt" in refused(c.malformed(issuer.certificate, fault), c.private_pem(issuer.key))


@pytest.mark.parametrize(
    "key_form",
    [
        lambda key: key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        lambda key: b"Bag attributes: none\n" + c.private_pem(key),
        lambda key: c.private_pem(key).replace(b"\n", b"\r\n"),
    ],
    ids=["SEC 1", "with text", "with CRLF"],
)
def test_forms_of_a_key(key_form: Any) -> None:
    key = c.p256()
    chain, _ = c.host_pair(HOST, key=key)
    assert read(chain, key_form(key)).key == key_form(key)


@pytest.mark.parametrize("key", [b"", b"hello", b"\x00\xff", c.private_pem(c.p256(), b"password")])
def test_what_is_no_key_is_refused(key: bytes) -> None:
    assert refused(c.host_pair(HOST)[0], key) == "tls.key is not a private key in PEM, without a password"


@pytest.mark.parametrize("chain", [b"", b"hello", c.private_pem(c.p256()), b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_what_is_no_chain_is_refused(chain: bytes) -> None:
    assert refused(chain, c.host_pair(HOST)[1]) == "tls.crt is not a chain of certificates in PEM"


def test_a_broken_certificate_behind_a_good_one_is_refused() -> None:
    chain, key = c.host_pair(HOST)
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert refused(chain + broken, key) == "tls.crt is not a chain of certificates in PEM"


def test_a_key_of_another_certificate_is_refused() -> None:
    assert refused(c.host_pair(HOST)[0], c.host_pair(HOST)[1]) == "tls.key is not the key of tls.crt"


def test_a_chain_that_does_not_begin_with_the_leaf_is_refused_and_the_cure_is_told() -> None:
    authority = c.Issuer("an authority")
    leaf, key = c.host_pair(HOST, issuer=authority)
    assert "put the leaf first" in refused(c.pem(authority.certificate) + leaf, key)


def test_a_chain_without_end_is_refused() -> None:
    chain, key = c.host_pair(HOST)
    assert refused(chain * 17, key).startswith("tls.crt holds 17 certificates")


def test_what_stands_between_certificates_stays_behind() -> None:
    chain, key = c.host_pair(HOST)
    assert read(b"my certificate\n" + chain + key + b"-----BEGIN CERTIFICATE-----\nAAAA\n", key).chain == chain


def test_a_certificate_without_names_is_for_what_its_subject_is_called() -> None:
    issuer = c.Issuer("A.Example", ca=False)
    assert read(c.pem(issuer.certificate), c.private_pem(issuer.key)).names == (HOST,)


@pytest.mark.parametrize(
    ("names", "host", "covered"),
    [
        (("a.example",), "a.example", True),
        (("a.example",), "b.a.example", False),
        (("*.example",), "a.example", True),
        (("*.example",), "b.a.example", False),
        (("*.example",), "example", False),
        (("*",), "example", False),
        ((), "a.example", False),
    ],
)
def test_which_hosts_a_certificate_covers(names: tuple[str, ...], host: str, covered: bool) -> None:
    assert Certificate(b"", b"", 0.0, names).covers(host) is covered


def test_a_certificate_shows_neither_key_nor_chain() -> None:
    found = read(*c.host_pair(HOST))
    assert repr(found) == str(found) == "Certificate(names=('a.example',))"
    assert found.__rich_repr__() == [("names", (HOST,))]


# In the graph.


def test_the_pair_of_a_secret_of_home_is_in_force() -> None:
    world = present()
    pair = c.host_pair(HOST)
    world.apply("alpha", m.tls_secret("shop/tls", *pair))
    world.step()
    assert in_force(world) == {KEY: read(*pair)}
    assert world.findings() == []


def test_secrets_of_other_clusters_are_not_served() -> None:
    world = present()
    world.apply("beta", m.tls_secret("shop/tls", *c.host_pair(HOST)), m.tls_secret("shop/bad", b"", b""))
    world.step()
    assert (in_force(world), world.findings()) == ({}, [])


def test_a_bad_pair_is_told_and_the_last_good_one_stays_in_force() -> None:
    world = present()
    good, other = c.host_pair(HOST), c.host_pair(HOST)
    world.apply("alpha", m.tls_secret("shop/tls", *good))
    world.step()
    world.apply("alpha", m.tls_secret("shop/tls", good[0], other[1]))
    world.step()
    assert in_force(world) == {KEY: read(*good)}
    assert told(world) == [("SecretInvalid", "shop/tls")]
    world.apply("alpha", m.tls_secret("shop/tls", *other))
    world.step()
    assert in_force(world) == {KEY: read(*other)}
    assert world.findings() == []


def test_a_pair_that_was_never_good_is_not_in_force() -> None:
    world = present()
    world.apply("alpha", m.tls_secret("shop/tls", c.host_pair(HOST)[0], c.host_pair(HOST)[1]))
    world.step()
    assert in_force(world) == {}
    assert told(world) == [("SecretInvalid", "shop/tls")]


def test_a_secret_that_is_gone_takes_its_certificate_with_it() -> None:
    world = present()
    secret = m.tls_secret("shop/tls", *c.host_pair(HOST))
    world.apply("alpha", secret)
    world.step()
    world.delete("alpha", secret)
    world.step()
    assert in_force(world) == {}


def test_an_expired_certificate_stays_in_force_and_is_told_when_the_time_comes() -> None:
    world = present()
    pair = c.host_pair(HOST)
    world.apply("alpha", m.tls_secret("shop/tls", *pair))
    world.step()
    assert world.findings() == []
    moment = world.graph.next_moment()
    assert moment == (c.NOW + timedelta(days=90)).timestamp()
    world.now = moment
    world.step()
    assert in_force(world) == {KEY: read(*pair)}
    assert [(one.code, one.detail) for one in world.findings()] == [
        ("CertificateExpired", "the certificate was for a.example")
    ]


def test_no_finding_shows_what_a_secret_holds() -> None:
    world = present()
    chain, key = c.host_pair(HOST, ends=c.NOW - timedelta(days=1))
    world.apply(
        "alpha",
        m.tls_secret("shop/mixed", chain, c.host_pair(HOST)[1]),
        m.tls_secret("shop/key", chain, b"c2VjcmV0"),
        m.tls_secret("shop/old", chain, key),
    )
    world.step()
    text = " ".join(f"{one} {one!r}" for one in world.findings())
    assert len(world.findings()) == 3
    assert not any(line.decode() in text for line in (chain + key).splitlines())
    assert "c2VjcmV0" not in text


# OCSP staples.


def staple(chain: bytes, key: bytes, *, serial_of: bytes = b"") -> bytes:
    """A response that says that a certificate is good, signed by itself."""
    own = x509.load_pem_x509_certificate(chain)
    about = x509.load_pem_x509_certificate(serial_of or chain)
    signer = load_pem_private_key(key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    builder = ocsp.OCSPResponseBuilder().add_response(
        about, own, hashes.SHA256(), ocsp.OCSPCertStatus.GOOD, c.NOW, c.NOW + timedelta(days=1), None, None
    )
    response = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, own).sign(signer, hashes.SHA256())
    return response.public_bytes(Encoding.DER)


def test_a_staple_about_the_certificate_is_served_with_it() -> None:
    chain, key = c.host_pair(HOST)
    given = staple(chain, key)
    found = certificate(TLSSecret(chain, key, ocsp_staple=given))
    assert (found.ocsp_staple, found.flaw) == (given, "")


def test_a_staple_that_does_not_fit_costs_the_pair_nothing_and_is_told() -> None:
    chain, key = c.host_pair(HOST)
    unsuccessful = ocsp.OCSPResponseBuilder.build_unsuccessful(ocsp.OCSPResponseStatus.TRY_LATER)
    for bad in (
        b"hello",
        staple(chain, key, serial_of=c.host_pair(HOST)[0]),
        unsuccessful.public_bytes(Encoding.DER),
    ):
        found = certificate(TLSSecret(chain, key, ocsp_staple=bad))
        assert (found.chain, found.ocsp_staple) == (chain, b"")
        assert found.flaw.startswith("tls.ocsp-staple is ")


def test_a_generic_pair_is_spoken_of_by_its_own_entries() -> None:
    chain, key = c.host_pair(HOST)
    assert certificate(NamedSecret(chain, key, generic=True)).chain == chain
    with pytest.raises(InvalidPair, match=r"^key is not the key of cert$"):
        certificate(NamedSecret(chain, c.host_pair(HOST)[1], generic=True))
