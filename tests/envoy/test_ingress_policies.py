"""Policies of annotations as visitors see them: a real Envoy enforces each, and refuses nothing it is told."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.ingress_gateway import APPLICATION, GATEWAY, IngressGateway, answer
from tests.kit.ports import free_port

NGINX = "nginx.ingress.kubernetes.io/"
OTHER = "127.9.0.40"
"""A further address of loopback that no other test uses."""


@pytest.fixture
async def gateway(tmp_path: Path, binary: Path) -> AsyncIterator[IngressGateway]:
    """A gateway with nothing to serve."""
    async with IngressGateway(tmp_path, binary) as gateway:
        yield gateway


def annotated(host: str, service: str = "web", *, path: str = "/", **annotations: str) -> m.Manifest:
    """An Ingress in `shop` with annotations; `__` stands for `-` in their names."""
    name = f"shop/{host.replace('.', '-')}{path.replace('/', '-').rstrip('-')}"
    made = m.ingress(name, host, service, path=path)
    given = {f"{NGINX}{key.replace('__', '-')}": value for key, value in annotations.items()}
    return {**made, "metadata": {**made["metadata"], "annotations": given}}


async def answers(gateway: IngressGateway, status: int, host: str, path: str = "/", **fields: Any) -> None:
    """Waits until a visitor is answered so."""
    await gateway.answers(status, host, path, tls=False, **fields)


def refused_nothing(gateway: IngressGateway) -> bool:
    return gateway.refused() == []


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Servers:
    """Applications of a test beside the one behind shop/web."""

    def __init__(self) -> None:
        self.running: list[asyncio.Server] = []

    async def __call__(self, handler: Handler, *, port: int = 0, tls: ssl.SSLContext | None = None) -> int:
        """Serves at OTHER; returns the port."""
        port = port or free_port(OTHER)
        self.running.append(await asyncio.start_server(handler, OTHER, port, ssl=tls))
        return port


@pytest.fixture
async def serve() -> AsyncIterator[Servers]:
    servers = Servers()
    yield servers
    for one in servers.running:
        one.close()


def saying(status: int, *headers: str) -> Handler:
    """Answers each request with a status, and with what it was."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                seen = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                told = 200 if seen.get("authorization") == "good" else status
                body = json.dumps({"request": head[0], "headers": seen}).encode()
                lines = [f"HTTP/1.1 {told} Whatever", *headers, f"content-length: {len(body)}", "", ""]
                writer.write("\r\n".join(lines).encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()

    return handler


async def reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request when it has read all of its body."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        if "transfer-encoding: chunked" in head:
            await reader.readuntil(b"0\r\n\r\n")
        elif "content-length: " in head:
            await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass
    writer.close()


def service(name: str, port: int, *, address: str = OTHER, number: int = 80, **fields: Any) -> list[m.Manifest]:
    """A Service and its one pod outside of the mesh."""
    place, _, own = name.rpartition("/")
    return [
        m.service(name, "10.96.0.9", ports={"http": (number, port)}, selector={"app": own}, **fields),
        m.pod(f"{place}/{own}-1", address, labels={"app": own}, ambient=False),
    ]


def sha(password: str) -> str:
    digest = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
    return "{SHA}" + base64.b64encode(digest).decode()


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def post(gateway: IngressGateway, host: str, body: bytes, *, path: str = "/", chunked: bool = False) -> int:
    """The status for a request with a body."""
    reader, writer = await asyncio.open_connection(gateway.http.host, gateway.http.port)
    how = "transfer-encoding: chunked" if chunked else f"content-length: {len(body)}"
    sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    writer.write(f"POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{how}\r\n\r\n".encode() + sent)
    status = int((await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)).split(b" ")[1])
    writer.close()
    return status


async def test_filters_that_no_route_switches_on_let_everything_pass(gateway: IngressGateway, serve: Servers) -> None:
    port = await serve(reading)
    gateway.apply(*service("shop/reading", port), m.ingress("shop/plain", "plain.example", "reading"))
    await answers(gateway, 200, "plain.example")
    assert await post(gateway, "plain.example", b"x" * 100_000) == 200
    listeners = await gateway.holds("dynamic_listeners")
    text = json.dumps(listeners)
    for name in ("basic_auth", "ext_authz", "local_ratelimit", "body_size", "stateful_session", "custom_response"):
        assert name in text
    assert refused_nothing(gateway)
    assert not any((await gateway.envoy.stats("update_rejected")).values())


async def test_clients_are_let_in_by_their_addresses(gateway: IngressGateway) -> None:
    gateway.apply(
        annotated("in.example", whitelist__source__range="10.0.0.0/8, 127.0.0.0/8"),
        annotated("out.example", whitelist__source__range="10.0.0.0/8"),
        annotated("denied.example", denylist__source__range="127.0.0.0/8"),
        annotated("both.example", allowlist__source__range="0.0.0.0/0", denylist__source__range="127.0.0.1"),
        annotated("wrong.example", whitelist__source__range="127.0.0.0/99"),
        annotated("v6.example", whitelist__source__range="2001:db8::/32, 127.0.0.0/8"),
    )
    await answers(gateway, 200, "in.example")
    await answers(gateway, 403, "out.example")
    await answers(gateway, 403, "denied.example")
    await answers(gateway, 403, "both.example")
    await answers(gateway, 503, "wrong.example")
    await answers(gateway, 200, "v6.example")
    assert refused_nothing(gateway)


async def test_requests_are_limited_by_client_and_bodies_by_length(gateway: IngressGateway, serve: Servers) -> None:
    port = await serve(reading)
    gateway.apply(
        *service("shop/reading", port),
        annotated("rate.example", limit__rpm="2", limit__burst__multiplier="2"),
        annotated("both.example", limit__rps="100", limit__rpm="1", limit__burst__multiplier="3"),
        annotated("body.example", "reading", proxy__body__size="10"),
        annotated("large.example", "reading", proxy__body__size="1k"),
        annotated("endless.example", "reading", proxy__body__size="0"),
    )
    await answers(gateway, 200, "endless.example")
    await answers(gateway, 200, "both.example")
    await answers(gateway, 200, "rate.example")
    assert [await gateway.status("rate.example", tls=False) for _ in range(5)] == [200, 200, 200, 503, 503]
    assert [await gateway.status("both.example", tls=False) for _ in range(4)] == [200, 200, 503, 503]
    assert await post(gateway, "body.example", b"x" * 10) == 200
    assert await post(gateway, "body.example", b"x" * 11) == 413
    assert await post(gateway, "body.example", b"x" * 11, chunked=True) == 413
    assert await post(gateway, "large.example", b"x" * 1024) == 200
    assert await post(gateway, "large.example", b"x" * 1025) == 413
    assert await post(gateway, "endless.example", b"x" * 2_000_000) == 200
    assert refused_nothing(gateway)


async def test_users_of_a_secret_are_let_in_and_nobody_without_it(gateway: IngressGateway) -> None:
    asked = {"auth__type": "basic", "auth__secret": "people"}
    gateway.apply(annotated("a.example", **asked), annotated("open.example"))
    await answers(gateway, 200, "open.example")
    await answers(gateway, 503, "a.example")
    lines = f"# people\nann:{sha('secret')}\nbob:$apr1$x$y\nann:{sha('other')}\n"
    gateway.apply(m.secret("shop/people", auth=lines.encode()))
    await answers(gateway, 401, "a.example")
    assert await gateway.status("a.example", tls=False, headers=basic("ann", "secret")) == 200
    assert await gateway.status("a.example", tls=False, headers=basic("ann", "other")) == 401
    assert await gateway.status("a.example", tls=False, headers=basic("bob", "x")) == 401
    assert await gateway.status("a.example", tls=False, headers=basic("nobody", "")) == 401
    gateway.apply(m.secret("shop/people", auth=f"bob:{sha('new')}".encode()))
    await answers(gateway, 200, "a.example", headers=basic("bob", "new"))
    assert await gateway.status("a.example", tls=False, headers=basic("ann", "secret")) == 401
    gateway.delete(m.secret("shop/people", auth=b"x"))
    await answers(gateway, 503, "a.example")
    told = " ".join(map(str, gateway.plane.control.findings()))
    assert "ann" not in told.replace("annotation", "")
    assert "bob" not in told
    assert refused_nothing(gateway)


async def test_a_service_is_asked_about_requests(gateway: IngressGateway, serve: Servers) -> None:
    port = await serve(saying(401, "x-user: me", "location: /x", "x-hidden: 1", "set-cookie: k=v"))
    to = {"auth__url": "http://asked.auth.svc/check?a=%20b", "auth__response__headers": "X-User"}
    sign_in = "https://$host/login?rd=$escaped_request_uri"
    grant = m.reference_grant(
        "auth/shop", "shop", group="networking.k8s.io", kind="Ingress", target="Service"
    )
    gateway.apply(
        m.namespace("auth"),
        *service("auth/asked", port),
        annotated("a.example", **to),
        annotated("b.example", **to, auth__signin="https://login.example/in"),
        annotated("c.example", **to, auth__signin=sign_in),
        annotated("far.example", auth__url="http://169.254.169.254/latest"),
        annotated("own.example", auth__url="http://web/status", auth__response__headers="X-User,Authorization"),
    )
    await answers(gateway, 503, "a.example")
    gateway.apply(grant)
    await answers(gateway, 401, "a.example")
    refused = await gateway.get("a.example", "/orders?x=1&y=2", tls=False)
    seen = json.loads(refused.body)
    assert seen["request"] == "GET /check?a=%20b HTTP/1.1"
    assert seen["headers"]["x-original-url"] == "http://a.example/orders?x=1&y=2"
    assert seen["headers"]["x-original-method"] == "get"
    assert refused.headers["set-cookie"] == "k=v"
    assert "x-hidden" not in refused.headers
    let_in = await gateway.get("a.example", "/orders", tls=False, headers={"authorization": "good", "x-user": "liar"})
    assert let_in.status == 200
    assert json.loads(let_in.body)["headers"]["x-user"] == "me"
    await answers(gateway, 302, "b.example")
    sent = await gateway.get("b.example", "/o?x=1&rd=evil", tls=False)
    assert sent.headers["location"] == "https://login.example/in?rd=http://b.example%2Fo%3Fx%3D1%26rd%3Devil"
    sent = await gateway.get("c.example", "/o?x=1", tls=False)
    assert (sent.status, sent.headers["location"]) == (302, "https://c.example/login?rd=%2Fo%3Fx%3D1")
    assert await gateway.status("b.example", tls=False, headers={"authorization": "good"}) == 200
    assert await gateway.status("far.example", tls=False) == 503
    await answers(gateway, 200, "own.example")
    lying = {"x-user": "liar", "authorization": "mine"}
    passed = json.loads((await gateway.get("own.example", tls=False, headers=lying)).body)["headers"]
    assert "x-user" not in passed
    assert passed["authorization"] == "mine"
    assert refused_nothing(gateway)


async def test_a_401_of_the_backend_is_not_sent_to_sign_in(gateway: IngressGateway, serve: Servers) -> None:
    port = await serve(saying(401))
    asked = {"auth__url": "http://web.shop.svc/", "auth__signin": "https://login.example/"}
    gateway.apply(*service("shop/refusing", port), annotated("a.example", "refusing", **asked))
    await answers(gateway, 401, "a.example")


async def test_answers_are_replaced_by_those_of_another_service(gateway: IngressGateway, serve: Servers) -> None:
    port = await serve(saying(404))
    asked = {"custom__http__errors": "404,503", "default__backend": "web"}
    gateway.apply(
        *service("shop/failing", port),
        annotated("a.example", "failing", **asked),
        annotated("gone.example", "nothing", **asked),
        annotated("b.example", "failing"),
    )
    await answers(gateway, 404, "b.example")
    await answers(gateway, 200, "a.example")
    for host, code in (("a.example", "404"), ("gone.example", "503")):
        replaced = json.loads((await gateway.get(host, "/x/y?z=1", tls=False)).body)
        assert replaced["request"] == "GET /?z=1 HTTP/1.1"
        assert not {"x-isthmus-class", "x-isthmus-host"} & replaced["headers"].keys()
        assert replaced["headers"]["x-code"] == code
        assert replaced["headers"]["x-namespace"] == "shop"
    assert refused_nothing(gateway)


async def two_pods(gateway: IngressGateway, serve: Servers) -> None:
    """A second pod behind shop/web, on another address and the same port."""
    await serve(saying(200, "x-pod: two"), port=gateway.application.port)
    gateway.apply(m.pod("shop/web-2", OTHER, labels={"app": "web"}, ambient=False))


async def test_clients_stay_with_an_endpoint_by_cookie_or_by_what_they_ask_for(
    gateway: IngressGateway, serve: Servers
) -> None:
    await two_pods(gateway, serve)
    cookie = {"session__cookie__name": "route", "session__cookie__max__age": "60", "session__cookie__samesite": "Lax"}
    gateway.apply(
        annotated("cookie.example", affinity="cookie", **cookie, session__cookie__secure="true"),
        annotated("hash.example", upstream__hash__by="$request_uri"),
        annotated("odd.example", upstream__hash__by="${http_x_user}$cookie_c$arg_q$host$remote_addr"),
        annotated("round.example", load__balance="round_robin"),
    )
    for host in ("cookie.example", "hash.example", "odd.example", "round.example"):
        await answers(gateway, 200, host)
    first = await gateway.get("cookie.example", tls=False)
    given = first.headers["set-cookie"]
    assert given.startswith("route=")
    assert {"Max-Age=60", "SameSite=Lax", "Secure", "Path=/"} <= set(given.split("; "))
    kept = {"cookie": given.partition(";")[0]}
    pods = {(await gateway.get("cookie.example", tls=False, headers=kept)).headers.get("x-pod") for _ in range(12)}
    assert pods == {first.headers.get("x-pod")}
    by_path = [
        {(await gateway.get("hash.example", f"/{path}", tls=False)).headers.get("x-pod") for _ in range(4)}
        for path in range(16)
    ]
    assert all(len(one) == 1 for one in by_path)
    assert len({*map(frozenset, by_path)}) == 2
    turns = [(await gateway.get("round.example", tls=False)).headers.get("x-pod") for _ in range(20)]
    assert 4 <= turns.count("two") <= 16
    assert refused_nothing(gateway)


async def test_backends_are_spoken_to_by_tls_and_checked_as_asked(
    gateway: IngressGateway, serve: Servers, tmp_path: Path
) -> None:
    issuer = c.Issuer("the backends")
    chain, key = c.host_pair("pay.shop.svc.cluster.local", issuer=issuer)
    own_chain, own_key = c.host_pair("gateway.example", issuer=issuer)
    (tmp_path / "backend.pem").write_bytes(chain + key)
    (tmp_path / "backend-ca.pem").write_bytes(c.pem(issuer.certificate))
    plain_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    plain_tls.load_cert_chain(tmp_path / "backend.pem")
    mutual = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "backend-ca.pem"))
    mutual.load_cert_chain(tmp_path / "backend.pem")
    mutual.verify_mode = ssl.CERT_REQUIRED
    names: list[str | None] = []
    plain_tls.sni_callback = lambda _, name, __: names.append(name)
    port = await serve(answer, tls=plain_tls)
    mutual_port = await serve(answer, tls=mutual)
    verified = {"backend__protocol": "HTTPS", "proxy__ssl__secret": "shop/client", "proxy__ssl__verify": "on"}
    gateway.apply(
        *service("shop/pay", port),
        m.service("shop/mutual", ports={"http": (80, mutual_port)}, selector={"app": "pay"}),
        m.secret("shop/client", tls_crt=own_chain, tls_key=own_key, ca_crt=c.pem(issuer.certificate)),
        m.secret("shop/strangers", ca_crt=c.pem(c.Issuer("strangers").certificate)),
        annotated("any.example", "pay", backend__protocol="HTTPS"),
        annotated("named.example", "pay", backend__protocol="HTTPS", proxy__ssl__server__name="on"),
        annotated("good.example", "pay", **verified, proxy__ssl__protocols="TLSv1.3"),
        annotated("other.example", "pay", **verified, proxy__ssl__name="somebody.example"),
        annotated("stranger.example", "pay", **{**verified, "proxy__ssl__secret": "strangers"}),
        annotated("mutual.example", "mutual", backend__protocol="HTTPS", proxy__ssl__secret="client"),
        annotated("alone.example", "mutual", backend__protocol="HTTPS"),
        annotated("plain.example", "pay"),
        annotated("foreign.example", "pay", **{**verified, "proxy__ssl__secret": "bank/client"}),
        annotated("auto.example", "pay", backend__protocol="AUTO_HTTP"),
    )
    await answers(gateway, 200, "any.example")
    assert names[-1:] == [None]
    await answers(gateway, 200, "named.example")
    assert names[-1:] == ["pay.shop.svc.cluster.local"]
    await answers(gateway, 200, "good.example")
    await answers(gateway, 503, "other.example")
    await answers(gateway, 503, "stranger.example")
    await answers(gateway, 200, "mutual.example")
    for host in ("alone.example", "plain.example", "foreign.example"):
        assert await gateway.status(host, tls=False) in (502, 503)
    assert refused_nothing(gateway)


async def test_a_service_is_reached_at_its_own_address_unless_it_is_in_the_mesh(
    gateway: IngressGateway, serve: Servers
) -> None:
    port = await serve(answer)
    upstream = {"service__upstream": "true", "proxy__connect__timeout": "3"}
    gateway.apply(
        # Nobody listens at the pod's address: it is the Service's that answers.
        m.service("shop/own", OTHER, ports={"http": (port, 1)}, selector={"app": "own"}),
        m.pod("shop/own-1", "127.9.0.41", labels={"app": "own"}, ambient=False),
        m.service("shop/mesh", OTHER, ports={"http": (port, 1)}, selector={"app": "mesh"}),
        m.pod("shop/mesh-1", "127.9.0.42", labels={"app": "mesh"}),
    )
    own, mesh = annotated("own.example", "own", **upstream), annotated("mesh.example", "mesh", **upstream)
    for one in (own, mesh):
        one["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"] = {"number": port}
    gateway.apply(own, mesh)
    await answers(gateway, 200, "own.example")
    assert await gateway.status("mesh.example", tls=False) == 503
    assert any("in the mesh" in str(one) for one in gateway.plane.control.findings())


async def test_wrong_annotations_close_or_leave_their_own_host_and_no_other(gateway: IngressGateway) -> None:
    gateway.apply(annotated("good.example"))
    await answers(gateway, 200, "good.example")
    gateway.apply(
        annotated("digest.example", auth__type="digest", auth__secret="x"),
        annotated("typeless.example", auth__secret="x"),
        annotated("foreign.example", auth__type="basic", auth__secret="bank/people"),
        annotated("anywhere.example", auth__url="https://auth.evil.example/"),
        annotated("open.example", limit__connections="3", limit__rps="many", affinity="ip"),
    )
    for host in ("digest.example", "typeless.example", "foreign.example", "anywhere.example"):
        await answers(gateway, 503, host)
    await answers(gateway, 200, "open.example")
    assert await gateway.status("good.example", tls=False) == 200
    await eventually(lambda: len(gateway.plane.control.findings()) >= 7)
    assert refused_nothing(gateway)


PLACES = {
    "exact": ("a.foo.example", "a.foo.example"),
    "capitals": ("a.foo.example", "A.Foo.Example"),
    "wildcard": ("*.foo.example", "b.foo.example"),
    "wildcard in capitals": ("*.foo.example", "B.FOO.Example"),
    "all hosts": ("", "nobody.example"),
    "all hosts in capitals": ("", "Nobody.Example"),
}
"""The host of an Ingress, and what a visitor asks for."""
MODES: dict[str, dict[str, Any]] = {"on demand": {}, "compatible": {"mode": "compatible"}}


def protected(name: str, host: str, path: str, service: str = "web", **annotations: str) -> m.Manifest:
    given = {key.replace("__", "-"): value for key, value in annotations.items()}
    return m.ingress(f"shop/{name}", rules=[m.ingress_rule(host, (path, service, 80))], annotations=given)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", MODES)
async def test_every_policy_holds_however_its_host_is_found(
    tmp_path: Path, binary: Path, serve: Servers, mode: str, place: str
) -> None:
    host, asked = PLACES[place]
    asking, failing, reader = await serve(saying(401)), await serve(saying(404)), await serve(reading)
    async with IngressGateway(tmp_path, binary, **MODES[mode]) as gateway:
        gateway.apply(
            *service("shop/asked", asking),
            *service("shop/failing", failing),
            *service("shop/reading", reader),
            m.secret("shop/people", auth=f"ann:{sha('secret')}".encode()),
            protected("near", host, "/near", whitelist__source__range="127.0.0.0/8"),
            protected("far", host, "/far", whitelist__source__range="10.0.0.0/8"),
            protected("users", host, "/users", auth__type="basic", auth__secret="people"),
            protected(
                "asking", host, "/asking", auth__url="http://asked.shop.svc/", auth__signin="https://$host/in?rd=x"
            ),
            protected("rate", host, "/rate", limit__rpm="1", limit__burst__multiplier="2"),
            protected("body", host, "/body", "reading", proxy__body__size="10"),
            protected("cookie", host, "/cookie", affinity="cookie", session__cookie__name="route"),
            protected("errors", host, "/errors", "failing", custom__http__errors="404", default__backend="web"),
            protected("cors", host, "/cors", enable__cors="true"),
            protected("open", host, "/open"),
        )
        await gateway.answers(200, asked, "/open", tls=False)

        async def status(path: str, **fields: Any) -> int:
            return await gateway.status(asked, path, tls=False, **fields)

        assert await status("/near") == 200
        for forged in ({}, {"x-forwarded-for": "10.0.0.1"}, {"x-isthmus-again-client": "10.0.0.1"}):
            assert await status("/far", headers=forged) == 403
        assert await status("/users") == 401
        assert await status("/users", headers=basic("ann", "other")) == 401
        assert await status("/users", headers=basic("ann", "secret")) == 200
        sent = await gateway.get(asked, "/asking", tls=False)
        assert (sent.status, sent.headers["location"].lower()) == (302, f"https://{asked.lower()}/in?rd=x")
        assert await status("/asking", headers={"authorization": "good"}) == 200
        assert [await status("/rate") for _ in range(4)] == [200, 200, 503, 503]
        assert await post(gateway, asked, b"x" * 10, path="/body") == 200
        assert await post(gateway, asked, b"x" * 11, path="/body") == 413
        assert (await gateway.get(asked, "/cookie", tls=False)).headers["set-cookie"].startswith("route=")
        replaced = await gateway.get(asked, "/errors", tls=False)
        seen = json.loads(replaced.body)
        assert (replaced.status, seen["headers"]["x-code"]) == (200, "404")
        assert not [name for name in seen["headers"] if name.startswith("x-isthmus")]
        origin = {"origin": "https://else.example"}
        assert (await gateway.get(asked, "/cors", tls=False, headers=origin)).headers["access-control-allow-origin"]
        assert refused_nothing(gateway)
        assert not any((await gateway.envoy.stats("update_rejected")).values())


@pytest.mark.parametrize("asked", ["a.foo.example", "A.Foo.Example"])
async def test_a_protected_backend_behind_all_hosts_is_open_to_nobody_else(
    gateway: IngressGateway, asked: str
) -> None:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    everything = m.ingress(
        "shop/all", rules=[], spec={"defaultBackend": backend}, annotations={"denylist-source-range": "127.0.0.0/8"}
    )
    gateway.apply(everything, annotated("b.example"))
    await answers(gateway, 200, "b.example")
    await answers(gateway, 403, asked, "/any")
    assert await gateway.status("B.example", tls=False) == 200


async def test_a_canary_and_a_redirect_lead_round_no_protection(gateway: IngressGateway) -> None:
    terms = {"isthmus.io/canary": "true", "isthmus.io/canary-by-header": "try", "isthmus.io/canary-by-cookie": "try"}
    canary = m.ingress("shop/canary", "a.example", "web", annotations=terms)
    secured = gateway.secured("tls.example", annotations={"denylist-source-range": "127.0.0.0/8", "app-root": "/in"})
    gateway.apply(
        m.secret("shop/people", auth=f"ann:{sha('secret')}".encode()),
        annotated("a.example", auth__type="basic", auth__secret="people", app__root="/in"),
        canary,
        annotated("sent.example", denylist__source__range="127.0.0.0/8", permanent__redirect="https://else.example"),
        *secured,
    )
    await answers(gateway, 401, "a.example", "/in")
    for chosen in ({"try": "always"}, {"try": "never"}, {"cookie": "try=always"}, {}):
        assert await gateway.status("a.example", "/in", tls=False, headers=chosen) == 401
        let_in = {**chosen, **basic("ann", "secret")}
        assert await gateway.status("a.example", "/in", tls=False, headers=let_in) == 200
    await answers(gateway, 403, "sent.example")
    await gateway.answers(403, "tls.example", "/in")
    assert await gateway.status("tls.example", "/in", tls=False) == 308
    assert refused_nothing(gateway)


def test_addresses_are_those_of_this_file() -> None:
    assert len({OTHER, GATEWAY, APPLICATION}) == 3
