"""The certificate of the TLS port: signed by the mesh's own authority, renewed at half its life, used from the next
connection on.

In: a CertificateAuthority and the names proxies connect by. Out: gRPC server credentials. gRPC asks for the present
certificate in a thread of its own at every handshake, so that no task is needed to renew it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import grpc

from xds.server.certificate_authority import CertificateAuthority, CertificateAuthorityError, utc_now

logger = logging.getLogger(__name__)


class ServerCertificates:
    """A certificate that is always young enough. Raises CertificateAuthorityError if the first cannot be signed."""

    def __init__(
        self, authority: CertificateAuthority, names: Sequence[str], *, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._authority = authority
        self._names = tuple(names)
        self._now = now
        self._lock = threading.Lock()
        self._first, self._renewal = self._issue()

    def credentials(self) -> Any:
        """Credentials for a server's port: TLS 1.2 or 1.3, without client certificates."""
        # Python's gRPC either never asks for a client certificate or demands one: those have a port of their own.
        return grpc.dynamic_ssl_server_credentials(self._first, self._renewed, require_client_authentication=False)

    def _renewed(self) -> Any:
        """At a handshake: a new certificate configuration if it is time, else None. Runs in gRPC's threads."""
        with self._lock:
            if self._now() < self._renewal:
                return None
            try:
                configuration, self._renewal = self._issue()
            except CertificateAuthorityError as error:
                logger.error("server certificate not renewed", extra={"cause": str(error)})
                return None
            return configuration

    def _issue(self) -> tuple[Any, datetime]:
        certificate = self._authority.issue_server(self._names)
        pair = (certificate.private_key, certificate.chain)
        half = certificate.not_before + (certificate.not_after - certificate.not_before) / 2
        return grpc.ssl_server_certificate_configuration([pair]), half
