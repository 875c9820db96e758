"""The certificate authority in force: who signs now and what the mesh trusts, while one authority follows another.

In: certificate authorities, as they are given one after another. Out: certificates, and the roots that every proxy has
to trust. A proxy that does not trust a new root yet would refuse whoever shows a certificate below it, so a root is
trusted for the time of an overlap before anything is signed below it, and an old one for as long as there is a
certificate below it. All that somebody who replaces an authority has to do is to give the new one. Pure but for the
time it is given; certificates may be asked for from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509

from xds.server.authentication import Identity
from xds.server.certificate_authority import (
    DEFAULT_LIFETIME,
    CertificateAuthority,
    CertificateAuthorityError,
    PublicKey,
    ServerCertificate,
    bundle,
    lifetime_of,
    utc_now,
)

logger = logging.getLogger(__name__)

OVERLAP: Final = DEFAULT_LIFETIME
"""How long a root is trusted before anything is signed below it: by then every proxy has renewed its certificate once,
and was told of the root with it."""
_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)


class AuthorityInForce:
    """One authority after another. Without any (None, and `roots` alone) certificates come from somebody else, or the
    first authority is still to come (`begin`).

    `listen` tells of every change of the signer or of the roots.
    """

    def __init__(
        self,
        authority: CertificateAuthority | None,
        *,
        roots: Sequence[x509.Certificate] = (),
        overlap: timedelta = OVERLAP,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._signer = authority
        self._overlap = overlap
        self._now = now
        self._given: tuple[x509.Certificate, ...] = authority.roots if authority is not None else tuple(roots)
        self._trusted_since = dict.fromkeys(self._given, _ALWAYS)
        self._following: CertificateAuthority | None = None
        # Of each root, when the last certificate below it ends. Server certificates are asked for by other threads.
        self._ends: dict[x509.Certificate, datetime] = {}
        self._lock = threading.Lock()
        self._bells: dict[object, Callable[[], None]] = {}
        self.roots: tuple[x509.Certificate, ...] = self._given
        """All roots that are trusted now, that of the signer first."""
        self.root_certificates: str = bundle(self._given)
        """The same in PEM."""

    @property
    def signer(self) -> CertificateAuthority | None:
        """Who signs now; None: nobody here."""
        return self._signer

    def issue(self, public_key: PublicKey, identity: Identity, seconds: int = 0) -> tuple[str, ...]:
        """As `CertificateAuthority.issue`; raises CertificateAuthorityError as well where nobody signs here."""
        signer = self._required()
        chain = signer.issue(public_key, identity, seconds)
        self._note(signer, lifetime_of(seconds))
        return chain

    def issue_server(self, names: Sequence[str]) -> ServerCertificate:
        """As `CertificateAuthority.issue_server`; raises CertificateAuthorityError as well where nobody signs here."""
        signer = self._required()
        certificate = signer.issue_server(names)
        self._note(signer, DEFAULT_LIFETIME)
        return certificate

    def begin(self, authority: CertificateAuthority) -> None:
        """This authority is the first: nobody trusts another one yet, so it signs at once."""
        self._signer, self._given = authority, authority.roots
        self._trusted_since.update(dict.fromkeys(self._given, _ALWAYS))
        self._settle(signed_by_another=True)

    def use(self, authority: CertificateAuthority) -> None:
        """This authority is given now: trust its roots at once, and let it sign as soon as that breaks nothing."""
        present = self._signer
        if present is None:
            raise CertificateAuthorityError("certificates come from another authority: restart with one of its own")
        self._given = authority.roots
        now = self._now()
        for root in authority.roots:
            self._trusted_since.setdefault(root, now)
        self._following = None if authority.signs_as(present) else authority
        if self._following is not None and now < self._due(authority):
            extra = {"cause": _name(authority.roots[0]), "until": self._due(authority).isoformat(timespec="seconds")}
            logger.warning("a new root is trusted from now on, and signs later", extra=extra)
        self.advance()

    def trust(self, roots: Sequence[x509.Certificate]) -> None:
        """These are the roots now, where nobody signs here."""
        self._given = tuple(roots)
        self._trusted_since.update(dict.fromkeys(self._given, _ALWAYS))
        self._settle()

    def advance(self) -> datetime | None:
        """Does what is due now; returns when something will be due next, None if nothing."""
        following = self._following
        if following is not None and self._now() >= self._due(following):
            logger.warning("certificates are signed by another authority", extra={"cause": _name(following.roots[0])})
            self._signer, self._following = following, None
            self._settle(signed_by_another=True)
        else:
            self._settle()
        return self._next()

    def listen(self, bell: Callable[[], None]) -> Callable[[], object]:
        """Calls `bell` after every change from now on; what is returned ends that."""
        listener = object()
        self._bells[listener] = bell
        return lambda: self._bells.pop(listener, None)

    def _settle(self, *, signed_by_another: bool = False) -> None:
        """Trust what is given, what signs, and what is above some certificate; tell if that is anything new."""
        now = self._now()
        with self._lock:
            self._ends = {root: end for root, end in self._ends.items() if end > now}
            roots = tuple(dict.fromkeys((*self._own_root(), *self._given, *self._ends)))
        changed = roots != self.roots
        if changed:
            self.roots, self.root_certificates = roots, bundle(roots)
            self._trusted_since = {root: self._trusted_since[root] for root in roots}
            kept = ", ".join(_name(root) for root in roots if root not in self._given)
            if kept:
                logger.warning("roots that are not given any more are still trusted", extra={"cause": kept})
        if self._signer is not None and self._signer.roots != roots:
            self._signer = self._signer.trusting(roots)
        if changed or signed_by_another:
            for bell in tuple(self._bells.values()):
                bell()

    def _own_root(self) -> tuple[x509.Certificate, ...]:
        return self._signer.roots[:1] if self._signer is not None else ()

    def _next(self) -> datetime | None:
        with self._lock:
            moments = [end for root, end in self._ends.items() if root not in self._given]
        if self._following is not None:
            moments.append(self._due(self._following))
        return min(moments, default=None)

    def _due(self, authority: CertificateAuthority) -> datetime:
        since = self._trusted_since[authority.roots[0]]
        # An authority that has expired makes way at once: what it signed has expired as well.
        latest = self._signer.expires if self._signer is not None else _ALWAYS
        return since if since == _ALWAYS else min(since + self._overlap, latest)

    def _required(self) -> CertificateAuthority:
        if self._signer is None:
            raise CertificateAuthorityError("no certificates are issued here: ask the authority of the mesh")
        return self._signer

    def _note(self, signer: CertificateAuthority, lifetime: timedelta) -> None:
        root = signer.roots[0]
        end = min(self._now() + lifetime, signer.expires)
        with self._lock:
            self._ends[root] = max(end, self._ends.get(root, end))


def _name(root: x509.Certificate) -> str:
    return f"{root.subject.rfc4514_string()}, serial {root.serial_number:x}"
