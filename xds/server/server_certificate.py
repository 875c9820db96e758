"""The certificate of the TLS ports: signed by the mesh's own authority or given as files, used from the next connection
on, and renewed without a restart.

In: the authority in force and the names proxies connect by, or a pair of files. Out: gRPC server credentials. gRPC asks
for the present certificate in a thread of its own at every handshake, so that no task is needed to renew it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthorityError, ServerCertificate, utc_now
from xds.server.certificate_files import certificates_in, check_pair, key_in

logger = logging.getLogger(__name__)

CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
LOOK_AGAIN: Final = timedelta(seconds=10)
"""How long files are believed to be what they were."""


class ServerCertificateSource(Protocol):
    """Where the certificate of the TLS ports comes from. Called from any thread."""

    def present(self) -> ServerCertificate:
        """The one to use now: the same object until there is another. Raises CertificateAuthorityError."""


class Signed:
    """Certificates for `names` by the authority in force, renewed at half their life and when another one signs."""

    def __init__(
        self, authority: AuthorityInForce, names: Sequence[str], *, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._authority = authority
        self._names = tuple(names)
        self._now = now
        self._lock = threading.Lock()
        self._made: tuple[ServerCertificate, bytes] | None = None

    def present(self) -> ServerCertificate:
        """See ServerCertificateSource."""
        with self._lock:
            signer = self._authority.signer
            fingerprint = signer.fingerprint if signer is not None else b""
            if self._made is not None:
                certificate, signed_by = self._made
                half = certificate.not_before + (certificate.not_after - certificate.not_before) / 2
                if signed_by == fingerprint and self._now() < half:
                    return certificate
            made = self._authority.issue_server(self._names)
            self._made = made, fingerprint
            return made


class Given:
    """The certificate and key in a directory, tls.crt and tls.key as a mounted Secret has them; read again when they
    change. A pair that does not fit, as between two writes, is passed over.
    """

    def __init__(self, directory: Path, *, now: Callable[[], datetime] = utc_now) -> None:
        self._directory = directory
        self._now = now
        self._lock = threading.Lock()
        self._looked = datetime.min.replace(tzinfo=UTC)
        self._read: tuple[bytes, bytes] = b"", b""
        self._present: ServerCertificate | None = None

    def present(self) -> ServerCertificate:
        """See ServerCertificateSource. Of files that cannot be used any more the last good pair stands."""
        with self._lock:
            now = self._now()
            if self._present is not None and now < self._looked + LOOK_AGAIN:
                return self._present
            self._looked = now
            try:
                read = self._file(CERTIFICATE_FILE), self._file(KEY_FILE)
                if read != self._read or self._present is None:
                    self._present = self._pair(*read)
                self._read = read
            except CertificateAuthorityError as error:
                if self._present is None:
                    raise
                logger.error("server certificate not replaced", extra={"cause": str(error)})
            return self._present

    def _file(self, name: str) -> bytes:
        path = self._directory / name
        try:
            return path.read_bytes()
        except OSError as error:
            cure = f"give {CERTIFICATE_FILE} and {KEY_FILE}"
            raise CertificateAuthorityError(f"{path}: {error.strerror}; {cure}") from None

    def _pair(self, chain: bytes, private_key: bytes) -> ServerCertificate:
        leaf = certificates_in(self._directory / CERTIFICATE_FILE, chain)[0]
        key_file = self._directory / KEY_FILE
        check_pair(key_file, key_in(key_file, private_key), CERTIFICATE_FILE, leaf)
        return ServerCertificate(private_key, chain, leaf.not_valid_before_utc, leaf.not_valid_after_utc)


class ServerCredentials:
    """gRPC credentials of one port. With `roots`, clients must show a certificate below one of those that it returns.

    Raises CertificateAuthorityError if there is no certificate to begin with.
    """

    def __init__(self, source: ServerCertificateSource, roots: Callable[[], str] | None = None) -> None:
        self._source = source
        self._roots = roots
        self._lock = threading.Lock()
        self._used = self._present()

    def credentials(self) -> Any:
        """Credentials for a server's port: TLS 1.2 or 1.3."""
        # Python's gRPC either never asks for a client certificate or demands one: those have a port of their own.
        return grpc.dynamic_ssl_server_credentials(
            _configuration(*self._used), self._renewed, require_client_authentication=self._roots is not None
        )

    def _renewed(self) -> Any:
        """At a handshake: a new certificate configuration if there is one, else None. Runs in gRPC's threads."""
        with self._lock:
            try:
                present = self._present()
            except CertificateAuthorityError as error:
                logger.error("server certificate not renewed", extra={"cause": str(error)})
                return None
            if present[0] is self._used[0] and present[1] == self._used[1]:
                return None
            self._used = present
            return _configuration(*present)

    def _present(self) -> tuple[ServerCertificate, str | None]:
        return self._source.present(), self._roots() if self._roots is not None else None


def _configuration(certificate: ServerCertificate, roots: str | None) -> Any:
    pair = (certificate.private_key, certificate.chain)
    return grpc.ssl_server_certificate_configuration([pair], roots.encode() if roots is not None else None)
