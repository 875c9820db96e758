"""CreateCertificate: requests, access and authority joined."""

from __future__ import annotations

from datetime import timedelta

import grpc
import pytest
from cryptography import x509

from tests.kit.accounts import ZTUNNEL, Accounts
from tests.kit.certificates import NOW, ORDERS, signing_request
from xds import protos
from xds.server.access import Access
from xds.server.authentication import Caller, Identity
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority
from xds.server.certificate_service import LONGEST_MESSAGE, CertificateService
from xds.server.rates import Rate
from xds.server.refusals import Refusal


def service() -> CertificateService:
    return CertificateService(AuthorityInForce(CertificateAuthority.self_signed("cluster.local")), Access(Accounts()))


def message(csr: str, seconds: int = 0, impersonated: str | None = None) -> bytes:
    request = protos.istio.v1.auth.IstioCertificateRequest(csr=csr, validity_duration=seconds)
    if impersonated is not None:
        request.metadata["ImpersonatedIdentity"] = impersonated
    return request.SerializeToString()


def caller(identity: Identity | None) -> Caller:
    return Caller("10.0.0.1:1000", identity)


def chain(answer: bytes) -> list[str]:
    return list(protos.istio.v1.auth.IstioCertificateResponse.FromString(answer).cert_chain)


async def refusal(request: bytes, identity: Identity | None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await service().create_certificate(request, caller(identity))
    return caught.value


async def test_a_workload_gets_a_chain_for_its_own_identity() -> None:
    answer = await service().create_certificate(message(signing_request(ORDERS), 3600), caller(Identity.parse(ORDERS)))
    texts = chain(answer)
    leaf = x509.load_pem_x509_certificate(texts[0].encode())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier(ORDERS)]
    assert timedelta(0) < leaf.not_valid_after_utc - NOW <= timedelta(hours=2)
    assert len(texts) == 2


async def test_a_ztunnel_gets_the_chain_of_a_pod_it_impersonates() -> None:
    answer = await service().create_certificate(message(signing_request(ORDERS), impersonated=ORDERS), caller(ZTUNNEL))
    assert len(chain(answer)) == 2


@pytest.mark.parametrize(
    ("request_bytes", "identity", "code"),
    [
        pytest.param(message(signing_request(ORDERS)), None, grpc.StatusCode.UNAUTHENTICATED, id="no identity"),
        pytest.param(
            message(signing_request(ORDERS)), ZTUNNEL, grpc.StatusCode.PERMISSION_DENIED, id="request names another"
        ),
        pytest.param(
            message(signing_request(str(ZTUNNEL)), impersonated=ORDERS),
            ZTUNNEL,
            grpc.StatusCode.PERMISSION_DENIED,
            id="request does not name the impersonated",
        ),
        pytest.param(
            message(signing_request(str(ZTUNNEL)), impersonated=str(ZTUNNEL)),
            Identity.parse(ORDERS),
            grpc.StatusCode.PERMISSION_DENIED,
            id="a workload impersonates",
        ),
        pytest.param(
            message(signing_request(ORDERS), impersonated="orders"),
            ZTUNNEL,
            grpc.StatusCode.INVALID_ARGUMENT,
            id="impersonated is no SPIFFE id",
        ),
        pytest.param(
            message(signing_request(ORDERS), impersonated=""),
            Identity.parse(ORDERS),
            grpc.StatusCode.INVALID_ARGUMENT,
            id="impersonated is empty",
        ),
        pytest.param(message("x"), ZTUNNEL, grpc.StatusCode.INVALID_ARGUMENT, id="no request"),
        pytest.param(b"\xff\xff", ZTUNNEL, grpc.StatusCode.INVALID_ARGUMENT, id="no message"),
        pytest.param(b"\x0a" * (LONGEST_MESSAGE + 1), ZTUNNEL, grpc.StatusCode.RESOURCE_EXHAUSTED, id="huge message"),
    ],
)
async def test_what_is_not_due_is_refused(
    request_bytes: bytes, identity: Identity | None, code: grpc.StatusCode
) -> None:
    assert (await refusal(request_bytes, identity)).code is code


def test_a_pod_that_asks_for_too_many_certificates_is_refused_and_no_other() -> None:
    authority = AuthorityInForce(CertificateAuthority.self_signed("cluster.local"))
    limited = CertificateService(authority, Access(Accounts()), rate=Rate(per_second=0.001, burst=2))
    own = Identity("cluster.local", "shop", "orders", pod="orders-1")
    for _ in range(2):
        limited.admit(caller(own))
    with pytest.raises(Refusal, match="shop/orders/orders-1") as caught:
        limited.admit(caller(own))
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    limited.admit(caller(Identity("cluster.local", "shop", "orders", pod="orders-2")))


async def test_an_expired_authority_is_unavailable_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    authority = CertificateAuthority.self_signed("cluster.local", now=lambda: NOW)
    late = CertificateAuthority(authority.key, (), authority.roots, now=lambda: authority.expires)
    with pytest.raises(Refusal) as caught:
        await CertificateService(AuthorityInForce(late), Access(Accounts())).create_certificate(
            message(signing_request(ORDERS)), caller(Identity.parse(ORDERS))
        )
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert "no certificate can be issued" in caplog.text
