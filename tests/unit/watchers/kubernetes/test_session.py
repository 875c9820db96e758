"""Rules of `watchers.kubernetes.session`, on loopback: who is dialled, with what, and what becomes of trouble."""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from tests.kit.certificates import Issuer, host_pair, p256, pem
from watchers.kubernetes import session as sessions
from watchers.kubernetes import tls
from watchers.kubernetes.kubeconfig import ApiServer, InvalidKubeconfig
from watchers.kubernetes.session import Broken, Session
from watchers.kubernetes.tls import TLS_BUFFER, lower_tls_buffers, tls_context

AUTHORITY = Issuer("kubernetes")
CA = pem(AUTHORITY.certificate).decode()
Handler = Callable[[web.Request], Coroutine[None, None, web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server on loopback; yields its URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def server_tls(tmp_path: Path, *names: str, ask_client: bool = False) -> ssl.SSLContext:
    certificate, key = host_pair(*names, issuer=AUTHORITY)
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=CA)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    context.verify_mode = ssl.CERT_REQUIRED if ask_client else ssl.CERT_NONE
    return context


async def fetch(server: ApiServer, path: str = "/api/v1/pods", *, silence: float = 5.0) -> tuple[int, bytes]:
    async with Session(server) as session, session.get(path, {"limit": "5"}, silence=silence) as response:
        return response.status, b"".join([chunk async for chunk in response.chunks()])


async def echo(request: web.Request) -> web.Response:
    """What was asked, and how."""
    lines = [request.path_qs, *(f"{name}: {value}" for name, value in request.headers.items())]
    return web.Response(text="\n".join(lines))


async def test_a_request_says_who_asks_and_no_more() -> None:
    async with serving(echo) as url:
        status, body = await fetch(ApiServer(url, token="t0k3n"))
    path, *headers = body.decode().splitlines()
    assert (status, path) == (200, "/api/v1/pods?limit=5")
    assert {header for header in headers if not header.startswith("Host")} == {
        "Accept: application/json",
        "Accept-Encoding: identity",
        "User-Agent: isthmus",
        "Authorization: Bearer t0k3n",
    }


async def test_what_is_sent_arrives_whole_and_the_whole_answer_comes_back() -> None:
    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        said = f"{request.method} {request.path_qs} {request.content_type} {request.headers['Authorization']} "
        return web.Response(status=409, text=said + body.decode(), headers={"Retry-After": "3"})

    async with serving(receive) as url, Session(ApiServer(f"{url}/base", token="t0k3n")) as session:
        reply = await session.send(
            "PATCH", "/api/v1/x", {"force": "true"}, b"{}", content_type="application/apply-patch+yaml", seconds=5
        )
    assert reply.body == b"PATCH /base/api/v1/x?force=true application/apply-patch+yaml Bearer t0k3n {}"
    assert (reply.status, reply.headers["retry-after"]) == (409, "3")


async def test_an_answer_to_what_is_sent_has_to_be_whole_in_time_and_of_bounded_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.01)

    async def flood(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 101)

    async with serving(drip) as url, Session(ApiServer(url)) as session:
        with pytest.raises(Broken, match="no answer") as broken:
            await session.send("POST", "/api/v1/x", {}, b"{}", seconds=0.2)
    assert broken.value.reason == "timeout"
    monkeypatch.setattr(sessions, "LONGEST_REPLY", 100)
    async with serving(flood) as url, Session(ApiServer(url)) as session:
        with pytest.raises(Broken, match="too long"):
            await session.send("POST", "/api/v1/x", {}, b"{}", seconds=5)


async def test_a_base_path_comes_before_every_path() -> None:
    async with serving(echo) as url:
        _, body = await fetch(ApiServer(f"{url}/k8s/clusters/c-1"))
    assert body.startswith(b"/k8s/clusters/c-1/api/v1/pods?")


async def test_nothing_of_the_environment_applies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    for name, value in (
        ("HTTP_PROXY", "http://127.0.0.1:1"),
        ("http_proxy", "http://127.0.0.1:1"),
        ("NETRC", str(netrc)),
    ):
        monkeypatch.setenv(name, value)
    async with serving(echo) as url:
        status, body = await fetch(ApiServer(url))
    assert status == 200
    assert b"Authorization" not in body


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://169.254.169.254/"})

    async with serving(elsewhere) as url:
        assert (await fetch(ApiServer(url)))[0] == 302


async def test_a_list_is_compressed_only_where_that_is_wanted() -> None:
    async def compressing(_: web.Request) -> web.Response:
        response = web.Response(text="x" * 10_000)
        response.enable_compression()
        return response

    async with serving(compressing) as url:
        for compressed in (True, False):
            async with (
                Session(ApiServer(url), compressed=compressed) as session,
                session.get("/", {}, silence=5) as response,
            ):
                assert b"".join([chunk async for chunk in response.chunks()]) == b"x" * 10_000
                assert response.headers.get("Content-Encoding") == ("gzip" if compressed else None)


async def test_a_proxy_is_used_where_one_is_named() -> None:
    async with serving(echo) as proxy:
        status, body = await fetch(ApiServer("http://api.example", proxy_url=proxy))
    assert status == 200
    assert b"Host: api.example" in body


async def test_the_name_in_the_certificate_may_be_another(tmp_path: Path) -> None:
    async with serving(echo, server_tls(tmp_path, "kubernetes.default.svc")) as url:
        server = ApiServer(url, ca_data=CA, tls_server_name="kubernetes.default.svc")
        assert (await fetch(server))[0] == 200
        with pytest.raises(Broken, match="certificate") as caught:
            await fetch(ApiServer(url, ca_data=CA))
    assert caught.value.reason == "connect"


async def test_without_an_authority_of_its_own_the_systems_are_trusted(tmp_path: Path) -> None:
    async with serving(echo, server_tls(tmp_path, "localhost")) as url:
        with pytest.raises(Broken, match="certificate"):
            await fetch(ApiServer(url))


async def test_only_what_is_insecure_by_allowance_is_not_verified(tmp_path: Path) -> None:
    async with serving(echo, server_tls(tmp_path, "elsewhere")) as url:
        assert (await fetch(ApiServer(url, insecure=True)))[0] == 200


async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    certificate, key = host_pair("reader", issuer=AUTHORITY)

    async def who(request: web.Request) -> web.Response:
        assert request.transport is not None
        return web.Response(text=str(request.transport.get_extra_info("peercert")["subject"]))

    async with serving(who, server_tls(tmp_path, "localhost", ask_client=True)) as url:
        server = ApiServer(url, ca_data=CA, client_certificate=certificate.decode(), client_key=key.decode())
        _, body = await fetch(server)
    assert b"reader" in body


def test_a_client_certificate_leaves_no_descriptor_open() -> None:
    certificate, key = host_pair("reader")
    before = len(list(Path("/proc/self/fd").iterdir()))
    tls_context(ApiServer("https://x", client_certificate=certificate.decode(), client_key=key.decode()))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_pair_that_does_not_fit_is_refused() -> None:
    certificate, _ = host_pair("reader")
    _, key = host_pair("reader")
    with pytest.raises(InvalidKubeconfig, match="no pair"):
        tls_context(ApiServer("https://x", client_certificate=certificate.decode(), client_key=key.decode()))


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it() -> None:
    key = p256()
    certificate, _ = host_pair("reader", key=key)
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    with pytest.raises(InvalidKubeconfig, match="without password"):
        tls_context(ApiServer("https://x", client_certificate=certificate.decode(), client_key=sealed.decode()))


@pytest.mark.parametrize("ca", ["-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "-----BEGIN X-----"])
def test_an_authority_that_cannot_be_read_is_refused(ca: str) -> None:
    with pytest.raises(InvalidKubeconfig, match="certificate-authority-data"):
        tls_context(ApiServer("https://x", ca_data=ca))


async def test_a_name_that_resolves_to_the_machines_own_services_is_not_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolve(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with pytest.raises(Broken, match="machine's own services"):
        await fetch(ApiServer("http://rebound.example"))


async def test_silence_before_an_answer_and_within_it_is_bounded() -> None:
    asked: list[str] = []

    async def silent(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        response = web.StreamResponse()
        if request.path == "/half":
            await response.prepare(request)
            await response.write(b"half")
        await asyncio.Event().wait()
        return response

    async with serving(silent) as url:
        for path in ("/none", "/half"):
            with pytest.raises(Broken) as caught:
                await fetch(ApiServer(url), path, silence=0.05)
            assert caught.value.reason == "timeout"
    assert asked == ["/none", "/half"]


async def test_a_body_that_breaks_off_is_broken() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving(cut) as url:
        with pytest.raises(Broken) as caught:
            await fetch(ApiServer(url))
    assert caught.value.reason == "server"


async def test_a_closed_port_and_an_unknown_name_are_no_connection(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    for server in (f"http://127.0.0.1:{unused_tcp_port}", "http://no-such-host.invalid"):
        with pytest.raises(Broken) as caught:
            await fetch(ApiServer(server))
        assert caught.value.reason == "connect"


async def test_a_connection_serves_one_request_after_the_other() -> None:
    ports: set[object] = set()

    async def count(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        return web.Response(text="x")

    async with serving(count) as url, Session(ApiServer(url)) as session:
        for _ in range(3):
            async with session.get("/", {}, silence=5) as response:
                assert [chunk async for chunk in response.chunks()] == [b"x"]
    assert len(ports) == 1


async def test_a_token_file_is_read_again_after_a_minute_and_after_a_refusal(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    now = 1000.0
    seen: list[str] = []

    async def who(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"].removeprefix("Bearer "))
        return web.Response(status=401 if seen[-1] == "second" else 200)

    async with serving(who) as url, Session(ApiServer(url, token_file=str(file)), clock=lambda: now) as session:

        async def ask() -> None:
            async with session.get("/", {}, silence=5):
                pass

        await ask()
        file.write_text("second")
        await ask()
        now += 61
        await ask()
        file.write_text("third")
        await ask()
        file.unlink()
        now += 61
        await ask()
    assert seen == ["first", "first", "second", "third", "third"]


async def test_a_token_file_that_was_never_readable_is_no_connection(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="cannot be read"):
        await fetch(ApiServer("http://127.0.0.1:1", token_file=str(tmp_path / "absent")))


async def test_no_repr_shows_a_token() -> None:
    async with Session(ApiServer("https://x", token="t0k3n")) as session:
        assert "t0k3n" not in repr(session)


@pytest.fixture
def whole_buffers() -> Iterator[None]:
    before = sslproto.SSLProtocol.max_size
    sslproto.SSLProtocol.max_size = 256 * 1024
    yield
    sslproto.SSLProtocol.max_size = before


@pytest.mark.usefixtures("whole_buffers")
async def test_connections_hold_small_buffers(tmp_path: Path) -> None:
    async with serving(echo, server_tls(tmp_path, "localhost")) as url:
        assert (await fetch(ApiServer(url, ca_data=CA)))[0] == 200
    assert sslproto.SSLProtocol.max_size == TLS_BUFFER


@pytest.mark.usefixtures("whole_buffers")
def test_buffers_are_never_made_larger() -> None:
    assert lower_tls_buffers(1 << 30)
    assert sslproto.SSLProtocol.max_size == 256 * 1024


def test_where_asyncio_has_no_such_buffer_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "sslproto", type("module", (), {"SSLProtocol": object}))
    assert not lower_tls_buffers()


async def test_the_connection_asks_whether_its_other_end_is_alive() -> None:
    made = sessions._socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1)))
    with made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000


def test_the_authorities_of_the_system_are_read_once_and_not_at_all_where_nothing_is_verified() -> None:
    shared = tls_context(ApiServer("https://x", token="t"))
    assert tls_context(ApiServer("https://y")) is shared
    assert shared.verify_mode is ssl.CERT_REQUIRED
    assert tls_context(ApiServer("https://x", insecure=True)).cert_store_stats()["x509_ca"] == 0


@pytest.mark.parametrize("host", ["xn--a", "xn--a.", "xn--bcher-kva.example", "a_b", "[fd00::1]", "10.0.0.1"])
async def test_where_it_leads_is_told_as_it_is_dialled(host: str) -> None:
    async with Session(ApiServer(f"https://{host}:6443", insecure=True)) as session:
        assert session.access.server == f"{host}:6443"
