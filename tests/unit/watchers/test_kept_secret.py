"""A Secret that is made once, whoever makes it, and shown to nobody."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import pytest

from tests.kit.clock import virtual_time
from tests.kit.kube_api import Hang, KubeCluster, Refuse
from tests.kit.kube_session import MemorySession
from watchers.kept_secret import KeptSecret, Unobtainable

ENTRIES = {"key": b"\x00private", "cert": b"public"}


def kept(cluster: KubeCluster) -> KeptSecret:
    return KeptSecret(MemorySession(cluster), "istio-system", "ca")


async def test_one_that_is_not_there_is_read_as_nothing() -> None:
    assert await kept(KubeCluster()).read() is None


async def test_what_is_made_is_read_again() -> None:
    cluster = KubeCluster()
    assert await kept(cluster).make(ENTRIES) == ENTRIES
    assert await kept(cluster).read() == ENTRIES


async def test_of_two_who_make_it_both_get_what_the_first_made() -> None:
    cluster = KubeCluster()
    other = {"key": b"other"}
    for made in await asyncio.gather(kept(cluster).make(ENTRIES), kept(cluster).make(other)):
        assert made == ENTRIES


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_who_may_not_is_told_what_to_grant(verb: str) -> None:
    cluster = KubeCluster()
    cluster.forbidden.add("Secret")
    secret = kept(cluster)
    with pytest.raises(Unobtainable, match=f"istio-system/ca.*grant this process {verb} on secrets"):
        await (secret.read() if verb == "get" else secret.make(ENTRIES))


@virtual_time
async def test_a_server_that_does_not_answer_is_not_waited_for_without_end() -> None:
    cluster = KubeCluster()
    cluster.script(Hang())
    with pytest.raises(Unobtainable):
        await kept(cluster).read()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"data": {"key": "%"}}',
        b'{"data": {"key": 1}}',
        b'{"data": "' + b64encode(b"secret") + b'"}',
        b"[" * 100_000,
        b"\xff",
    ],
)
async def test_an_answer_that_is_no_secret_is_none_and_is_not_shown(body: bytes) -> None:
    cluster = KubeCluster()
    cluster.script(Refuse(200, body=body))
    with pytest.raises(Unobtainable, match=r"istio-system/ca: what answers is no Secret$"):
        await kept(cluster).read()


async def test_an_error_is_told_without_what_was_sent() -> None:
    cluster = KubeCluster()
    cluster.script(Refuse(500, message="went wrong"))
    with pytest.raises(Unobtainable) as caught:
        await kept(cluster).make(ENTRIES)
    assert "private" not in str(caught.value)
    assert b64encode(ENTRIES["key"]).decode() not in str(caught.value)
