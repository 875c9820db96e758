"""Which host of many a request is for: by name, by the wildcard over it, or every host that nobody names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.ingress_gateway import IngressGateway


@pytest.fixture
async def gateway(tmp_path: Path, binary: Path) -> AsyncIterator[IngressGateway]:
    """A gateway with nothing to serve."""
    async with IngressGateway(tmp_path, binary) as gateway:
        yield gateway


def default_backend(name: str, service: str = "web", **fields: Any) -> m.Manifest:
    backend = {"service": {"name": service, "port": {"number": 80}}}
    return m.ingress(f"shop/{name}", rules=[], spec={"defaultBackend": backend}, **fields)


async def test_lua(gateway: IngressGateway) -> None:
    gateway.apply(
        m.ingress("shop/exact", "a.foo.example", "web", path="/exact"),
        m.ingress("shop/wild", "*.foo.example", "web", path="/wild"),
        default_backend("all", "nothing"),
    )
    await gateway.answers(200, "a.foo.example", "/exact", tls=False)
    expected = {
        ("a.foo.example", "/exact"): 200,
        ("a.foo.example", "/wild"): 404,
        ("A.Foo.Example", "/exact"): 200,
        ("A.Foo.Example", "/wild"): 404,
        ("b.foo.example", "/wild"): 200,
        ("B.Foo.Example", "/wild"): 200,
        ("b.foo.example", "/else"): 404,
        ("b.foo.example:8080", "/wild"): 200,
        ("b.foo.example.", "/wild"): 200,
        ("x.b.foo.example", "/wild"): 503,
        ("foo.example", "/wild"): 503,
        (".foo.example", "/wild"): 503,
        ("Other.Example", "/"): 503,
        ("localhost", "/"): 503,
        ("127.0.0.1", "/"): 503,
        ("[::1]:80", "/"): 503,
        ("*", "/"): 503,
        ("<x>", "/"): 400,
    }
    found = {key: await gateway.status("a.foo.example", key[1], tls=False, headers={"host": key[0]}) for key in expected}
    assert found == expected
