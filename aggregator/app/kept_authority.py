"""The certificate authority of a process that is kept in a Secret of home, for all processes and for the next one.

In: the Secret. Out: the first authority of an AuthorityInForce, and whatever follows it there. Imported only where home
is an API server. Decides nothing itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from watchers.kept_secret import Unobtainable
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority, CertificateAuthorityError, utc_now
from xds.server.certificate_files import CERTIFICATE_FILE, ROOT_FILE, contents_of, read_authority

log = logging.getLogger(__name__)

LOOK_AGAIN: Final = 60.0
"""Seconds after which the Secret is read again."""
RETRY: Final = 5.0
"""Seconds after which it is tried again to begin."""


class Secret(Protocol):
    """Where an authority is kept; `watchers.kept_secret.KeptSecret` is one. Its text names it."""

    async def read(self) -> Mapping[str, bytes] | None:
        """Its entries; None if there is no such Secret. Raises Unobtainable."""

    async def make(self, entries: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Makes it with these entries; returns those it has. Raises Unobtainable."""


async def obtain(authority: AuthorityInForce, secret: Secret, trust_domain: str) -> None:
    """Begins with the authority in a Secret, which is made if there is none. Tries until it succeeds: without an
    authority nobody can connect, and with one of its own this process would be no part of the mesh.
    """
    trouble = ""
    while True:
        try:
            entries = await secret.read()
            if entries is None:
                made = await asyncio.to_thread(CertificateAuthority.self_signed, trust_domain)
                entries = await secret.make(contents_of(made))
            # In a thread: to prove an RSA key takes longer than the event loop may be kept.
            authority.begin(await asyncio.to_thread(_from_secret, entries, secret))
        except (Unobtainable, CertificateAuthorityError) as error:
            if str(error) != trouble:
                trouble = str(error)
                log.error("no certificate authority yet", extra={"cause": trouble})
            await asyncio.sleep(RETRY)
        else:
            return


async def follow_secret(authority: AuthorityInForce, secret: Secret) -> None:
    """Gives the authority what its Secret says, now and then, and does in time what is to be done; never ends.

    A Secret that cannot be used changes nothing, and one that is gone is made again, so that whoever starts next does
    not begin below a root that is new to everybody.
    """
    known: Mapping[str, bytes] | None = None
    while True:
        due = authority.advance()
        seconds = LOOK_AGAIN if due is None else max(0.0, (due - utc_now()).total_seconds())
        await asyncio.sleep(min(seconds, LOOK_AGAIN))
        try:
            entries = await secret.read()
            if entries is None:
                signer = authority.signer
                if signer is not None:
                    await secret.make(contents_of(signer))
                    extra = {"object_name": str(secret)}
                    log.warning("the certificate authority's Secret was gone, and is made again", extra=extra)
            elif entries != known:
                authority.use(await asyncio.to_thread(_from_secret, entries, secret))
                known = entries
        except (Unobtainable, CertificateAuthorityError) as error:
            log.error("the certificate authority stays as it is", extra={"cause": str(error)})


def _from_secret(entries: Mapping[str, bytes], secret: Secret) -> CertificateAuthority:
    """The authority in a Secret of ours, or in one that Istio made, which may leave empty what does not apply."""
    contents = {name: value for name, value in entries.items() if value}
    if CERTIFICATE_FILE in contents:
        contents.setdefault(ROOT_FILE, contents[CERTIFICATE_FILE])
    return read_authority(contents, Path(str(secret)))
