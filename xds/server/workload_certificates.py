"""Workload certificates over SDS: for a stream, the certificate of its own identity and the roots of the mesh.

For proxies without an agent that would make a key and ask for a certificate. Key and certificate are made here, for the
identity the stream has proven and no other, kept only as long as the stream, and renewed at half their life. What the
view of the stream holds besides (certificates of hosts) is passed through, so that to the session it is one type.

The version of a certificate says which roots it stands on and until when it is good, so that a proxy that comes back
with one that is good is not sent another: a restart of the control plane renews nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from xxhash import xxh3_64_digest

from xds.encoded import Encoded, Resource, wrap
from xds.messages.secret import (
    ROOTS,
    SECRET_TYPE,
    WORKLOAD_CERTIFICATE,
    KeyPair,
    TrustedRoots,
    encode_key_pair,
    encode_roots,
)
from xds.server.authentication import Identity
from xds.server.certificate_authority import DEFAULT_LIFETIME, CertificateAuthority, CertificateAuthorityError
from xds.session.content import Changes, State, Subscription

logger = logging.getLogger(__name__)

RETRY: Final = 60.0
"""Seconds until a renewal that failed is tried again."""
_ISSUER, _MOMENT = 6, 5


class WorkloadCertificates:
    """A Subscription to secrets: those of one identity, and those of `view` (None: no others)."""

    def __init__(
        self,
        authority: CertificateAuthority,
        identity: Identity,
        view: Subscription | None,
        bell: Callable[[], None],
        *,
        lifetime: float = DEFAULT_LIFETIME.total_seconds(),
        now: Callable[[], float] = time.time,
    ) -> None:
        """`lifetime` of a certificate is in seconds; `bell` is rung when one was renewed."""
        self._authority = authority
        self._identity = identity
        self._view = view
        self._bell = bell
        self._lifetime = lifetime
        self._now = now
        roots = authority.root_certificates.encode()
        self._issuer = xxh3_64_digest(roots)[:_ISSUER]
        self._own: dict[str, Resource] = {ROOTS: wrap(SECRET_TYPE, ROOTS, encode_roots(TrustedRoots(ROOTS, roots)))}
        self._renewed = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> State:
        """That of the view; what is made here is always known."""
        return self._view.state if self._view is not None else "settled"

    @property
    def pending(self) -> bool:
        """Whether a certificate was renewed, or the view has changes."""
        return self._renewed or (self._view is not None and self._view.pending)

    def take(self) -> Changes:
        """What changed."""
        changes = self._view.take() if self._view is not None else Changes({})
        if not self._renewed:
            return changes
        self._renewed = False
        own = {WORKLOAD_CERTIFICATE: self._own[WORKLOAD_CERTIFICATE]}
        return Changes({**changes.changes, **own}, changes.causes, changes.revision)

    def get(self, name: str) -> Resource | None:
        """The secret of that name."""
        if name == WORKLOAD_CERTIFICATE and name not in self._own:
            self._renew()
        return self._own.get(name) or (self._view.get(name) if self._view is not None else None)

    def known(self, name: str) -> bool:
        """Whether there is such a secret."""
        return name in (WORKLOAD_CERTIFICATE, ROOTS) or (self._view is not None and self._view.known(name))

    def final(self, name: str) -> bool:
        """What is made here is; of the view's secrets the view knows."""
        return name in (WORKLOAD_CERTIFICATE, ROOTS) or (self._view is not None and self._view.final(name))

    def items(self) -> Iterable[tuple[str, Resource]]:
        """All secrets."""
        return self._items()

    def _items(self) -> Iterator[tuple[str, Resource]]:
        for name in (WORKLOAD_CERTIFICATE, ROOTS):
            resource = self.get(name)
            if resource is not None:
                yield name, resource
        if self._view is not None:
            yield from self._view.items()

    def current(self, name: str, version: str) -> bool:
        """Whether the version a proxy names is as good as the one it would be sent."""
        resource = self._own.get(name)
        if name != WORKLOAD_CERTIFICATE:
            resource = resource or self.get(name)
            return resource is not None and resource.version == version
        if resource is not None and resource.version == version:
            return True
        moment = self._moment(version)
        if moment is None or moment <= self._now():
            return False
        self._wake_at(moment)
        return True

    def close(self) -> None:
        """Forgets the key."""
        if self._timer is not None:
            self._timer.cancel()
        self._own.clear()
        if self._view is not None:
            self._view.close()

    def _renew(self) -> None:
        """Makes a key and a certificate for it, and sets the time for the next."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            *chain, _roots = self._authority.issue(key.public_key(), self._identity, int(self._lifetime))
        except CertificateAuthorityError as error:
            extra = {"identity": str(self._identity), "cause": str(error)}
            logger.error("workload certificate not issued", extra=extra)
            self._wake_at(self._now() + RETRY)
            return
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        data = encode_key_pair(KeyPair(WORKLOAD_CERTIFICATE, "".join(chain).encode(), pem)).data
        half = min(self._lifetime, self._authority.expires.timestamp() - self._now()) / 2
        moment = self._now() + half
        version = self._issuer + int(moment).to_bytes(_MOMENT, "big") + secrets.token_bytes(16 - _ISSUER - _MOMENT)
        self._own[WORKLOAD_CERTIFICATE] = wrap(SECRET_TYPE, WORKLOAD_CERTIFICATE, Encoded(data, version))
        self._wake_at(moment)

    def _wake_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(1.0, moment - self._now())
        self._timer = asyncio.get_running_loop().call_later(delay, self._turn)

    def _turn(self) -> None:
        self._renew()
        if WORKLOAD_CERTIFICATE in self._own:
            self._renewed = True
            self._bell()

    def _moment(self, version: str) -> float | None:
        """Until when a certificate of that version is good; None if it is none of ours."""
        try:
            digest = bytes.fromhex(version)
        except ValueError:
            return None
        if len(digest) != 16 or not digest.startswith(self._issuer):
            return None
        return float(int.from_bytes(digest[_ISSUER : _ISSUER + _MOMENT], "big"))
