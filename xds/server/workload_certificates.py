"""Workload certificates over SDS: for a stream, the certificate of its own identity and the roots of the mesh.

For proxies without an agent that would make a key and ask for a certificate. Key and certificate are made here, for the
identity the stream has proven and no other, kept only as long as the stream, and renewed at half their life. What the
view of the stream holds besides (certificates of hosts) is passed through, so that to the session it is one type; it
can say nothing under the names that stand for the proxy's own.

The version of a certificate says for whom it is, who signed it and until when it is good, so that a proxy that comes
back with one that is good is not sent another: a restart of the control plane renews nothing. When another authority
signs, all are renewed; when the roots change, they alone are told.
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
from cryptography.x509 import load_pem_x509_certificate
from xxhash import xxh3_64_digest

from xds.encoded import DIGEST_SIZE, Encoded, Resource, wrap
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
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import DEFAULT_LIFETIME, CertificateAuthorityError
from xds.session.content import Changes, Releases, State, Subscription

logger = logging.getLogger(__name__)

RETRY: Final = 60.0
"""Seconds until a renewal that failed is tried again."""
_OWN: Final = (WORKLOAD_CERTIFICATE, ROOTS)
# The parts of a version, in bytes: who issued it to whom, until when it is good, and chance.
_ISSUE, _MOMENT, _CHANCE = 6, 5, 5


class WorkloadCertificates:
    """A Subscription to secrets: those of one identity, and those of `view` (None: no others)."""

    def __init__(
        self,
        authority: AuthorityInForce,
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
        self._signed_by = b""
        self._roots = ""
        self._issue = b""
        self._own: dict[str, Resource] = {}
        self._changed: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._read_authority()
        self._unlisten = authority.listen(self._turn_over)

    @property
    def state(self) -> State:
        """That of the view; what is made here is always known."""
        return self._view.state if self._view is not None else "settled"

    @property
    def pending(self) -> bool:
        """Whether something of its own was renewed, or the view has changes."""
        return bool(self._changed) or (self._view is not None and self._view.pending)

    def take(self) -> Changes:
        """What changed."""
        taken = self._view.take() if self._view is not None else Changes({})
        changes = {name: resource for name, resource in taken.changes.items() if name not in _OWN}
        changes.update((name, self._own[name]) for name in _OWN if name in self._changed)
        self._changed.clear()
        return Changes(changes, taken.causes, taken.revision)

    def get(self, name: str) -> Resource | None:
        """The secret of that name. The certificate is made when it is first asked for."""
        if name in _OWN:
            if name not in self._own:
                self._renew()
            return self._own.get(name)
        return self._view.get(name) if self._view is not None else None

    def known(self, name: str) -> bool:
        """Whether there is such a secret."""
        return name in _OWN or (self._view is not None and self._view.known(name))

    def final(self, name: str) -> bool:
        """What is made here is; of the view's secrets the view knows."""
        return name in _OWN or (self._view is not None and self._view.final(name))

    def items(self) -> Iterable[tuple[str, Resource]]:
        """All secrets."""
        return self._items()

    def _items(self) -> Iterator[tuple[str, Resource]]:
        for name in _OWN:
            resource = self.get(name)
            if resource is not None:
                yield name, resource
        if self._view is not None:
            yield from ((name, resource) for name, resource in self._view.items() if name not in _OWN)

    def current(self, name: str, version: str) -> bool:
        """Whether the version a proxy names is as good as the one it would be sent; then it is renewed in its time."""
        if name not in _OWN:
            return self._view is not None and self._view.current(name, version)
        resource = self._own.get(name)
        if resource is not None and resource.version == version:
            return True
        if name == ROOTS:
            return False
        moment = self._moment(version)
        if moment is None or not self._now() < moment <= self._now() + self._lifetime:
            return False
        self._wake_at(moment)
        return True

    def release(self, names: Iterable[str]) -> None:
        """As the view does; what is made here is kept."""
        view: object = self._view
        if isinstance(view, Releases):
            view.release(names)

    def close(self) -> None:
        """Forgets the key."""
        self._unlisten()
        if self._timer is not None:
            self._timer.cancel()
        self._own.clear()
        if self._view is not None:
            self._view.close()

    def _renew(self) -> bool:
        """Makes a key and a certificate for it, and sets the time for the next; false if there will be none so far."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            *chain, _roots = self._authority.issue(key.public_key(), self._identity, int(self._lifetime))
        except CertificateAuthorityError as error:
            extra = {"identity": str(self._identity), "cause": str(error)}
            logger.error("workload certificate not issued", extra=extra)
            self._wake_at(self._now() + RETRY)
            return False
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        data = encode_key_pair(KeyPair(WORKLOAD_CERTIFICATE, "".join(chain).encode(), pem)).data
        end = load_pem_x509_certificate(chain[0].encode()).not_valid_after_utc
        moment = end.timestamp()
        signer = self._authority.signer
        if signer is not None and end < signer.expires:  # else no renewal would last longer
            moment -= (moment - self._now()) / 2
        version = self._issue + int(moment).to_bytes(_MOMENT, "big") + secrets.token_bytes(_CHANCE)
        self._own[WORKLOAD_CERTIFICATE] = wrap(SECRET_TYPE, WORKLOAD_CERTIFICATE, Encoded(data, version))
        self._wake_at(moment)
        return True

    def _wake_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(1.0, moment - self._now())
        self._timer = asyncio.get_running_loop().call_later(delay, self._turn)

    def _turn(self) -> None:
        if self._renew():
            self._changed.add(WORKLOAD_CERTIFICATE)
            self._bell()

    def _read_authority(self) -> None:
        """What stands in a version for the authority, and the roots as they are to be told."""
        signer = self._authority.signer
        self._signed_by = signer.fingerprint if signer is not None else b""
        self._issue = xxh3_64_digest(str(self._identity).encode() + b"\0" + self._signed_by)[:_ISSUE]
        self._roots = self._authority.root_certificates
        self._own[ROOTS] = wrap(SECRET_TYPE, ROOTS, encode_roots(TrustedRoots(ROOTS, self._roots.encode())))

    def _turn_over(self) -> None:
        """The authority in force says that it is another one, or that other roots are trusted."""
        signed_by, roots = self._signed_by, self._roots
        self._read_authority()
        if roots != self._roots:
            self._changed.add(ROOTS)
        # Of one that is in use a renewal is due some time, be it that the proxy came back with it.
        if signed_by != self._signed_by and self._timer is not None and self._renew():
            self._changed.add(WORKLOAD_CERTIFICATE)
        if self._changed:
            self._bell()

    def _moment(self, version: str) -> float | None:
        """Until when a certificate of that version is good; None if it is none for this identity from these roots."""
        try:
            digest = bytes.fromhex(version)
        except ValueError:
            return None
        if len(digest) != DIGEST_SIZE or not digest.startswith(self._issue):
            return None
        return float(int.from_bytes(digest[_ISSUE : _ISSUE + _MOMENT], "big"))
