"""Annotations of Ingresses as visitors and backends see them, on a real Envoy that refuses nothing it is told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from aggregator.demo.client import Answer
from tests.kit import manifests as m
from tests.kit.ingress_gateway import IngressGateway

NGINX = "nginx.ingress.kubernetes.io/"
HIGRESS = "higress.io/"


@pytest.fixture
async def gateway(tmp_path: Path, binary: Path) -> AsyncIterator[IngressGateway]:
    """A gateway with a second service, `shop/next`, whose one endpoint is another application."""
    async with IngressGateway(tmp_path, binary) as gateway:
        yield gateway
        assert gateway.refused() == []
        refusals = await gateway.envoy.stats("update_rejected")
        assert refusals
        assert not any(refusals.values())


class Application:
    """A second application, which keeps what it is asked, and answers as its paths say."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.statuses: list[int] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                self.requests.append({"request": head[0], "headers": headers})
                path = head[0].split(" ")[1]
                if path.startswith("/never"):
                    continue
                if path.startswith("/reset"):
                    break
                status = self.statuses.pop(0) if self.statuses else 200
                writer.write(b"HTTP/1.1 %d x\r\nx-next: yes\r\nx-power: 9\r\ncontent-length: 0\r\n\r\n" % status)
                await writer.drain()
            writer.close()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()


@pytest.fixture
async def following(gateway: IngressGateway) -> AsyncIterator[Application]:
    """The application behind `shop/next`."""
    application = Application()
    server = await asyncio.start_server(application, "127.9.0.8", 0)
    port = server.sockets[0].getsockname()[1]
    gateway.apply(
        m.service("shop/next", "10.96.0.2", ports={"http": (80, port)}, selector={"app": "next"}),
        m.pod("shop/next-1", "127.9.0.8", labels={"app": "next"}, ambient=False),
    )
    yield application
    server.close()


def plain(host: str, annotations: Mapping[str, str], service: str = "web", **fields: Any) -> m.Manifest:
    """An Ingress of `shop` for a host without TLS, called like it."""
    name = fields.pop("name", host.replace(".", "-"))
    return m.ingress(f"shop/{name}", host, service, annotations=annotations, **fields)


async def ask(gateway: IngressGateway, host: str, path: str = "/", **fields: Any) -> Answer:
    return await gateway.get(host, path, **{"tls": False, **fields})


async def seen(gateway: IngressGateway, host: str, path: str = "/", **fields: Any) -> tuple[str, dict[str, str]]:
    """Path and headers of a request as the application sees them."""
    got = json.loads((await ask(gateway, host, path, **fields)).body)
    return got["request"].split(" ")[1], got["headers"]


async def location(gateway: IngressGateway, host: str, path: str = "/", **fields: Any) -> tuple[int, str]:
    got = await ask(gateway, host, path, **fields)
    return got.status, got.headers.get("location", "")


# Redirects.


async def test_who_is_sent_to_https(gateway: IngressGateway) -> None:
    free = gateway.secured("free.example", annotations={NGINX + "ssl-redirect": "false"})
    mixed = m.ingress("shop/mixed", "both.example", "web", path="/free", annotations={"ssl-redirect": "false"})
    gateway.apply(*gateway.secured("tls.example"), *free, *gateway.secured("both.example"), mixed)
    gateway.apply(plain("forced.example", {NGINX + "force-ssl-redirect": "true"}), plain("none.example", {}))
    await gateway.answers(308, "tls.example", tls=False)
    await gateway.answers(200, "none.example", tls=False)
    challenge = "/.well-known/acme-challenge/x"
    expected = {
        ("tls.example", "/a/b?c=d"): (308, "https://tls.example/a/b?c=d"),
        ("tls.example", challenge): (200, ""),
        ("free.example", "/a"): (200, ""),
        ("both.example", "/a?b"): (308, "https://both.example/a?b"),
        ("both.example", challenge): (200, ""),
        ("both.example", "/free/a"): (200, ""),
        ("forced.example", "/a?b"): (308, "https://forced.example/a?b"),
        ("forced.example", challenge): (200, ""),
        ("none.example", "/a"): (200, ""),
    }
    assert {key: await location(gateway, *key) for key in expected} == expected
    for host in ("tls.example", "free.example", "both.example"):
        assert await gateway.status(host) == 200


async def test_where_redirects_lead(gateway: IngressGateway) -> None:
    permanent, temporal = f"{NGINX}permanent-redirect", f"{NGINX}temporal-redirect"
    gateway.apply(
        plain("a.example", {permanent: "https://to.example:8443/x/y"}),
        plain("b.example", {permanent: "https://to.example$request_uri", permanent + "-code": "308"}),
        plain("c.example", {permanent: "https://old.example", temporal: "http://to.example/new?q=1"}),
        plain("d.example", {temporal: "/moved", temporal + "-code": "303"}),
        plain("e.example", {temporal: "$scheme://to.example/under$request_uri"}),
        plain("f.example", {permanent: "https://$host$request_uri"}),
        plain("g.example", {NGINX + "app-root": "/app"}),
        plain("h.example", {NGINX + "from-to-www-redirect": "true"}),
        plain("www.i.example", {NGINX + "from-to-www-redirect": "true"}),
    )
    await gateway.answers(308, "i.example", tls=False)
    expected = {
        ("a.example", "/z?q=2"): (301, "https://to.example:8443/x/y"),
        ("b.example", "/z?q=2"): (308, "https://to.example/z?q=2"),
        ("c.example", "/z?q=2"): (302, "http://to.example/new?q=1"),
        ("d.example", "/z?q=2"): (303, "http://d.example/moved"),
        ("e.example", "/z?q=2"): (302, "http://to.example/under/z?q=2"),
        ("f.example", "/z?q=2"): (301, "https://f.example/z?q=2"),
        ("g.example", "/"): (302, "http://g.example/app"),
        ("g.example", "/app"): (200, ""),
        ("h.example", "/z"): (200, ""),
        ("www.h.example", "/z?q=2"): (308, "http://h.example/z?q=2"),
        ("i.example", "/z?q=2"): (308, "http://www.i.example/z?q=2"),
        ("www.i.example", "/z"): (200, ""),
    }
    assert {key: await location(gateway, *key) for key in expected} == expected


# Other names.


async def test_an_alias_is_served_as_its_host_is_until_it_is_a_host_itself(gateway: IngressGateway) -> None:
    aliased = {NGINX + "server-alias": "alias.example, taken.example"}
    ingress, _ = gateway.secured("a.example", annotations=aliased)
    secret = m.tls_secret("shop/a-example", *gateway.pair("a.example", "alias.example"))
    more = m.ingress("shop/more", "a.example", "nothing", path="/more")
    gateway.apply(ingress, secret, more, plain("taken.example", {}, "nothing"))
    await gateway.answers(200, "alias.example")
    assert await gateway.status("alias.example", "/more") == 503
    assert await gateway.status("alias.example", tls=False) == 308
    assert await gateway.status("taken.example", tls=False) == 503
    assert [one for one in gateway.plane.control.findings() if "taken.example is a host of Ingress shop/taken" in one]
    gateway.delete(plain("taken.example", {}, "nothing"))
    await gateway.answers(308, "taken.example", tls=False)
    gateway.apply(plain("alias.example", {}, "nothing"))
    await gateway.answers(503, "alias.example", tls=False)


async def test_proofs_for_an_alias_are_served_beside_it(gateway: IngressGateway) -> None:
    path = "/.well-known/acme-challenge/token"
    gateway.apply(plain("a.example", {"server-alias": "b.example", "from-to-www-redirect": "true"}))
    await gateway.answers(200, "b.example", tls=False)
    for host in ("b.example", "www.a.example"):
        gateway.apply(m.ingress(f"shop/solver-{host[0]}", host, "nothing", path=path, path_type="Exact"))
        await gateway.answers(503, host, path, tls=False)
    assert await gateway.status("b.example", tls=False) == 200
    assert await location(gateway, "www.a.example", "/x") == (308, "http://a.example/x")


# What a backend sees.


async def test_what_a_backend_sees_of_a_request(gateway: IngressGateway) -> None:
    gateway.apply(
        plain("path.example", {NGINX + "rewrite-target": "/whole"}, path="/foo"),
        plain("host.example", {NGINX + "upstream-vhost": "$service_name.$namespace.svc:$service_port"}),
        plain("prefix.example", {NGINX + "x-forwarded-prefix": "/foo"}),
        plain(
            "headers.example",
            {
                HIGRESS + "request-header-control-add": "x-a 1%PROTOCOL%\nX-B two words",
                HIGRESS + "request-header-control-update": 'x-c "3"',
                HIGRESS + "request-header-control-remove": "x-d, x-e",
            },
        ),
    )
    await gateway.answers(200, "headers.example", tls=False)
    assert (await seen(gateway, "path.example", "/foo/bar?q=1"))[0] == "/whole?q=1"
    assert (await seen(gateway, "host.example"))[1]["host"] == "web.shop.svc:80"
    assert (await seen(gateway, "prefix.example"))[1]["x-forwarded-prefix"] == "/foo"
    sent = {"x-a": "0", "x-c": "0", "x-d": "0", "x-e": "0"}
    _, headers = await seen(gateway, "headers.example", headers=sent)
    assert {name: value for name, value in headers.items() if name in ("x-b", "x-c", "x-d", "x-e")} == {
        "x-b": "two words",
        "x-c": "3",
    }
    assert headers["x-a"] == "1%protocol%"  # in lower case by the application; of two the last
    assert not any(name.startswith("x-isthmus") for name in headers)


async def test_paths_are_made_of_what_a_regular_expression_found_in_them(gateway: IngressGateway) -> None:
    kind = {"path_type": "ImplementationSpecific"}
    rewritten = {NGINX + "rewrite-target": "/$2"}
    gateway.apply(
        plain("a.example", rewritten, path="/re(/|$)(.*)", **kind),
        plain("a.example", {}, "nothing", name="sibling", path="/sib.ing", **kind),
        plain("b.example", {NGINX + "rewrite-target": "/all/$1"}, path="/(?:x|y)(\\d+)", **kind),
        plain("c.example", {NGINX + "rewrite-target": "/fixed$1"}, path="/foo"),
        plain("d.example", {NGINX + "rewrite-target": "/fixed", NGINX + "use-regex": "false"}, path="/foo"),
    )
    await gateway.answers(200, "d.example", "/foo", tls=False)
    expected = {
        ("a.example", "/re/a/b?q=1"): "/a/b?q=1",
        ("a.example", "/re"): "/",
        ("a.example", "/RE/A"): "/A",
        ("b.example", "/x12/y3"): "/all/12",
        ("c.example", "/foo/bar"): "/fixed",
        ("c.example", "/foobar?q"): "/fixed?q",
        ("d.example", "/foo/bar"): "/fixed",
    }
    assert {key: (await seen(gateway, *key))[0] for key in expected} == expected
    assert await gateway.status("d.example", "/foobar", tls=False) == 404
    for path, status in (("/sibling", 503), ("/SIBXING/x", 503), ("/re", 200), ("/rex", 404)):
        assert await gateway.status("a.example", path, tls=False) == status


async def test_what_a_visitor_sees_of_an_answer(gateway: IngressGateway, following: Application) -> None:
    del following
    annotations = {
        HIGRESS + "response-header-control-add": "x-next too",
        HIGRESS + "response-header-control-update": "strict-transport-security max-age=1; includeSubDomains",
        HIGRESS + "response-header-control-remove": "x-power",
    }
    gateway.apply(plain("a.example", annotations, "next"))
    await gateway.answers(200, "a.example", tls=False)
    headers = (await ask(gateway, "a.example")).headers
    assert headers["x-next"] == "too"
    assert headers["strict-transport-security"] == "max-age=1; includeSubDomains"
    assert "x-power" not in headers


async def test_pages_of_other_origins(gateway: IngressGateway) -> None:
    listed = {NGINX + "enable-cors": "true", NGINX + "cors-allow-origin": "https://*.shop.example, http://b.example:81"}
    gateway.apply(plain("some.example", listed), plain("all.example", {NGINX + "enable-cors": "true"}))
    await gateway.answers(200, "all.example", tls=False)

    async def allowed(host: str, origin: str) -> tuple[str, str]:
        headers = (await ask(gateway, host, headers={"origin": origin})).headers
        name = "access-control-allow-"
        return headers.get(f"{name}origin", ""), headers.get(f"{name}credentials", "")

    expected = {
        ("some.example", "https://a.shop.example"): ("https://a.shop.example", "true"),
        ("some.example", "https://shop.example"): ("", ""),
        ("some.example", "https://a.b.shop.example"): ("", ""),
        ("some.example", "https://ashop.example"): ("", ""),
        ("some.example", "http://b.example:81"): ("http://b.example:81", "true"),
        ("all.example", "https://any.example"): ("https://any.example", ""),
    }
    assert {key: await allowed(*key) for key in expected} == expected


# Which requests.


async def test_requests_go_by_method_header_and_query_beside_the_path(gateway: IngressGateway) -> None:
    def conditional(name: str, service: str, path: str = "/", **annotations: str) -> m.Manifest:
        given = {f"{HIGRESS}{key.replace('_', '-')}": value for key, value in annotations.items()}
        return m.ingress(f"shop/{name}", "a.example", service, annotations=given, path=path)

    gateway.apply(
        conditional("others", "web"),
        conditional("post", "nothing", match_method="POST PUT"),
        conditional("exact", "nothing", match_header_exact_x_a="1", match_query_prefix_q="v"),
        conditional("regex", "nothing", match_header_regex_x_a="[2-4]+"),
        conditional("case", "nothing", "/Case", ignore_path_case="true"),
    )
    await gateway.answers(503, "a.example", "/cASE/x", tls=False)
    expected = {
        ("/", ""): 200,
        ("/", "1"): 200,
        ("/?q=v2", "1"): 503,
        ("/?q=w", "1"): 200,
        ("/", "243"): 503,
        ("/", "245"): 200,
    }
    found = {
        (path, value): await gateway.status("a.example", path, tls=False, headers={"x-a": value})
        for path, value in expected
    }
    assert found == expected


# Failures and time.


async def test_failures_are_tried_again_as_an_ingress_wants(gateway: IngressGateway, following: Application) -> None:
    again = {NGINX + "proxy-next-upstream": "error http_503", NGINX + "proxy-next-upstream-tries": "2"}
    gateway.apply(plain("again.example", again, "next"))
    gateway.apply(plain("off.example", {NGINX + "proxy-next-upstream": "off"}, "next"))
    await gateway.answers(200, "again.example", tls=False)
    await gateway.answers(200, "off.example", tls=False)
    following.statuses = [503]
    assert await gateway.status("again.example", tls=False) == 200
    following.statuses = [503, 503]
    assert await gateway.status("again.example", tls=False) == 503
    assert following.statuses == []
    following.statuses = [503]
    assert await gateway.status("off.example", tls=False) == 503
    following.requests.clear()
    assert await gateway.status("again.example", "/reset", tls=False) == 503
    assert len(following.requests) == 2
    following.requests.clear()
    assert await gateway.status("off.example", "/reset", tls=False) == 503
    assert len(following.requests) == 1


async def test_requests_may_take_as_long_as_an_ingress_says(gateway: IngressGateway, following: Application) -> None:
    gateway.apply(
        plain("idle.example", {NGINX + "proxy-read-timeout": "1", NGINX + "proxy-send-timeout": "1"}, "next"),
        plain("whole.example", {HIGRESS + "timeout": "1"}, "next"),
        plain("again.example", {NGINX + "proxy-read-timeout": "1", NGINX + "proxy-next-upstream-tries": "2"}, "next"),
    )
    await gateway.answers(200, "again.example", tls=False)
    await gateway.answers(200, "whole.example", tls=False)
    await gateway.answers(200, "idle.example", tls=False)
    statuses = await asyncio.gather(
        *(gateway.status(host, "/never", tls=False) for host in ("idle.example", "whole.example"))
    )
    assert statuses == [504, 504]
    following.requests.clear()
    assert await gateway.status("again.example", "/never", tls=False) == 504
    assert len(following.requests) == 2


# Canaries and further backends.


def canary(name: str, host: str = "a.example", **annotations: str) -> m.Manifest:
    given = {f"{NGINX}canary-{key.replace('_', '-')}": value for key, value in annotations.items()}
    return m.ingress(f"shop/{name}", host, "next", annotations={NGINX + "canary": "true", **given})


async def test_what_leads_to_a_canary(gateway: IngressGateway, following: Application) -> None:
    del following
    hosts = {
        "header": {"by_header": "X-Canary", "weight": "0"},
        "value": {"by_header": "X-Canary", "by_header_value": "yes please"},
        "pattern": {"by_header": "X-Canary", "by_header_pattern": "[a-c]+"},
        "cookie": {"by_cookie": "taste"},
        "all": {"by_header": "X-Canary", "by_cookie": "taste", "weight": "100"},
    }
    for name, terms in hosts.items():
        gateway.apply(plain(f"{name}.example", {}), canary(f"canary-{name}", f"{name}.example", **terms))
    await gateway.answers(200, "all.example", tls=False)

    async def led(host: str, value: str, cookie: str) -> bool:
        headers = {**({"x-canary": value} if value else {}), **({"cookie": cookie} if cookie else {})}
        return "x-next" in (await ask(gateway, f"{host}.example", headers=headers)).headers

    expected = {
        ("header", "", ""): False,
        ("header", "always", ""): True,
        ("header", "never", ""): False,
        ("header", "other", "taste=always"): False,
        ("value", "yes please", ""): True,
        ("value", "always", ""): False,
        ("pattern", "abcabc", ""): True,
        ("pattern", "abcd", ""): False,
        ("pattern", "always", ""): False,
        ("cookie", "", "taste=always"): True,
        ("cookie", "", "a=b; taste=always; c=d"): True,
        ("cookie", "", "distaste=always"): False,
        ("cookie", "", "taste=alwaysnot"): False,
        ("cookie", "", "taste=never"): False,
        ("all", "", ""): True,
        ("all", "never", ""): False,
        ("all", "never", "taste=always"): False,
        ("all", "always", "taste=never"): True,
        ("all", "", "taste=never"): False,
    }
    assert {key: await led(*key) for key in expected} == expected


async def test_a_canary_takes_its_share_and_leaves_with_its_ingress(
    gateway: IngressGateway, following: Application
) -> None:
    del following
    lonely = canary("lonely", "lonely.example", weight="50")
    gateway.apply(plain("a.example", {}), canary("new", weight="30"), lonely)
    await gateway.answers(200, "a.example", tls=False)

    async def shares() -> Counter[bool]:
        return Counter(["x-next" in (await ask(gateway, "a.example")).headers for _ in range(200)])

    assert 25 <= (await shares())[True] <= 100
    assert await gateway.status("lonely.example", tls=False) == 404
    (finding,) = gateway.plane.control.findings()
    assert "Ingress shop/lonely" in finding
    gateway.apply(canary("new", weight="0"))

    async def alone() -> bool:
        return "x-next" not in (await ask(gateway, "a.example")).headers and (await shares())[True] == 0

    await gateway.envoy.until(alone, "seen to leave the canary alone")
    gateway.delete(canary("new", weight="0"))
    assert (await shares())[True] == 0


async def test_copies_and_shares_go_to_further_services(gateway: IngressGateway, following: Application) -> None:
    gateway.apply(
        plain("mirror.example", {HIGRESS + "mirror-target-service": "shop/next:80"}),
        plain("shares.example", {HIGRESS + "destination": "50% web.shop.svc:80\n50% next.shop.svc.cluster.local:80"}),
    )
    await gateway.answers(200, "shares.example", tls=False)
    following.requests.clear()

    async def copied() -> bool:
        assert (await ask(gateway, "mirror.example", "/copy?q=1")).status == 200
        return bool(following.requests)

    await gateway.envoy.until(copied, "seen to send a copy")
    first = following.requests[0]
    assert first["request"].split(" ")[1] == "/copy?q=1"
    assert first["headers"]["host"] == "mirror.example"
    led = Counter(["x-next" in (await ask(gateway, "shares.example")).headers for _ in range(100)])
    assert min(led[True], led[False]) >= 20


# Snippets.


async def test_snippets_count_as_far_as_they_are_understood(tmp_path: Path, binary: Path) -> None:
    said = "more_set_headers 'X-A: 1%'; proxy_set_header X-B 2; if (1) { return 500; } "
    async with IngressGateway(tmp_path, binary, ingress_snippets=True) as gateway:
        gateway.apply(
            plain("a.example", {NGINX + "configuration-snippet": said}),
            plain("b.example", {NGINX + "configuration-snippet": "return 403;"}),
            plain("c.example", {NGINX + "configuration-snippet": "return 307 https://to.example/;"}),
        )
        await gateway.answers(403, "b.example", tls=False)
        assert (await ask(gateway, "a.example")).headers["x-a"] == "1%"
        assert (await seen(gateway, "a.example"))[1]["x-b"] == "2"
        assert await location(gateway, "c.example") == (307, "https://to.example/")
        (finding,) = gateway.plane.control.findings()
        assert "a block of if" in finding
        assert gateway.refused() == []


# Neighbours.


async def test_hostile_values_cost_no_host_its_routes(gateway: IngressGateway) -> None:
    hostile = ["%", "%%", "\\1", "(", "*", "\x00", "a\r\nb", "$", "\ud7ff", "x" * 5000, "-1", "%REQ(x)%", "[", "//", ""]
    names = [
        "permanent-redirect",
        "rewrite-target",
        "upstream-vhost",
        "x-forwarded-prefix",
        "app-root",
        "server-alias",
        "cors-allow-origin",
        "cors-allow-headers",
        "request-header-control-add",
        "response-header-control-remove",
        "match-method",
        "match-header-regex-x",
        "match-query-exact-x",
        "destination",
        "mirror-target-service",
        "proxy-next-upstream",
        "timeout",
    ]
    for number, value in enumerate(hostile):
        annotations = {"enable-cors": "true", **dict.fromkeys(names, value)}
        gateway.apply(plain(f"h{number}.example", annotations))
    gateway.apply(plain("good.example", {}))
    await gateway.answers(200, "good.example", tls=False)
    found = gateway.plane.control.findings()
    assert all(any(f"Ingress shop/h{number}-example" in one for one in found) for number in range(len(hostile)))


