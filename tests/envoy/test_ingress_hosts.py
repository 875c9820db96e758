"""Which host of many a request is for: by name, by the wildcard over it, or every host that nobody names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.ingress_gateway import IngressGateway
from tests.kit.ports import free_port
from xds.messages.scope import SCOPED_ROUTE_TYPE


@pytest.fixture
async def gateway(tmp_path: Path, binary: Path) -> AsyncIterator[IngressGateway]:
    """A gateway with nothing to serve."""
    async with IngressGateway(tmp_path, binary) as gateway:
        yield gateway


def default_backend(name: str, service: str = "web", **fields: Any) -> m.Manifest:
    """An Ingress for all hosts; a Service that does not exist answers 503."""
    backend = {"service": {"name": service, "port": {"number": 80}}}
    return m.ingress(f"shop/{name}", rules=[], spec={"defaultBackend": backend}, **fields)


async def statuses(gateway: IngressGateway, *asked: tuple[str, str], **fields: Any) -> dict[tuple[str, str], int]:
    """What a visitor is answered who names a host, for each (host, path)."""
    found = {}
    for host, path in asked:
        found[host, path] = await gateway.status("a.foo.example", path, headers={"host": host}, **fields)
    return found


async def test_a_name_goes_before_the_wildcard_over_it_and_that_before_all_hosts(gateway: IngressGateway) -> None:
    gateway.apply(
        m.ingress("shop/exact", "a.foo.example", "web", path="/exact"),
        m.ingress("shop/wild", "*.foo.example", "web", path="/wild"),
        m.ingress("shop/wilder", "*.example", "web", path="/wilder"),
        default_backend("all", "nothing"),
    )
    await gateway.answers(200, "a.foo.example", "/exact", tls=False)
    expected = {
        ("a.foo.example", "/exact"): 200,
        ("a.foo.example", "/wild"): 404,
        ("a.foo.example", "/wilder"): 404,
        ("a.foo.example", "/"): 404,
        ("b.foo.example", "/wild"): 200,
        ("b.foo.example", "/else"): 404,
        ("b.foo.example:8080", "/wild"): 200,
        ("b.foo.example.", "/wild"): 200,
        ("x.b.foo.example", "/wild"): 503,
        ("foo.example", "/wild"): 404,
        ("foo.example", "/wilder"): 200,
        (".foo.example", "/wild"): 503,
        ("example", "/wilder"): 503,
        ("localhost", "/"): 503,
        ("127.0.0.1", "/"): 503,
        ("[::1]:80", "/"): 503,
        ("*", "/"): 503,
    }
    assert await statuses(gateway, *expected, tls=False) == expected
    assert gateway.refused() == []


@pytest.mark.parametrize("tls", [False, True])
async def test_a_host_in_capitals_is_that_host(gateway: IngressGateway, tls: bool) -> None:
    gateway.apply(
        *gateway.secured("a.foo.example", path="/secured"),
        m.ingress("shop/exact", "b.foo.example", "web", path="/exact"),
        m.ingress("shop/wild", "*.foo.example", "web", path="/wild"),
        default_backend("all", "nothing"),
    )
    await gateway.answers(200, "a.foo.example", "/secured")
    expected = {
        ("B.Foo.Example", "/exact"): 200,
        ("B.Foo.Example", "/wild"): 404,
        ("C.Foo.Example", "/wild"): 200,
        ("Foo.Example", "/wild"): 503,
    }
    assert await statuses(gateway, *expected, tls=tls) == expected


async def test_a_backend_sees_nothing_of_how_its_host_was_found(gateway: IngressGateway) -> None:
    gateway.apply(m.ingress("shop/wild", "*.foo.example", "web"), default_backend("all"))
    await gateway.answers(200, "a.foo.example", tls=False)
    for host in ("a.foo.example", "A.foo.example", "other.example"):
        headers = json.loads((await gateway.get(host, tls=False)).body)["headers"]
        assert headers["host"] == host.lower()
        assert not [name for name in headers if name.startswith("x-isthmus")]


async def test_without_a_backend_for_all_hosts_an_unknown_one_is_not_found_or_misdirected(
    gateway: IngressGateway,
) -> None:
    gateway.apply(*gateway.secured("a.foo.example"), m.ingress("shop/wild", "*.foo.example", "web", path="/wild"))
    await gateway.answers(200, "a.foo.example")
    unknown = [("example", "/"), ("x.y.foo.example", "/wild"), ("*", "/"), ("X.example", "/")]
    assert set((await statuses(gateway, *unknown, tls=False)).values()) == {404}
    assert set((await statuses(gateway, *unknown, tls=True)).values()) == {421}
    assert await statuses(gateway, ("b.foo.example", "/x"), tls=True) == {("b.foo.example", "/x"): 404}


async def test_what_a_client_sends_as_the_key_of_a_scope_has_no_effect(gateway: IngressGateway) -> None:
    gateway.apply(m.ingress("shop/a", "a.foo.example", "web", path="/a"), m.ingress("shop/b", "b.example", "web"))
    await gateway.answers(200, "a.foo.example", "/a", tls=False)
    forged = {"x-isthmus-host": "b.example", "x-isthmus-class": "default"}
    assert await gateway.status("a.foo.example", "/b", tls=False, headers=forged) == 404
    assert await gateway.status("c.example", "/b", tls=False, headers=forged) == 404


async def test_a_wildcard_with_tls_is_redirected(gateway: IngressGateway) -> None:
    gateway.apply(
        m.ingress("shop/wild", "*.foo.example", "web", secret="wild"),
        m.tls_secret("shop/wild", *gateway.pair("*.foo.example")),
    )
    await gateway.answers(308, "b.foo.example", tls=False)
    answer = await gateway.get("b.foo.example", "/x?y=z", tls=False)
    assert answer.headers["location"] == "https://b.foo.example/x?y=z"


async def test_an_exact_host_that_comes_takes_its_own_from_the_wildcard_and_gives_it_back(
    gateway: IngressGateway,
) -> None:
    gateway.apply(m.ingress("shop/wild", "*.foo.example", "web", path="/wild"))
    await gateway.answers(200, "a.foo.example", "/wild", tls=False)
    exact = m.ingress("shop/exact", "a.foo.example", "web", path="/exact")
    before = len(gateway.plane.pushes())
    gateway.apply(exact)
    await gateway.answers(200, "a.foo.example", "/exact", tls=False)
    assert await gateway.status("a.foo.example", "/wild", tls=False) == 404
    gateway.delete(exact)
    await gateway.answers(200, "a.foo.example", "/wild", tls=False)
    told = [(one.type_url, one.resources, one.removed) for one in gateway.plane.pushes()[before:]]
    assert told == [(SCOPED_ROUTE_TYPE, 1, 0), (SCOPED_ROUTE_TYPE, 0, 1)]


# Filters that routes switch on.

CORS = {"nginx.ingress.kubernetes.io/enable-cors": "true"}


def with_cors(name: str, host: str, service: str = "web", **fields: Any) -> m.Manifest:
    document = m.ingress(name, host, service, **fields)
    document["metadata"]["annotations"] = CORS
    return document


@pytest.mark.parametrize("tls", [False, True])
async def test_filters_of_a_route_are_passed_however_its_host_was_found(gateway: IngressGateway, tls: bool) -> None:
    gateway.apply(
        *gateway.secured("a.foo.example", path="/secured"),
        with_cors("shop/exact", "b.foo.example", path="/filtered"),
        m.ingress("shop/plain", "b.foo.example", "web", path="/plain"),
        with_cors("shop/wild", "*.foo.example", path="/filtered"),
        m.ingress("shop/wild-plain", "*.foo.example", "web", path="/plain"),
        with_cors("shop/all", "", path="/filtered"),
    )
    await gateway.answers(200, "a.foo.example", "/secured")
    origin = {"origin": "https://elsewhere.example"}
    for host in ("b.foo.example", "B.Foo.Example", "c.foo.example", "C.Foo.Example", "other.example", "Other"):
        answer = await gateway.get("a.foo.example", "/filtered", tls=tls, headers={"host": host, **origin})
        assert (answer.status, "access-control-allow-origin" in answer.headers) == (200, True), host
        seen = json.loads(answer.body)["headers"]
        assert (seen["host"], seen["x-forwarded-proto"]) == (host.lower(), "https" if tls else "http")
        assert not [name for name in seen if name.startswith("x-isthmus")]
        assert len(seen["x-forwarded-for"].split(",")) == 1
    for host in ("b.foo.example", "B.Foo.Example", "c.foo.example"):
        answer = await gateway.get("a.foo.example", "/plain", tls=tls, headers={"host": host, **origin})
        assert (answer.status, "access-control-allow-origin" in answer.headers) == (200, False), host
    assert gateway.refused() == []


async def test_bodies_and_websockets_go_through_the_gateway_a_second_time(gateway: IngressGateway) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"upgrade: websocket" in head:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        while data := await reader.read(1 << 16):
            writer.write(data)
            if data.endswith(b"end"):
                break
        writer.close()

    port = free_port("127.9.0.40")
    server = await asyncio.start_server(echo, "127.9.0.40", port)
    gateway.apply(
        m.service("shop/echo", ports={"http": (80, port)}, selector={"app": "echo"}),
        m.pod("shop/echo-1", "127.9.0.40", labels={"app": "echo"}, ambient=False),
        with_cors("shop/wild", "*.foo.example", service="echo"),
        m.ingress("shop/ready", "ready.example", "web"),
    )
    await gateway.answers(200, "ready.example", tls=False)

    async def exchange(head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(gateway.http.host, gateway.http.port, limit=1 << 20)
        writer.write(head + b"\r\nhost: a.foo.example\r\n\r\n" + body)
        async with asyncio.timeout(5):
            answer = await reader.readuntil(b"end")
        writer.close()
        return answer

    body = b"x" * 300_000 + b"end"
    posted = await exchange(b"POST / HTTP/1.1\r\ncontent-length: %d" % len(body), body)
    assert posted.startswith(b"HTTP/1.1 200 ")
    assert posted.count(b"x") >= 300_000
    upgraded = await exchange(b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket", b"to the end")
    assert upgraded.startswith(b"HTTP/1.1 101 ")
    assert upgraded.endswith(b"to the end")
    server.close()


async def test_the_log_has_each_request_once_with_the_backend_it_went_to(tmp_path: Path, binary: Path) -> None:
    mesh = {**m.mesh_config_map(), "data": {"mesh": "accessLogFile: /dev/stdout"}}
    async with IngressGateway(tmp_path, binary, mesh) as gateway:
        gateway.apply(
            m.ingress("shop/exact", "b.foo.example", "web"),
            m.ingress("shop/wild", "*.plain.example", "web"),
            with_cors("shop/filtered", "*.foo.example"),
        )
        await gateway.answers(200, "b.foo.example", "/ready", tls=False)
        asked = ("b.foo.example", "c.foo.example", "C.Foo.example", "x.plain.example", "unknown.example")
        await statuses(gateway, *((host, "/logged") for host in asked), ("b.foo.example", "/last"), tls=False)
        await gateway.envoy.logged(lambda line: line["path"] == "/last")
        lines = [line for line in gateway.envoy.access_log() if line["path"] == "/logged"]
        assert [line["host"] for line in lines] == list(asked)
        assert [line["cluster"] for line in lines] == ["ing|shop|web|80"] * 4 + [None]
        filtered = "Prefix / with filters"
        assert [line["route"] for line in lines] == ["Prefix /", filtered, filtered, "Prefix /", None]


async def test_nobody_gets_to_another_host_by_naming_the_one_that_goes_through_the_gateway_again(
    gateway: IngressGateway,
) -> None:
    gateway.apply(with_cors("shop/exact", "b.foo.example"), *gateway.secured("a.foo.example", path="/secured"))
    await gateway.answers(200, "a.foo.example", "/secured")
    forged = {"x-isthmus-again-class": "default", "x-isthmus-again-host": "b.foo.example", "x-isthmus-class": "again"}
    assert await gateway.status("a.foo.example", tls=False, headers={"host": "again/", **forged}) == 400
    assert await gateway.status("a.foo.example", tls=False, headers={"host": "again", **forged}) == 404
    assert await gateway.status("a.foo.example", headers={"host": "again", **forged}) == 421


# Regular expressions.


def regex(name: str, *paths: tuple[str, str, int | str], path_type: str = "ImplementationSpecific") -> m.Manifest:
    document = m.ingress(name, rules=[m.ingress_rule("a.foo.example", *paths, path_type=path_type)])
    document["metadata"]["annotations"] = {"nginx.ingress.kubernetes.io/use-regex": "true"}
    return document


async def test_regular_expressions_match_from_the_beginning_in_any_case_and_the_longest_first(
    gateway: IngressGateway,
) -> None:
    gateway.apply(
        regex("shop/regex", ("/v[12]/items", "web", 80), ("/v[12]", "nothing", 80), ("/a(/|$)(.*)", "web", 80)),
        m.ingress("shop/other", "a.foo.example", "web", path="/sibling"),
        m.ingress("shop/exact", "a.foo.example", "nothing", path="/v1/items", path_type="Exact"),
    )
    await gateway.answers(200, "a.foo.example", "/a", tls=False)
    expected = {
        "/v1/items": 503,  # Exact goes before
        "/v2/items": 200,
        "/V2/ITEMS/7?q=1": 200,
        "/v2/other": 503,
        "/v3": 404,
        "/x/v1/items": 404,
        "/a": 200,
        "/a/b": 200,
        "/ab": 404,
        "/sibling": 200,
        "/siblings": 200,  # a regular expression too, as it shares the host
        "/Sibling": 200,
        "/": 404,
    }
    assert {path: await gateway.status("a.foo.example", path, tls=False) for path in expected} == expected


@pytest.mark.parametrize(
    "path",
    ["/" + "a" * 890, "/" + "(a|b)" * 90, "/[ab]{980}", "/\\x41\\Q.\\E[[:word:]]+?$", "/(?P<n>x)(?-i:y)", "/\\C{900}"],
)
async def test_the_gateway_takes_every_regular_expression_that_is_not_refused_before(
    gateway: IngressGateway, path: str
) -> None:
    gateway.apply(regex("shop/regex", (path, "web", 80), ("/ok", "web", 80)))
    await gateway.answers(200, "a.foo.example", "/ok", tls=False)
    assert gateway.plane.control.findings() == []
    assert gateway.refused() == []


async def test_a_broken_regular_expression_costs_its_own_path_alone(gateway: IngressGateway) -> None:
    hosts = [m.ingress(f"shop/h{number}", f"h{number}.example", "web") for number in range(49)]
    paths = (("/bad(", "web", 80), ("/" + "[ab]" * 250, "web", 80), ("/ok", "web", 80))
    gateway.apply(*hosts, regex("shop/regex", *paths))
    await gateway.answers(200, "a.foo.example", "/ok", tls=False)
    assert [await gateway.status(f"h{number}.example", tls=False) for number in (0, 48)] == [200, 200]
    assert gateway.refused() == []
    (finding,) = gateway.plane.control.findings()
    assert "spec.rules[0].http.paths[0].path" in finding
