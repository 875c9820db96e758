"""An ingress gateway as visitors see it: Ingresses go in, a real Envoy serves them and refuses nothing it is told."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aggregator.demo.client import Unanswered
from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.ingress_gateway import APPLICATION, IngressGateway, ask
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE


@pytest.fixture
async def gateway(tmp_path: Path, binary: Path) -> AsyncIterator[IngressGateway]:
    """A gateway with nothing to serve."""
    async with IngressGateway(tmp_path, binary) as gateway:
        yield gateway


def pushed(gateway: IngressGateway, since: int = 0) -> list[tuple[str, int, int]]:
    """(type, resources, removed) of each response, from the one of that number on."""
    return [(one.type_url, one.resources, one.removed) for one in gateway.plane.pushes()[since:]]


async def modified(gateway: IngressGateway) -> int:
    return sum((await gateway.envoy.stats("listener_manager.listener_modified")).values())


# Everything there is.


def variety(gateway: IngressGateway) -> list[m.Manifest]:
    """Hosts of every form, with backends of every form."""
    resource = {"host": "resource.example", "http": {"paths": [{"path": "/", "backend": {"resource": {"name": "x"}}}]}}
    default = {"defaultBackend": {"service": {"name": "web", "port": {"name": "http"}}}}
    return [
        *gateway.secured("tls.example"),
        *gateway.secured("paths.example", path="/a/b/"),
        m.ingress("shop/more", rules=[m.ingress_rule("paths.example", ("/x", "web", 80), path_type="Exact")]),
        m.ingress("shop/plain", "plain.example", "web"),
        m.ingress("shop/pathless", rules=[{"host": "pathless.example"}], spec=default),
        m.ingress("shop/bare", rules=[{"host": "bare.example"}]),
        m.ingress("shop/missing", "missing.example", "nothing"),
        m.ingress("shop/resource", rules=[resource]),
        m.ingress("shop/grpc", "grpc.example", "grpc"),
        m.ingress("shop/hbone", "hbone.example", "hbone"),
        m.ingress("shop/unready", "unready.example", "unready"),
        m.ingress("shop/odd", f"{'x' * 63}.{'y' * 63}.example", "web", path="/%7Eodd/;a=b,c@d!$&'()*+-._~:"),
        m.service("shop/grpc", ports={"grpc": (80, 8080)}, selector={"app": "grpc"}),
        m.pod("shop/grpc-1", "fd00::9", labels={"app": "grpc"}),
        m.service("shop/hbone", selector={"app": "hbone"}),
        m.pod("shop/hbone-1", "127.9.0.30", labels={"app": "hbone"}, account="hbone"),
        m.service("shop/unready", selector={"app": "unready"}),
        m.pod("shop/unready-1", "127.9.0.31", labels={"app": "unready"}, ready=False),
    ]


async def test_a_gateway_takes_everything_it_is_told(gateway: IngressGateway) -> None:
    gateway.apply(*variety(gateway))
    await gateway.answers(200, "tls.example")
    expected = {
        ("tls.example", "/", True): 200,
        ("paths.example", "/a/b/c", True): 200,
        ("paths.example", "/x", True): 200,
        ("paths.example", "/x/", True): 404,
        ("plain.example", "/any", False): 200,
        ("pathless.example", "/any", False): 200,
        ("bare.example", "/", False): 404,
        ("missing.example", "/", False): 503,
        ("resource.example", "/", False): 503,
        ("grpc.example", "/", False): 503,
        ("hbone.example", "/", False): 503,
        ("unready.example", "/", False): 503,
        (f"{'x' * 63}.{'y' * 63}.example", "/%7Eodd/;a=b,c@d!$&'()*+-._~:/z", False): 200,
    }
    found = {key: await gateway.status(*key[:2], tls=key[2]) for key in expected}
    assert found == expected
    assert gateway.refused() == []
    refusals = await gateway.envoy.stats("update_rejected")
    assert refusals
    assert not any(refusals.values())
    clusters = {one["cluster"]["name"] for one in await gateway.holds("dynamic_active_clusters")}
    assert {one for one in clusters if not one.startswith("ing|")} == {
        "again",
        "connect_originate",
        "inner_connect_originate",
        "outer_connect_originate",
    }
    assert "ing|shop|web|http" in clusters


async def test_the_gateway_is_told_no_cluster_or_certificate_before_somebody_asks(gateway: IngressGateway) -> None:
    gateway.apply(*variety(gateway))
    await gateway.answers(200, "plain.example", tls=False)
    types = [one[0] for one in pushed(gateway)]
    assert types.count(CLUSTER_TYPE) == 2  # the standing ones, and the one that was asked for
    assert types.count(SECRET_TYPE) == 1  # those of the gateway itself


# Paths and hosts.


async def test_which_path_leads_where(gateway: IngressGateway) -> None:
    prefix = m.ingress_rule("a.example", ("/foo", "web", 80), ("/aaa/bbb", "web", 80), ("/aaa", "nothing", 80))
    exact = m.ingress_rule("a.example", ("/foo", "nothing", 80), ("/exact/", "web", 80), path_type="Exact")
    gateway.apply(m.ingress("shop/prefix", rules=[prefix]), m.ingress("shop/exact", rules=[exact]))
    await gateway.answers(200, "a.example", "/foo/", tls=False)
    expected = {
        "/foo": 503,  # Exact before Prefix
        "/foo?q=1": 503,
        "/foo/": 200,
        "/foo/x": 200,
        "/foo//x": 200,
        "/foo/../foo/x": 200,
        "/%66oo/x": 200,
        "/foobar": 404,
        "/Foo": 404,
        "/foo%2Fx": 404,
        "/aaa/bbb/c": 200,
        "/aaa/ccc": 503,
        "/exact/": 200,
        "/exact": 404,
        "/": 404,
    }
    found = {path: await gateway.status("a.example", path, tls=False) for path in expected}
    assert found == expected


async def test_a_host_may_come_with_a_port_and_a_final_dot(gateway: IngressGateway) -> None:
    gateway.apply(m.ingress("shop/a", "a.example", "web"))
    await gateway.answers(200, "a.example", tls=False)
    for host in ("a.example:8080", "a.example.", "a.example.:8080"):
        assert await gateway.status("a.example", headers={"host": host}, tls=False) == 200


async def test_plain_http_to_a_host_with_tls_is_redirected_but_for_challenges(gateway: IngressGateway) -> None:
    solver = m.ingress("shop/solver", "a.example", "web", path="/.well-known/acme-challenge/token", path_type="Exact")
    gateway.apply(*gateway.secured("a.example", path="/app"), solver)
    await gateway.answers(308, "a.example", "/app", tls=False)
    answer = await gateway.get("a.example", "/app/x?y=z", tls=False)
    assert answer.headers["location"] == "https://a.example/app/x?y=z"
    assert await gateway.status("a.example", "/.well-known/acme-challenge/token", tls=False) == 200
    assert await gateway.status("a.example", "/.well-known/acme-challenge/other", tls=False) == 404
    assert await gateway.status("a.example", "/app", tls=False, headers={"x-forwarded-proto": "https"}) == 308


async def test_two_hosts_may_share_a_connection(gateway: IngressGateway) -> None:
    gateway.apply(*gateway.secured("a.example"), *gateway.secured("b.example"))
    await gateway.answers(200, "b.example")
    assert (await gateway.get("a.example", headers={"host": "b.example"})).status == 200


# What one more host costs.


async def test_a_new_host_is_served_at_once_and_costs_its_own_alone(gateway: IngressGateway) -> None:
    gateway.apply(*(one for number in range(50) for one in gateway.secured(f"h{number}.example")))
    await gateway.answers(200, "h49.example")
    before, listeners = len(gateway.plane.pushes()), await modified(gateway)
    gateway.apply(*gateway.secured("new.example", "other"), m.service("shop/other", selector={"app": "web"}))
    await gateway.answers(503, "new.example")  # no endpoint serves the port of `other`
    assert sorted(pushed(gateway, before)) == [
        (CLUSTER_TYPE, 1, 0),
        (ASSIGNMENT_TYPE, 1, 0),
        (SCOPED_ROUTE_TYPE, 1, 0),
        (SECRET_TYPE, 1, 0),
    ]
    assert sum(one.size for one in gateway.plane.pushes()[before:]) < 4096
    assert await modified(gateway) == listeners


async def test_hosts_applied_together_come_together(gateway: IngressGateway) -> None:
    before = len(gateway.plane.pushes())
    gateway.apply(*(m.ingress(f"shop/h{number}", f"h{number}.example", "web") for number in range(100)))
    await gateway.answers(200, "h99.example", tls=False)
    scopes = [one for one in pushed(gateway, before) if one[0] == SCOPED_ROUTE_TYPE]
    assert scopes == [(SCOPED_ROUTE_TYPE, 100, 0)]


async def test_a_backend_that_appears_is_used_with_only_its_endpoints_sent(gateway: IngressGateway) -> None:
    gateway.apply(m.ingress("shop/a", "a.example", "late"))
    await gateway.answers(503, "a.example", tls=False)
    assert (await gateway.get("a.example", tls=False)).seconds < 0.5  # also the second time
    before = len(gateway.plane.pushes())
    port = gateway.application.port
    gateway.apply(m.service("shop/late", ports={"http": (80, port)}, selector={"app": "web"}))
    await gateway.answers(200, "a.example", tls=False)
    assert pushed(gateway, before) == [(ASSIGNMENT_TYPE, 1, 0)]


async def test_endpoints_follow_pods(gateway: IngressGateway) -> None:
    gateway.apply(m.ingress("shop/a", "a.example", "web"))
    await gateway.answers(200, "a.example", tls=False)
    web: dict[str, Any] = {"labels": {"app": "web"}, "ambient": False}
    gateway.apply(m.pod("shop/web-1", APPLICATION, **web, ready=False))
    await gateway.answers(503, "a.example", tls=False)
    gateway.apply(m.pod("shop/web-1", APPLICATION, **web))
    await gateway.answers(200, "a.example", tls=False)


# Certificates.


async def test_a_renewed_certificate_is_shown_and_open_connections_go_on(gateway: IngressGateway) -> None:
    gateway.apply(*gateway.secured("a.example"))
    await gateway.answers(200, "a.example")
    reader, writer = await gateway.opened("a.example")
    assert await ask(reader, writer, "a.example") == (200, False)
    old = await gateway.shown("a.example")
    before = len(gateway.plane.pushes())
    gateway.apply(*gateway.secured("a.example"))

    async def renewed() -> bool:
        return await gateway.shown("a.example") != old

    await gateway.envoy.until(renewed, "seen to show another certificate")
    assert pushed(gateway, before) == [(SECRET_TYPE, 1, 0)]
    assert await ask(reader, writer, "a.example") == (200, False)
    writer.close()


async def test_a_host_whose_secret_is_missing_is_not_served_before_it_comes(
    gateway: IngressGateway,
) -> None:
    ingress, secret = gateway.secured("a.example")
    gateway.apply(ingress)
    await gateway.answers(308, "a.example", tls=False)
    with pytest.raises(Unanswered, match="handshake"):
        await gateway.get("a.example", timeout=2.0)
    before = len(gateway.plane.pushes())
    gateway.apply(secret)
    await gateway.answers(200, "a.example")
    assert {one[0] for one in pushed(gateway, before)} == {SECRET_TYPE, CLUSTER_TYPE, ASSIGNMENT_TYPE}


async def test_a_bad_pair_costs_nobody_anything(gateway: IngressGateway) -> None:
    gateway.apply(*gateway.secured("a.example"), *gateway.secured("b.example"))
    await gateway.answers(200, "a.example")
    await gateway.answers(200, "b.example")
    wrong = m.tls_secret("shop/a-example", gateway.pair("a.example")[0], gateway.pair("a.example")[1])
    expired = m.ingress("shop/never", "never.example", "web", secret="never")
    gateway.apply(wrong, expired, m.tls_secret("shop/never", *reversed(gateway.pair("never.example"))))
    await eventually(lambda: len(gateway.plane.control.findings()) == 3)
    assert await gateway.status("a.example") == await gateway.status("b.example") == 200
    assert await gateway.status("never.example", timeout=2.0) == 0
    assert gateway.refused() == []


@pytest.mark.parametrize("host", ["unknown.example", "A.EXAMPLE", "__nosni__", "default", "ROOTCA", "rootca"])
async def test_a_name_that_no_host_has_is_refused_at_once(gateway: IngressGateway, host: str) -> None:
    gateway.apply(*gateway.secured("a.example"))
    await gateway.answers(200, "a.example")
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await gateway.shown(host)
    assert loop.time() - began < 2.0


# What goes.


async def test_a_host_that_is_deleted_is_served_no_more_by_open_connections_either(gateway: IngressGateway) -> None:
    ingress, secret = gateway.secured("a.example")
    gateway.apply(ingress, secret)
    await gateway.answers(200, "a.example")
    reader, writer = await gateway.opened("a.example")
    assert await ask(reader, writer, "a.example") == (200, False)
    before = len(gateway.plane.pushes())
    gateway.delete(ingress)
    await gateway.answers(0, "a.example", timeout=2.0)
    assert await ask(reader, writer, "a.example") == (421, False)
    writer.close()
    await eventually(lambda: len(pushed(gateway, before)) >= 4)
    order = [one[0] for one in pushed(gateway, before) if one[2]]
    assert order.index(SCOPED_ROUTE_TYPE) < order.index(CLUSTER_TYPE) < order.index(ASSIGNMENT_TYPE)


async def test_a_control_plane_that_starts_anew_sends_what_changed_and_no_more(gateway: IngressGateway) -> None:
    ingress, secret = gateway.secured("a.example")
    gateway.apply(ingress, secret, *gateway.secured("b.example"), *gateway.secured("c.example", "other"))
    for host, status in (("a.example", 200), ("b.example", 200), ("c.example", 503)):
        await gateway.answers(status, host)
    await gateway.restart(ingress, secret)
    gateway.apply(*gateway.secured("new.example"))
    await gateway.answers(200, "new.example")
    await gateway.answers(0, "a.example", timeout=2.0)
    assert await gateway.status("b.example") == 200
    told, gone = Counter[str](), Counter[str]()
    for one in gateway.plane.pushes():
        told[one.type_url] += one.resources
        gone[one.type_url] += one.removed
    assert +told == {SCOPED_ROUTE_TYPE: 1, SECRET_TYPE: 1}
    assert gone[SCOPED_ROUTE_TYPE] == 1
