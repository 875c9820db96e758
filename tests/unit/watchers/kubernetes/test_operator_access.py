from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from watchers.kubernetes.operator_access import FIELD_MANAGER, Refusal, operator

PASSWORD = "hunter2-hunter2"
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "eyes", "namespace": "mesh"}}


class Server:
    """An API server that answers everything with one status, and remembers what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.body: Any = {"message": "because"}
        self.asked: list[tuple[str, str, Mapping[str, str], str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        content_type = request.headers.get("Content-Type", "")
        self.asked.append((request.method, request.path, dict(request.query), content_type))
        assert request.headers["Authorization"] == f"Bearer {PASSWORD}"
        return web.json_response(self.body, status=self.status)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    fake = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


def kubeconfig(directory: Path, server: str, user: Mapping[str, Any] | None = None, **fields: Any) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": dict(user if user is not None else {"token": PASSWORD})}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
        **fields,
    }
    path = directory / "config"
    path.write_text(yaml.safe_dump(document))
    return path


async def refused(path: Path, context: str | None = None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        async with operator(path, context, seconds=5.0) as there:
            await there.apply(ACCOUNT)
    assert PASSWORD not in str(caught.value)
    return caught.value


async def test_manifests_are_applied_on_the_servers_side_by_a_manager_of_their_own(
    server: Server, tmp_path: Path
) -> None:
    async with operator(kubeconfig(tmp_path, server.url), "here") as there:
        await there.apply(ACCOUNT)
        await there.apply({**ACCOUNT, "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"})
    query = {"fieldManager": FIELD_MANAGER}
    apply = "application/apply-patch+yaml"
    assert server.asked == [
        ("PATCH", "/api/v1/namespaces/mesh/serviceaccounts/eyes", query, apply),
        ("PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/mesh/roles/eyes", query, apply),
    ]


async def test_a_token_comes_with_the_time_the_server_granted(server: Server, tmp_path: Path) -> None:
    server.status = 201
    server.body = {"status": {"token": "made", "expirationTimestamp": "2026-01-01T00:00:00Z"}}
    async with operator(kubeconfig(tmp_path, server.url), None) as there:
        token = await there.create_token("mesh", "eyes", 600.0)
    assert (token.text, token.expires) == ("made", 1767225600.0)
    assert "made" not in repr(token)
    assert server.asked[0][:2] == ("POST", "/api/v1/namespaces/mesh/serviceaccounts/eyes/token")


@pytest.mark.parametrize(
    ("status", "cure"), [(401, "log in again"), (403, "use a context that may"), (409, "--rotate"), (422, "correct")]
)
async def test_what_a_server_refuses_is_told_with_its_reason_and_a_cure(
    server: Server, tmp_path: Path, status: int, cure: str
) -> None:
    server.status = status
    refusal = await refused(kubeconfig(tmp_path, server.url))
    assert (refusal.trouble, refusal.status) == ("refused", status)
    assert "apply ServiceAccount eyes" in str(refusal)
    assert "because" in str(refusal) and cure in str(refusal)


async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    refusal = await refused(kubeconfig(tmp_path, "http://127.0.0.1:1"))
    assert refusal.trouble == "unreachable"
    assert "http://127.0.0.1:1" in str(refusal)


async def test_a_context_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    refusal = await refused(kubeconfig(tmp_path, "http://127.0.0.1:1"), "elsewhere")
    assert refusal.trouble == "kubeconfig"
    assert "--context" in str(refusal) and "'elsewhere'" in str(refusal) and "name one of here" in str(refusal)


async def test_a_kubeconfig_without_a_current_context_needs_one_to_be_named(tmp_path: Path) -> None:
    refusal = await refused(kubeconfig(tmp_path, "http://127.0.0.1:1", None, **{"current-context": ""}))
    assert "--context" in str(refusal)


@pytest.mark.parametrize(
    ("text", "cause"), [("contexts: [", "is no YAML"), ("- 1", "is no kubeconfig"), ("\x00", "is no YAML")]
)
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    refusal = await refused(path)
    assert refusal.trouble == "kubeconfig"
    assert str(path) in str(refusal) and cause in str(refusal)


@pytest.mark.parametrize(
    "fields",
    [
        {"clusters": []},
        {"clusters": [{"name": "c", "cluster": {"server": 1}}]},
        {"users": [{"name": "u", "user": {"token": PASSWORD, "exec": {"args": [PASSWORD]}}}]},
        {"users": [{"name": "u", "user": {"token": PASSWORD, "auth-provider": {"name": "oidc"}}}]},
        {"users": [{"name": "u", "user": {"client-certificate": "/nowhere", "token": PASSWORD}}]},
        {"users": [{"token": PASSWORD}]},
    ],
)
async def test_a_kubeconfig_that_is_broken_is_told_without_what_it_holds(
    tmp_path: Path, fields: Mapping[str, Any]
) -> None:
    refusal = await refused(kubeconfig(tmp_path, "https://127.0.0.1:1", **fields))
    assert refusal.trouble in ("kubeconfig", "unreachable")


async def test_a_program_that_logs_in_is_run(server: Server, tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": PASSWORD}}
    program = {
        "apiVersion": version,
        "command": sys.executable,
        "args": ["-c", f"import json; print(json.dumps({credential!r}))"],
    }
    async with operator(kubeconfig(tmp_path, server.url, {"exec": program}), None) as there:
        await there.apply(ACCOUNT)
    assert len(server.asked) == 1


async def test_a_program_that_fails_to_log_in_is_told_with_what_it_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", "import sys; sys.exit('please log in')"],
    }
    refusal = await refused(kubeconfig(tmp_path, "http://127.0.0.1:1", {"exec": program}))
    assert "please log in" in str(refusal)
    assert capfd.readouterr().err == ""
