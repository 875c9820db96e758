"""Rules of `watchers.kubernetes.newest`: which credential requests are sent with."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.clock import virtual_time
from tests.kit.kube_api import Hang, KubeCluster
from tests.kit.kube_session import MemorySession
from watchers.kubernetes.kubeconfig import ApiServer, InvalidKubeconfig
from watchers.kubernetes.newest import NewestSession
from watchers.kubernetes.session import Broken

NODES = "/api/v1/nodes"


class Sessions:
    """Opens sessions with one fake cluster."""

    def __init__(self) -> None:
        self.cluster = KubeCluster()
        self.opened: list[MemorySession] = []

    def open(self, server: ApiServer) -> MemorySession:
        if server.token == "bad":
            raise InvalidKubeconfig("token", "is bad", "use another")
        self.opened.append(MemorySession(self.cluster, server.token))
        return self.opened[-1]


def server(token: str) -> ApiServer:
    return ApiServer("https://kube.example", token=token)


@virtual_time
async def test_the_newest_credential_is_used_and_the_old_session_is_closed() -> None:
    sessions = Sessions()
    newest = NewestSession(sessions.open)
    for token in ("a", "a", "b"):
        newest.use(server(token))
        assert (await newest.send("GET", NODES, {}, seconds=5)).status == 200
    await asyncio.sleep(0)
    assert [request.token for request in sessions.cluster.requests] == ["a", "a", "b"]
    assert [session.closed for session in sessions.opened] == [True, False]
    await newest.close()
    assert sessions.opened[1].closed


@virtual_time
async def test_nothing_is_opened_before_something_is_sent() -> None:
    sessions = Sessions()
    newest = NewestSession(sessions.open)
    for token in ("a", "b", "c"):
        newest.use(server(token))
    await newest.close()
    assert sessions.opened == []


@virtual_time
async def test_without_a_credential_that_can_be_used_a_request_is_broken() -> None:
    newest = NewestSession(Sessions().open)
    with pytest.raises(Broken, match="no credential"):
        await newest.send("GET", NODES, {}, seconds=5)
    newest.use(server("bad"))
    with pytest.raises(Broken, match="is bad"):
        await newest.send("GET", NODES, {}, seconds=5)


@virtual_time
async def test_a_request_is_waited_for_no_longer_than_it_may_take() -> None:
    sessions = Sessions()
    sessions.cluster.script(Hang())
    newest = NewestSession(sessions.open)
    newest.use(server("a"))
    with pytest.raises(Broken) as broken:
        await newest.send("GET", NODES, {}, seconds=3)
    assert broken.value.reason == "timeout"
    assert asyncio.get_running_loop().time() == 3


@virtual_time
async def test_objects_are_read_with_the_newest_credential_as_well() -> None:
    sessions = Sessions()
    newest = NewestSession(sessions.open)
    with pytest.raises(Broken, match="no credential"):
        async with newest.get(NODES, {}, silence=5.0):
            pass
    for token in ("one", "two"):
        newest.use(server(token))
        async with newest.get(NODES, {}, silence=5.0) as response:
            assert response.status == 200
    assert [request.token for request in sessions.cluster.requests] == ["one", "two"]
    await newest.close()
