"""Istio's certificate service, IstioCertificateService/CreateCertificate: bytes of a request in, of a response out.

It joins three that know nothing of each other: certificate_requests.py (is the request sound), access.py (may the
caller have it) and authority_in_force.py (sign it). Signing takes far below a millisecond with a P-256 key and some
with RSA, so it stays on the event loop.
"""

from __future__ import annotations

import logging
from typing import Final

from google.protobuf.message import DecodeError

from xds import protos
from xds.server import refusals
from xds.server.access import Access
from xds.server.authentication import Caller, Identity
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthorityError
from xds.server.certificate_requests import read_certificate_request
from xds.server.rates import Rate, Rates

logger = logging.getLogger(__name__)

# A signing request and a few words of metadata.
LONGEST_MESSAGE: Final = 64 * 1024
# Named by ztunnel: the account of a pod of its node that it asks a certificate for.
IMPERSONATED_IDENTITY: Final = "ImpersonatedIdentity"


class CertificateService:
    """Issues certificates to callers for themselves and, to node proxies, for the workloads of their node."""

    def __init__(
        self,
        authority: AuthorityInForce,
        access: Access,
        *,
        rate: Rate = Rate(per_second=20.0, burst=1000),  # noqa: B008 - frozen
    ) -> None:
        """`rate` is that of requests of one pod: a ztunnel asks for one certificate per account of its node."""
        self._authority = authority
        self._access = access
        self._rates = Rates(rate)

    def admit(self, caller: Caller) -> None:
        """Counts a request before anything of it is read; raises Refusal (RESOURCE_EXHAUSTED)."""
        if not self._rates.take(caller.source):
            raise refusals.exhausted(f"too many certificates are asked for by {caller.source}: ask again later")

    async def create_certificate(self, message: bytes, caller: Caller) -> bytes:
        """Answers an IstioCertificateRequest with an IstioCertificateResponse; raises Refusal."""
        if len(message) > LONGEST_MESSAGE:
            raise refusals.exhausted(f"the request is longer than {LONGEST_MESSAGE} bytes: send one signing request")
        try:
            request = protos.istio.v1.auth.IstioCertificateRequest.FromString(message)
        except DecodeError:
            raise refusals.invalid("the message is no IstioCertificateRequest") from None
        entitled = _impersonated(request) or caller.identity
        if entitled is None:
            raise refusals.unauthenticated("certificates are issued on the TLS port, to a bearer of a token")
        certificate_request = read_certificate_request(request.csr)
        if str(certificate_request.identity) != str(entitled):
            raise refusals.denied(f"the request names {certificate_request.identity}, it may name {entitled} only")
        await self._access.authorize_certificate(caller, certificate_request.identity)
        try:
            chain = self._authority.issue(
                certificate_request.public_key, certificate_request.identity, request.validity_duration
            )
        except CertificateAuthorityError as error:
            logger.error("no certificate can be issued", extra={"cause": str(error)})
            raise refusals.unavailable(str(error)) from None
        return protos.istio.v1.auth.IstioCertificateResponse(cert_chain=chain).SerializeToString()


def _impersonated(request: protos.istio.v1.auth.IstioCertificateRequest) -> Identity | None:
    """The identity a node proxy asks for in the name of another; None if it asks for its own."""
    fields = request.metadata.fields
    if IMPERSONATED_IDENTITY not in fields:  # The map would make an entry of a name that is looked up.
        return None
    try:
        return Identity.parse(fields[IMPERSONATED_IDENTITY].string_value)
    except ValueError as error:
        raise refusals.invalid(f"metadata {IMPERSONATED_IDENTITY}: {error}") from None
