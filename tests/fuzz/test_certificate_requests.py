"""Whatever is sent to be signed: a refusal, or a certificate with the one name its bearer is entitled to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import strategies as st

from tests.fuzz.signed import KEYS, Key, hostile_requests
from tests.kit.accounts import ORDERS, ZTUNNEL, Accounts
from tests.kit.certificates import p256, rsa_key, signing_request
from tests.kit.fuzzing import bounded, fuzz
from tests.kit.hostile import TEXTS, damaged_message
from xds import protos
from xds.server.access import Access
from xds.server.authentication import Caller, Identity
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CLOCK_SKEW, LONGEST_LIFETIME, CertificateAuthority, utc_now
from xds.server.certificate_requests import CertificateRequest, read_certificate_request
from xds.server.certificate_service import IMPERSONATED_IDENTITY, CertificateService
from xds.server.refusals import LONGEST_MESSAGE, Refusal

pytestmark = [
    pytest.mark.slow,
    # It says what later releases will refuse.
    pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning"),
]

URI = str(ORDERS)
URIS = [
    URI,
    str(ZTUNNEL),
    "spiffe://cluster.local/ns/shop/sa/ledger",
    URI + "\0",
    URI + "\n",
    URI + "%00",
    URI.replace("orders", "%6frders"),
    URI.replace("orders", "order."),
    URI.replace("shop", "s.op"),
    URI.upper(),
    URI + "/",
    URI + "?a#b",
    URI.replace("://", ":///"),
    URI.replace("cluster.local", "user@cluster.local:80"),
    "spiffe://" + "a" * 300,
    "",
]
EXTENSIONS: list[x509.ExtensionType] = [
    x509.BasicConstraints(ca=False, path_length=None),
    x509.KeyUsage(True, False, True, False, False, False, False, False, False),
    x509.ExtendedKeyUsage([x509.ObjectIdentifier("2.5.29.37.0")]),
    x509.SubjectKeyIdentifier(b"x" * 20),
    x509.TLSFeature([x509.TLSFeatureType.status_request]),
    x509.NameConstraints([x509.DNSName("")], None),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\xff"),
    x509.OCSPNoCheck(),
]
NAMES: list[x509.GeneralName] = [
    x509.DNSName("api.shop"),
    x509.RFC822Name("a@b"),
    x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
    x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3"), b"\x0c\x01a"),
    x509.DirectoryName(x509.Name([])),
]


@st.composite
def made(draw: Any) -> tuple[x509.CertificateSigningRequest, Key]:
    """Requests that are signed properly, whatever they ask for."""
    key = draw(st.sampled_from(KEYS))
    uris = draw(st.just([URI]) | st.lists(st.sampled_from(URIS), max_size=2))
    extensions = draw(st.lists(st.sampled_from(EXTENSIONS), unique=True, max_size=3))
    text = signing_request(
        *uris,
        key=key,
        names=draw(st.just([]) | st.lists(st.sampled_from(NAMES), max_size=2)),
        extensions=extensions,
        subject=draw(st.sampled_from(["", "orders", "x" * 64])),
    )
    return x509.load_pem_x509_csr(text.encode()), key


def texts() -> st.SearchStrategy[str]:
    return hostile_requests(made()).map(lambda data: data.decode("utf-8", "replace"))


def read(pem: str) -> CertificateRequest | None:
    try:
        return bounded(lambda: read_certificate_request(pem), len(pem))
    except Refusal as refusal:
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert 0 < len(refusal.message) <= LONGEST_MESSAGE
    return None


def test_any_request_is_read_or_refused() -> None:
    def one(pem: str) -> None:
        request = read(pem)
        assert request is None or str(Identity.parse(str(request.identity))) == str(request.identity)

    fuzz(one, texts() | st.text(max_size=100), share=0.5)


class Service:
    """The service of an authority, called as one that holds the token of `shop/orders` or of the ztunnel."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._run = runner.run
        self.authority = CertificateAuthority.self_signed("cluster.local")
        in_force = AuthorityInForce(self.authority)
        self._service = CertificateService(in_force, Access(Accounts(), patience=0.001))

    def answered(self, message: bytes, caller: Caller) -> tuple[str, ...] | None:
        """The chain; None where it is refused as the documentation says."""
        try:
            answer = bounded(lambda: self._run(self._service.create_certificate(message, caller)), len(message))
        except Refusal as refusal:
            assert refusal.code in {
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            }
            assert 0 < len(refusal.message) <= LONGEST_MESSAGE
            return None
        return tuple(protos.istio.v1.auth.IstioCertificateResponse.FromString(answer).cert_chain)


@pytest.fixture
def service() -> Iterator[Service]:
    with asyncio.Runner() as runner:
        yield Service(runner)


def check_leaf(pem: str, entitled: str) -> None:
    leaf = x509.load_pem_x509_certificate(pem.encode())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert list(names.value) == [x509.UniformResourceIdentifier(entitled)]
    assert names.critical
    assert list(leaf.subject) == []
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
    assert not usage.key_cert_sign and not usage.crl_sign
    assert {extension.oid.dotted_string for extension in leaf.extensions} <= {
        "2.5.29.17",
        "2.5.29.19",
        "2.5.29.15",
        "2.5.29.37",
        "2.5.29.35",
    }
    now = utc_now()
    assert now - CLOCK_SKEW - timedelta(minutes=1) <= leaf.not_valid_before_utc <= now
    assert now < leaf.not_valid_after_utc <= now + LONGEST_LIFETIME


def test_a_certificate_has_exactly_the_name_its_bearer_is_entitled_to(service: Service) -> None:
    def message(pem: str, seconds: int, impersonated: Any) -> bytes:
        request = protos.istio.v1.auth.IstioCertificateRequest(csr=pem, validity_duration=seconds)
        if impersonated is not None:
            request.metadata.update({IMPERSONATED_IDENTITY: impersonated, "other": [1]})
        data: bytes = request.SerializeToString(deterministic=True)
        return data

    sound = made().map(lambda pair: pair[0].public_bytes(Encoding.PEM).decode())
    messages = st.builds(
        message,
        sound | texts(),
        st.sampled_from([0, 60, -1, 2**63 - 1, -(2**63)]),
        st.none() | st.sampled_from([*URIS, 1.0, None, [URI], {"a": URI}]),
    )

    def one(data: bytes, identity: Identity) -> None:
        chain = service.answered(data, Caller("10.0.0.1:1000", identity, "west"))
        if chain is None:
            return
        fields = protos.istio.v1.auth.IstioCertificateRequest.FromString(data).metadata.fields
        named = fields[IMPERSONATED_IDENTITY].string_value if IMPERSONATED_IDENTITY in fields else str(identity)
        assert named == URI or identity is ZTUNNEL
        assert named in (URI, str(ZTUNNEL), "spiffe://cluster.local/ns/shop/sa/ledger")
        check_leaf(chain[0], named)
        assert chain[-1] == service.authority.root_certificates

    hostile = messages | damaged_message(messages) | st.binary(max_size=100)
    fuzz(one, hostile, st.sampled_from([ORDERS, ZTUNNEL]), share=0.5)


@pytest.mark.parametrize("text", [text.decode("utf-8", "replace") for text in TEXTS])
def test_any_text_in_a_block_is_refused(text: str) -> None:
    assert read(f"-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----") is None


@pytest.mark.parametrize(
    "key",
    [
        rsa_key(5420),
        rsa_key(3482, 65539),
        ed25519.Ed25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP521R1()),
    ],
    ids=["RSA too long", "RSA of another exponent", "Ed25519", "P-521"],
)
def test_odd_keys_are_refused(key: Any) -> None:
    assert read(signing_request(URI, key=key)) is None


def test_the_sound_request_is_read() -> None:
    assert read(signing_request(URI, key=p256())) is not None
