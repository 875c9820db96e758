"""The authority that is kept in a Secret: made once, shared, and followed by the next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest

from aggregator.app.kept_authority import LOOK_AGAIN, RETRY, follow_secret, obtain
from tests.kit.clock import virtual_time
from watchers.kept_secret import Unobtainable
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority
from xds.server.certificate_files import contents_of


class Secret:
    """A Secret in memory; while it is in `trouble` nothing can be read or made."""

    def __init__(self) -> None:
        self.entries: Mapping[str, bytes] | None = None
        self.trouble = ""

    def __str__(self) -> str:
        return "Secret istio-system/ca"

    async def read(self) -> Mapping[str, bytes] | None:
        if self.trouble:
            raise Unobtainable(self.trouble)
        return self.entries

    async def make(self, entries: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if self.trouble:
            raise Unobtainable(self.trouble)
        if self.entries is None:
            self.entries = entries
        return self.entries


async def obtained(secret: Secret) -> AuthorityInForce:
    authority = AuthorityInForce(None, overlap=timedelta(0))
    await obtain(authority, secret, "cluster.local")
    return authority


async def test_it_is_made_once_and_is_the_same_for_all_who_come_later() -> None:
    secret = Secret()
    first, second = await obtained(secret), await obtained(secret)
    assert first.root_certificates == second.root_certificates
    assert first.signer is not None
    assert second.signer is not None
    assert first.signer.signs_as(second.signer)


async def test_processes_that_start_at_once_have_one_root() -> None:
    secret = Secret()
    roots = {one.root_certificates for one in await asyncio.gather(*(obtained(secret) for _ in range(3)))}
    assert len(roots) == 1


async def test_that_of_an_istiod_is_taken_over() -> None:
    made = CertificateAuthority.self_signed("cluster.local")
    secret, theirs = Secret(), contents_of(made)
    del theirs["root-cert.pem"]
    secret.entries = {**theirs, "cert-chain.pem": b"", "key.pem": b""}
    assert (await obtained(secret)).root_certificates == made.root_certificates


@virtual_time
async def test_without_one_it_is_tried_again_and_the_reason_told_once(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret()
    secret.trouble = "Secret istio-system/ca: forbidden"
    waiting = asyncio.create_task(obtained(secret))
    await asyncio.sleep(3 * RETRY)
    assert not waiting.done()
    assert [getattr(record, "cause", "") for record in caplog.records] == [secret.trouble]
    secret.trouble = ""
    await asyncio.sleep(RETRY)
    assert (await waiting).signer is not None


@virtual_time
async def test_one_that_cannot_be_used_is_never_replaced(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret()
    secret.entries = {**contents_of(CertificateAuthority.self_signed("a")), "ca-key.pem": b"nonsense"}
    before = dict(secret.entries)
    waiting = asyncio.create_task(obtained(secret))
    await asyncio.sleep(3 * RETRY)
    assert not waiting.done()
    assert "Secret istio-system/ca/ca-key.pem: holds no private key" in str(caplog.records[0].__dict__["cause"])
    assert secret.entries == before
    waiting.cancel()


@virtual_time
async def test_another_authority_in_the_secret_follows() -> None:
    secret = Secret()
    authority = await obtained(secret)
    following = asyncio.create_task(follow_secret(authority, secret))
    other = CertificateAuthority.self_signed("cluster.local")
    secret.entries = contents_of(other)
    await asyncio.sleep(LOOK_AGAIN + 1)
    assert authority.signer is not None
    assert authority.signer.signs_as(other)
    following.cancel()


@virtual_time
@pytest.mark.parametrize("wrong", ["unreadable", "unusable"])
async def test_a_secret_that_says_nothing_usable_changes_nothing(wrong: str) -> None:
    secret = Secret()
    authority = await obtained(secret)
    before, entries = authority.root_certificates, secret.entries
    following = asyncio.create_task(follow_secret(authority, secret))
    if wrong == "unreadable":
        secret.trouble = "away"
    else:
        secret.entries = {"ca-cert.pem": b"nonsense"}
    await asyncio.sleep(3 * LOOK_AGAIN)
    assert authority.root_certificates == before
    secret.trouble, secret.entries = "", entries
    await asyncio.sleep(LOOK_AGAIN)
    assert not following.done()
    following.cancel()


@virtual_time
async def test_a_secret_that_is_gone_is_made_again_with_what_is_in_force() -> None:
    secret = Secret()
    authority = await obtained(secret)
    following = asyncio.create_task(follow_secret(authority, secret))
    secret.entries = None
    await asyncio.sleep(LOOK_AGAIN + 1)
    assert (await obtained(secret)).root_certificates == authority.root_certificates
    following.cancel()
