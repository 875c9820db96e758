"""What Kubernetes asks of every controller of Ingresses: the scenarios of its own suite
(kubernetes-sigs/ingress-controller-conformance), on a real Envoy.

Written anew, as that suite needs a cluster to deploy its backends to. Each scenario has a case here, in the same terms:
which Ingress, which request, and who is to answer it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.ingress_gateway import IngressGateway
from tests.kit.named_services import PORT, NamedServices
from tests.unit.aggregator.writes.told import ToldWorld

SPACE = "conformance"
SHOWN = "192.0.2.1"


class Case:
    """A gateway, and services that say who they are."""

    def __init__(self, gateway: IngressGateway, services: NamedServices) -> None:
        self.gateway = gateway
        self._services = services

    async def serve(self, *names: str, pods: int = 1) -> None:
        for name in names:
            self.gateway.apply(*await self._services.serve(name, pods))

    async def ask(self, host: str, path: str = "/", *, tls: bool = False) -> tuple[int, str]:
        """Status, and the service that has answered, "" if it was the gateway."""
        answer = await self.gateway.get(host, path, tls=tls)
        return answer.status, json.loads(answer.body)["service"] if answer.status == 200 else ""


@pytest.fixture
async def case(tmp_path: Path, binary: Path) -> AsyncIterator[Case]:
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(IngressGateway(tmp_path, binary))
        gateway.apply(m.namespace(SPACE))
        yield Case(gateway, await stack.enter_async_context(NamedServices(SPACE)))


def backend(service: str) -> m.Manifest:
    return {"service": {"name": service, "port": {"number": PORT}}}


def ingress(name: str, *rules: m.Manifest, **spec: Any) -> m.Manifest:
    return m.ingress(f"{SPACE}/{name}", rules=rules, spec=spec)


def shows_an_address(document: m.Manifest) -> bool:
    """Whether the Ingress's status is to show where it is served."""
    world = ToldWorld(ingress_addresses=(SHOWN,))
    world.apply(document)
    world.settle()
    name = f"{SPACE}/{document['metadata']['name']}"
    return bool(world.status("Ingress", name).get("loadBalancer") == {"ingress": [{"ip": SHOWN}]})


# Default backend.

DEFAULT = ingress("default-backend", defaultBackend=backend("echo"))


async def test_an_ingress_without_rules_sends_every_request_to_its_default_backend(case: Case) -> None:
    await case.serve("echo")
    case.gateway.apply(DEFAULT)
    assert shows_an_address(DEFAULT)
    await case.gateway.answers(200, "my-host", tls=False)
    place = case.gateway.http
    for method, host, path in (
        ("GET", "my-host", "/"),
        ("GET", "my-host", "/sub-path"),
        ("POST", "some-host", "/"),
        ("PUT", str(place), "/resource"),
        ("DELETE", "some-host", "/resource"),
        ("PATCH", "my-host", "/resource"),
    ):
        reader, writer = await asyncio.open_connection(place.host, place.port)
        lines = f"{method} {path} HTTP/1.1", f"host: {host}", "user-agent: a-client/1", "content-length: 0"
        writer.write("\r\n".join((*lines, "connection: close", "", "")).encode())
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).decode().partition("\r\n\r\n")
        writer.close()
        first, *headers = head.split("\r\n")
        assert first == "HTTP/1.1 200 OK"
        assert {"content-length", "content-type", "date", "server"} <= {one.partition(":")[0] for one in headers}
        asked = json.loads(body)
        assert (asked["service"], asked["method"], asked["path"]) == ("echo", method, path)
        assert (asked["proto"], asked["headers"]["user-agent"]) == ("HTTP/1.1", "a-client/1")


# Load balancing.


async def test_all_pods_of_a_service_are_used(case: Case) -> None:
    await case.serve("echo", pods=10)
    case.gateway.apply(DEFAULT)
    await case.gateway.answers(200, "load-balancing", tls=False)
    answers = [await case.gateway.get("load-balancing", tls=False) for _ in range(100)]
    assert {one.status for one in answers} == {200}
    assert len({json.loads(one.body)["pod"] for one in answers}) == 10


# Ingress class.


async def test_an_ingress_of_a_class_that_does_not_exist_is_not_served_and_shows_no_address(case: Case) -> None:
    rule = m.ingress_rule("ingress-class", ("/", "echo", PORT))
    document = m.ingress(f"{SPACE}/test-ingress-class", rules=[rule], class_name="some-invalid-class-name")
    await case.serve("echo")
    case.gateway.apply(document, m.ingress(f"{SPACE}/valid", rules=[m.ingress_rule("valid", ("/", "echo", PORT))]))
    await case.gateway.answers(200, "valid", tls=False)
    assert await case.gateway.status("ingress-class", tls=False) == 404
    assert not shows_an_address(document)


# Host rules.


async def test_host_rules(case: Case) -> None:
    await case.serve("wildcard-foo-com", "foo-bar-com")
    document = ingress(
        "host-rules",
        m.ingress_rule("*.foo.com", ("/", "wildcard-foo-com", PORT)),
        m.ingress_rule("foo.bar.com", ("/", "foo-bar-com", "http")),
        tls=[{"hosts": ["foo.bar.com"], "secretName": "conformance-tls"}],
    )
    assert shows_an_address(document)
    secret = m.tls_secret(f"{SPACE}/conformance-tls", *case.gateway.pair("foo.bar.com"))
    case.gateway.apply(document, secret)
    await case.gateway.answers(200, "foo.bar.com")
    # The client trusts nothing else than a certificate of this host.
    assert await case.ask("foo.bar.com", tls=True) == (200, "foo-bar-com")
    # A client of the suite follows where plain HTTP is sent: with TLS, there and nowhere else.
    answer = await case.gateway.get("foo.bar.com", tls=False)
    assert (answer.status, answer.headers["location"]) == (308, "https://foo.bar.com/")
    assert await case.ask("subdomain.bar.com") == (404, "")
    assert await case.ask("bar.foo.com") == (200, "wildcard-foo-com")
    assert await case.ask("baz.bar.foo.com") == (404, "")
    assert await case.ask("foo.com") == (404, "")
    seen = json.loads((await case.gateway.get("bar.foo.com", tls=False)).body)
    assert seen["headers"]["host"] == "bar.foo.com"


# Path rules.

PATHS: dict[tuple[str, str], str] = {
    ("exact-path-rules", "/foo"): "foo-exact",
    ("exact-path-rules", "/foo/"): "",
    ("exact-path-rules", "/FOO"): "",
    ("exact-path-rules", "/bar"): "",
    ("prefix-path-rules", "/foo"): "foo-prefix",
    ("prefix-path-rules", "/foo/"): "foo-prefix",
    ("prefix-path-rules", "/FOO"): "",
    ("prefix-path-rules", "/aaa/bbb"): "aaa-slash-bbb-prefix",
    ("prefix-path-rules", "/aaa/bbb/ccc"): "aaa-slash-bbb-prefix",
    ("prefix-path-rules", "/aaa/ccc"): "aaa-prefix",
    ("prefix-path-rules", "/aaaccc"): "",
    ("mixed-path-rules", "/foo"): "foo-exact",
    ("mixed-path-rules", "/foo/"): "foo-prefix",
    ("trailing-slash-path-rules", "/aaa/bbb"): "aaa-slash-bbb-slash-prefix",
    ("trailing-slash-path-rules", "/aaa/bbb/"): "aaa-slash-bbb-slash-prefix",
    ("trailing-slash-path-rules", "/foo"): "",
    ("trailing-slash-path-rules", "/foo/"): "foo-slash-exact",
}


async def test_path_rules(case: Case) -> None:
    await case.serve(*sorted({service for service in PATHS.values() if service}))
    exact, prefix = ({"path_type": kind} for kind in ("Exact", "Prefix"))
    document = ingress(
        "path-rules",
        m.ingress_rule("exact-path-rules", ("/foo", "foo-exact", PORT), **exact),
        m.ingress_rule(
            "prefix-path-rules",
            ("/foo", "foo-prefix", PORT),
            ("/aaa/bbb", "aaa-slash-bbb-prefix", PORT),
            ("/aaa", "aaa-prefix", PORT),
            **prefix,
        ),
        m.ingress_rule("mixed-path-rules", ("/foo", "foo-prefix", PORT), **prefix),
        m.ingress_rule("mixed-path-rules", ("/foo", "foo-exact", PORT), **exact),
        m.ingress_rule("trailing-slash-path-rules", ("/aaa/bbb/", "aaa-slash-bbb-slash-prefix", PORT), **prefix),
        m.ingress_rule("trailing-slash-path-rules", ("/foo/", "foo-slash-exact", PORT), **exact),
    )
    assert shows_an_address(document)
    case.gateway.apply(document)
    await case.gateway.answers(200, "prefix-path-rules", "/foo", tls=False)
    expected = {key: (200, service) if service else (404, "") for key, service in PATHS.items()}
    assert {key: await case.ask(*key) for key in expected} == expected
