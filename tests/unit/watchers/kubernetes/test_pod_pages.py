from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.kit.kubeconfigs import kubeconfig
from watchers.kubernetes.operator_access import Refusal, operator
from watchers.kubernetes.pod_pages import PodPage, pod_pages

ROOT = "/api/v1/namespaces/mesh/pods"


def pod(name: str, phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {}}, "status": {"phase": phase}}


def refusal(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}


def said(status: int, body: bytes) -> list[tuple[int, bytes]]:
    """An answer on the channel of data."""
    return [(0, b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))]


class Server:
    """An API server: pods by selector, what each path answers besides, and what pods say to whom a port leads there.

    ``said`` is, by pod, what comes back on which channel; ``heard`` what pods were asked, and on which port.
    """

    def __init__(self) -> None:
        self.url = ""
        self.pods: dict[str, list[dict[str, Any]]] = {}
        self.answers: dict[str, tuple[int, Mapping[str, Any]]] = {}
        self.said: dict[str, list[tuple[int, bytes]]] = {}
        self.heard: dict[str, tuple[str, bytes]] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer t1":
            return web.json_response(refusal(401, "Unauthorized"), status=401)
        if request.headers.get("Upgrade") == "websocket" and request.path not in self.answers:
            return await self._forward(request)
        if request.path in self.answers:
            status, body = self.answers[request.path]
            return web.json_response(body, status=status)
        return web.json_response({"items": self.pods.get(request.query.get("labelSelector", ""), [])})

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        """As a kubelet does."""
        pod, _, last = request.path.removeprefix(f"{ROOT}/").partition("/")
        assert last == "portforward"
        port = request.query["ports"]
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes((channel,)) + int(port).to_bytes(2, "little"))
        self.heard[pod] = port, (await socket.receive()).data
        for channel, data in self.said[pod]:
            await socket.send_bytes(bytes((channel,)) + data)
        await socket.close()
        return socket


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    fake = Server()
    app = web.Application()
    app.router.add_get("/{path:.*}", fake.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


async def ask(server: Server, directory: Path, token: str = "t1", path: str = "/clusters") -> list[PodPage]:
    file = directory / "config"
    file.write_bytes(kubeconfig(server.url, token))
    async with operator(file, None, seconds=5.0) as there:
        return await pod_pages(there, "mesh", path)


async def test_every_pod_that_runs_is_asked_at_its_admin_port(server: Server, tmp_path: Path) -> None:
    server.pods = {
        "app=isthmus": [pod("b"), pod("old", "Succeeded")],
        "app.kubernetes.io/name=isthmus": [pod("a"), pod("b")],
    }
    server.said = {name: said(200, name.encode()) for name in "ab"}
    assert await ask(server, tmp_path) == [PodPage("a", 200, b"a"), PodPage("b", 200, b"b")]
    port, request = server.heard["a"]
    assert port == "15014"
    # On the channel of data, and by the name under which pages are open on loopback.
    assert request.startswith(b"\x00GET /clusters HTTP/1.1\r\nHost: localhost\r\n")
    assert b"t1" not in request


async def test_a_refusal_of_the_api_server_is_told_from_one_of_the_pod(server: Server, tmp_path: Path) -> None:
    server.pods = {"app=isthmus": [pod("a"), pod("b")]}
    server.said = {"a": said(403, b"forbidden")}
    server.answers = {f"{ROOT}/b/portforward": (403, refusal(403, "pods b is forbidden"))}
    found = await ask(server, tmp_path, path="/clusters/x")
    assert found[0] == PodPage("a", 403, b"forbidden")
    assert found[1].status == 0
    assert found[1].problem.startswith(f"cannot ask pod b: {server.url} answers 403; ")
    assert found[1].problem.endswith("; you need to be allowed to get and create pods/portforward")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([(1, b"error forwarding port 15014 to pod: connection\nrefused")], "15014 to pod: connection refused"),
        ([], "the connection ended without an answer"),
        ([(0, b"SSH-2.0-OpenSSH\r\n\r\n")], "what answers speaks no HTTP"),
        ([(0, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")], "what answers speaks no HTTP"),
        ([(7, b""), (0, b"")], "the connection ended without an answer"),
    ],
)
async def test_a_pod_that_does_not_answer_is_a_problem_of_its_own(
    server: Server, tmp_path: Path, words: list[tuple[int, bytes]], says: str
) -> None:
    server.pods = {"app=isthmus": [pod("a"), pod("b")]}
    server.said = {"a": words, "b": said(200, b"b")}
    found = await ask(server, tmp_path)
    assert (found[0].status, found[0].problem.startswith("cannot ask pod a: ")) == (0, True)
    assert says in found[0].problem
    assert found[1] == PodPage("b", 200, b"b")


async def test_an_answer_may_come_in_pieces(server: Server, tmp_path: Path) -> None:
    server.pods = {"app=isthmus": [pod("a")]}
    server.said = {"a": [(0, bytes((byte,))) for _, data in said(200, b"whole") for byte in data]}
    assert await ask(server, tmp_path) == [PodPage("a", 200, b"whole")]


async def test_without_a_pod_it_says_where_it_looked(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no pod of a control plane runs in namespace mesh; name another with -n"):
        await ask(server, tmp_path)


@pytest.mark.parametrize(
    ("answer", "says"),
    [((403, refusal(403, "pods is forbidden")), "pods is forbidden"), ((200, {"items": 3}), "the answer is no list")],
)
async def test_pods_that_cannot_be_listed_are_a_refusal(
    server: Server, tmp_path: Path, answer: tuple[int, Mapping[str, Any]], says: str
) -> None:
    server.answers = {ROOT: answer}
    with pytest.raises(Refusal, match=f"cannot list pods in namespace mesh: {says}"):
        await ask(server, tmp_path)


async def test_no_message_shows_the_credential(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        await ask(server, tmp_path, token="hush-hush")
    assert "hush-hush" not in str(refused.value)


async def test_an_api_server_that_is_not_there_is_a_refusal(server: Server, tmp_path: Path) -> None:
    server.url = "http://127.0.0.1:1"
    with pytest.raises(Refusal, match="is not reached"):
        await ask(server, tmp_path)
