"""The certificate authority of the process: read at the start, and followed while its files change.

In: the settings. Out: an AuthorityInForce, and the roots of the mesh wherever proxies read them from (a file). What
files say that cannot be used is logged and changes nothing; at the start it stops the process. Joins what `xds` and
`watchers` have for that; decides nothing itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final

from cryptography import x509

from aggregator.app.metrics import Metric
from aggregator.app.settings import Settings, SettingsError
from watchers.watching import Watch, places_of
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority, CertificateAuthorityError, utc_now
from xds.server.certificate_files import load_authority, load_roots
from xds.server.server_certificate import Given, ServerCertificateSource, Signed

log = logging.getLogger(__name__)

ROOTS_FILE: Final = "ca.crt"
"""The roots of the mesh beside a server certificate that is given, as cert-manager puts them there."""
_LONGEST_WAIT: Final = 3600.0


def read_authority(settings: Settings, *, kept: bool) -> AuthorityInForce:
    """Who signs; nobody yet where the authority is `kept` in a Secret.

    Raises SettingsError and CertificateAuthorityError.
    """
    overlap = timedelta(seconds=settings.root_overlap)
    if not settings.issue_certificates:
        if settings.server_certificate is None:
            problem = "nobody signs the certificate of --xds where certificates are not issued here"
            raise SettingsError(settings.origin("issue_certificates"), problem, "give one with --server-certificate")
        if settings.cacerts is not None:
            problem = "a CA to sign with is of no use where certificates are not issued here"
            cure = "leave out one of --cacerts and --no-issue-certificates"
            raise SettingsError(settings.origin("cacerts"), problem, cure)
        return AuthorityInForce(None, roots=_given_roots(settings), overlap=overlap)
    return AuthorityInForce(None if kept else _own(settings), overlap=overlap)


def is_kept(settings: Settings) -> bool:
    """Whether the authority is to be kept in a Secret of home, where home can keep one."""
    return settings.issue_certificates and settings.cacerts is None and settings.ca_secret is not None


def server_certificate(settings: Settings, authority: AuthorityInForce) -> ServerCertificateSource:
    """What the TLS ports present. Raises CertificateAuthorityError."""
    if settings.server_certificate is None:
        return Signed(authority, settings.xds_names)
    given = Given(settings.server_certificate)
    try:
        given.present()
    except CertificateAuthorityError as error:
        raise CertificateAuthorityError(f"{settings.origin('server_certificate')}: {error}") from None
    return given


async def follow(settings: Settings, authority: AuthorityInForce) -> None:
    """Gives the authority what its files say after every change, and does in time what is to be done; never ends.

    Raises SourceError if the files cannot be watched.
    """
    directory = settings.cacerts if settings.issue_certificates else settings.server_certificate
    if directory is None:
        await asyncio.Event().wait()
        return
    path = directory.absolute()
    while True:
        places = await asyncio.to_thread(lambda: places_of(path, frozenset([os.path.realpath(path)])))
        async with Watch(path, places) as watch:
            # Once more even at the start: what changed before the watch was in place is found now.
            await _read_again(directory, authority)
            due = authority.advance()
            seconds = _LONGEST_WAIT if due is None else max(0.0, (due - utc_now()).total_seconds())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, _LONGEST_WAIT)):
                    await watch.change()


def expiries(authority: AuthorityInForce) -> Iterable[Metric]:
    """A source of metrics: when the signer ends, and the first of the roots that are trusted."""
    signer = authority.signer
    ends: dict[tuple[str, ...], float] = {}
    if signer is not None:
        ends["signer",] = signer.expires.timestamp()
    if authority.roots:
        ends["root",] = min(root.not_valid_after_utc for root in authority.roots).timestamp()
    yield Metric(
        name="isthmus.certificate.authority.expiry.timestamp",
        kind="gauge",
        unit="s",
        labels=("certificate",),
        help="When the signing authority ends, with all above it, and the first of the roots that are trusted, in "
        "seconds of Unix time.",
        values=ends,
    )


def write_roots(settings: Settings, authority: AuthorityInForce) -> None:
    """Writes the roots to the file of the settings, whole or not at all, since proxies may be reading it.

    Raises SettingsError.
    """
    path = settings.root_cert_out
    if path is None:
        return
    staged = path.with_name(f".{path.name}.new")
    try:
        staged.write_text(authority.root_certificates)
        staged.replace(path)
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror or error}"
        raise SettingsError(settings.origin("root_cert_out"), problem, "check path and permissions") from None


def _own(settings: Settings) -> CertificateAuthority:
    if settings.cacerts is not None:
        try:
            return load_authority(settings.cacerts)
        except CertificateAuthorityError as error:
            raise CertificateAuthorityError(f"{settings.origin('cacerts')}: {error}") from None
    log.warning(
        "signing with a root of its own",
        extra={"cause": "it is given none", "effect": "certificates are worth nothing after a restart"},
    )
    return CertificateAuthority.self_signed(settings.trust_domain)


def _given_roots(settings: Settings) -> tuple[x509.Certificate, ...]:
    """The roots beside the server certificate; those who show a client certificate are judged by them."""
    directory = settings.server_certificate
    if directory is None or (settings.xds_mtls is None and not (directory / ROOTS_FILE).exists()):
        return ()
    try:
        return load_roots(directory / ROOTS_FILE)
    except CertificateAuthorityError as error:
        raise CertificateAuthorityError(f"{settings.origin('server_certificate')}: {error}") from None


async def _read_again(directory: Path, authority: AuthorityInForce) -> None:
    try:
        if authority.signer is not None:
            authority.use(await asyncio.to_thread(load_authority, directory))
        elif authority.roots:
            authority.trust(await asyncio.to_thread(load_roots, directory / ROOTS_FILE))
    except CertificateAuthorityError as error:
        log.error("the certificate authority stays as it is", extra={"cause": str(error)})
