"""Which identity a client certificate stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from tests.kit.certificates import NOW, ORDERS, p256, pem
from xds.server.authentication import Identity
from xds.server.client_certificates import client_identity
from xds.server.refusals import Refusal

OTHER = "spiffe://cluster.local/ns/shop/sa/ledger"


def shown(names: Sequence[x509.GeneralName] | None, *, ca: bool = False) -> Mapping[str, list[bytes]]:
    """What gRPC tells of a peer with such a certificate."""
    key = p256()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    return {"x509_pem_cert": [pem(builder.sign(key, hashes.SHA256()))]}


def uri(text: str) -> x509.UniformResourceIdentifier:
    return x509.UniformResourceIdentifier(text)


def test_it_is_that_of_the_one_uri_and_ends_with_the_certificate() -> None:
    identity, ends = client_identity(shown([uri(ORDERS)]))
    assert identity == Identity("cluster.local", "shop", "orders")
    assert ends == (NOW + timedelta(hours=1)).timestamp()


def test_names_of_other_kinds_do_not_count() -> None:
    identity, _ = client_identity(shown([x509.DNSName("ledger.shop"), uri(ORDERS)]))
    assert str(identity) == ORDERS


@pytest.mark.parametrize(
    ("peer", "says"),
    [
        pytest.param({}, "no client certificate", id="none"),
        pytest.param({"x509_pem_cert": [b"nonsense"]}, "names no SPIFFE id", id="nonsense"),
        pytest.param(shown(None), "names no SPIFFE id", id="no names"),
        pytest.param(shown([x509.DNSName("orders.shop")]), "names 0 URIs", id="no URI"),
        pytest.param(shown([uri(ORDERS), uri(OTHER)]), "names 2 URIs", id="two URIs"),
        pytest.param(shown([uri("https://orders.shop/")]), "not of the form", id="another URI"),
        pytest.param(shown([uri("spiffe://cluster.local/orders")]), "not of the form", id="another SPIFFE id"),
        pytest.param(shown([uri(ORDERS)], ca=True), "that of an authority", id="an authority"),
    ],
)
def test_every_other_certificate_is_refused_and_the_reason_told(
    peer: Mapping[str, list[bytes]], says: str
) -> None:
    with pytest.raises(Refusal, match=says) as caught:
        client_identity(peer)
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
