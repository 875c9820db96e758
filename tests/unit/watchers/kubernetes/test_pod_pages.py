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


class Server:
    """An API server: pods by selector, and what each path answers besides."""

    def __init__(self) -> None:
        self.url = ""
        self.pods: dict[str, list[dict[str, Any]]] = {}
        self.answers: dict[str, tuple[int, Mapping[str, Any]]] = {}

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer t1":
            return web.json_response(refusal(401, "Unauthorized"), status=401)
        if request.path in self.answers:
            status, body = self.answers[request.path]
            return web.json_response(body, status=status)
        return web.json_response({"items": self.pods.get(request.query.get("labelSelector", ""), [])})


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
    server.answers = {f"{ROOT}/{name}:15014/proxy/clusters": (200, {"of": name}) for name in "ab"}
    assert await ask(server, tmp_path) == [
        PodPage("a", 200, b'{"of": "a"}'),
        PodPage("b", 200, b'{"of": "b"}'),
    ]


async def test_a_refusal_of_the_api_server_is_told_from_one_of_the_pod(server: Server, tmp_path: Path) -> None:
    server.pods = {"app=isthmus": [pod("a"), pod("b")]}
    server.answers = {
        f"{ROOT}/a:15014/proxy/clusters/x": (404, {"error": "no cluster 'x'", "clusters": []}),
        f"{ROOT}/b:15014/proxy/clusters/x": (403, refusal(403, "pods b is forbidden")),
    }
    found = await ask(server, tmp_path, path="/clusters/x")
    assert (found[0].status, found[0].problem) == (404, "")
    assert found[1].problem == "cannot ask pod b: pods b is forbidden; you need to be allowed to get pods/proxy"


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
