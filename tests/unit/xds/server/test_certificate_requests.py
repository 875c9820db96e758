"""Signing requests from strangers: what is accepted, and what each abuse is told."""

from __future__ import annotations

import base64
import ipaddress

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from tests.kit.certificates import ORDERS, p256, rsa_key, signing_request
from xds.server.certificate_requests import LONGEST_REQUEST, read_certificate_request
from xds.server.refusals import Refusal

LEDGER = "spiffe://cluster.local/ns/shop/sa/ledger"


def of_version_6() -> str:
    """A request of a version nobody knows."""
    data = x509.load_pem_x509_csr(signing_request(ORDERS).encode()).public_bytes(Encoding.DER)
    text = base64.b64encode(data.replace(b"\x02\x01\x00", b"\x02\x01\x05", 1)).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----"


def tampered() -> str:
    """A sound request whose signature was made by nobody."""
    lines = signing_request(ORDERS).splitlines()
    body = bytearray(base64.b64decode("".join(lines[1:-1])))
    body[-3] ^= 0xFF
    return "\n".join([lines[0], base64.b64encode(body).decode(), lines[-1]])


def weakly_hashed() -> str:
    name = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(ORDERS)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).add_extension(name, critical=True)
    return builder.sign(p256(), hashes.SHA3_256()).public_bytes(Encoding.PEM).decode()


def usage(*, cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(True, False, False, False, False, cert_sign, False, False, False)


@pytest.mark.parametrize("key", [p256(), rsa_key(3482)])
def test_a_request_as_a_ztunnel_sends_it_is_read(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    request = read_certificate_request(signing_request(ORDERS, key=key))
    assert str(request.identity) == ORDERS
    assert request.public_key == key.public_key()


def test_harmless_wishes_are_read_over() -> None:
    wishes = [usage(cert_sign=False), x509.BasicConstraints(ca=False, path_length=None), x509.OCSPNoCheck()]
    assert str(read_certificate_request(signing_request(ORDERS, extensions=wishes, subject="me")).identity) == ORDERS


@pytest.mark.parametrize(
    ("pem", "says"),
    [
        pytest.param("", "PEM", id="empty"),
        pytest.param("hello", "PEM", id="no PEM"),
        pytest.param(signing_request(ORDERS).replace("CERTIFICATE REQUEST", "CERTIFICATE"), "PEM", id="other PEM"),
        pytest.param(signing_request(ORDERS) * 2, "one PEM block", id="two requests"),
        pytest.param(signing_request(ORDERS) + "x" * LONGEST_REQUEST, "longer than", id="huge"),
        pytest.param(signing_request(ORDERS).replace("M", "é", 1), "malformed", id="no ASCII"),
        pytest.param(
            "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----", "malformed", id="no DER"
        ),
        pytest.param(signing_request(ORDERS)[:200], "malformed", id="cut off"),
        pytest.param(of_version_6(), "malformed", id="version"),
        pytest.param(tampered(), "signature", id="bad signature"),
        pytest.param(weakly_hashed(), "SHA-256", id="odd hash"),
        pytest.param(signing_request(), "0 alternative names", id="no name"),
        pytest.param(signing_request(ORDERS, LEDGER), "2 alternative names", id="two identities"),
        pytest.param(signing_request(ORDERS, ORDERS), "2 alternative names", id="the same identity twice"),
        pytest.param(
            signing_request(ORDERS, names=[x509.DNSName("istiod.istio-system.svc")]), "DNSName", id="DNS name too"
        ),
        pytest.param(signing_request(names=[x509.DNSName("istiod.istio-system.svc")]), "DNSName", id="DNS name only"),
        pytest.param(
            signing_request(ORDERS, names=[x509.IPAddress(ipaddress.ip_address("10.0.0.1"))]), "IPAddress", id="address"
        ),
        pytest.param(signing_request("https://cluster.local/ns/shop/sa/orders"), "SPIFFE id", id="other URI"),
        pytest.param(signing_request("spiffe://cluster.local/ns/shop"), "SPIFFE id", id="other SPIFFE id"),
        pytest.param(
            signing_request(ORDERS, extensions=[x509.BasicConstraints(ca=True, path_length=None)]),
            "CA certificate",
            id="CA",
        ),
        pytest.param(
            signing_request(ORDERS, extensions=[usage(cert_sign=True)]), "sign certificates", id="keyCertSign"
        ),
        pytest.param(signing_request(ORDERS, key=rsa_key(1886)), "1886 bits", id="short RSA key"),
        pytest.param(signing_request(ORDERS, key=rsa_key(5420)), "5420 bits", id="long RSA key"),
        pytest.param(
            signing_request(ORDERS, key=rsa_key(3482, exponent=5)),
            "exponent",
            id="exponent 5",
        ),
        pytest.param(
            signing_request(ORDERS, key=ec.generate_private_key(ec.SECP384R1())), "use P-256", id="other curve"
        ),
        pytest.param(
            signing_request(ORDERS, key=ed25519.Ed25519PrivateKey.generate()), "neither P-256 nor RSA", id="Ed25519"
        ),
    ],
)
def test_abuse_is_refused_and_named(pem: str, says: str) -> None:
    with pytest.raises(Refusal, match=says) as caught:
        read_certificate_request(pem)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
