"""An ingress gateway in compatibility mode as visitors see it: a real Envoy that is told all hosts at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.ingress_gateway import IngressGateway
from xds.messages.scope import SCOPED_ROUTE_TYPE

FORMS = {"delta": {"mode": "compatible"}, "sotw": {"incremental": False}}


@pytest.fixture(params=FORMS)
async def gateway(request: pytest.FixtureRequest, tmp_path: Path, binary: Path) -> AsyncIterator[IngressGateway]:
    """A gateway with nothing to serve: one that was forced into the mode, and one that speaks nothing else."""
    async with IngressGateway(tmp_path, binary, **FORMS[request.param]) as gateway:
        yield gateway


async def answers(gateway: IngressGateway, status: int, host: str, path: str = "/", **fields: Any) -> None:
    """Waits until a visitor is answered so (0: not at all)."""

    async def answered() -> bool:
        return await gateway.status(host, path, **fields) == status

    await gateway.envoy.until(answered, f"seen to answer {host}{path} with {status}")


def pushed(gateway: IngressGateway, since: int = 0) -> set[str]:
    """The types of the responses from the one of that number on."""
    return {one.type_url for one in gateway.plane.pushes()[since:]}


async def test_a_gateway_takes_everything_it_is_told(gateway: IngressGateway) -> None:
    gateway.apply(
        *gateway.secured("tls.example"),
        *gateway.secured("paths.example", path="/a/b/"),
        m.ingress("shop/more", rules=[m.ingress_rule("paths.example", ("/x", "web", 80), path_type="Exact")]),
        m.ingress("shop/plain", "plain.example", "web"),
        m.ingress("shop/missing", "missing.example", "nothing"),
        m.ingress("shop/hbone", "hbone.example", "hbone"),
        m.service("shop/hbone", selector={"app": "hbone"}),
        m.pod("shop/hbone-1", "127.9.0.30", labels={"app": "hbone"}, account="hbone"),
    )
    await answers(gateway, 200, "tls.example")
    expected = {
        ("tls.example", "/", False): 308,
        ("TLS.example", "/", True): 200,
        ("paths.example", "/a/b/c", True): 200,
        ("paths.example", "/x", True): 200,
        ("paths.example", "/x/", True): 404,
        ("plain.example", "/any", False): 200,
        ("missing.example", "/", False): 503,
        ("hbone.example", "/", False): 503,
        ("unknown.example", "/", False): 404,
        ("unknown.example", "/", True): 0,
    }
    found = {key: await gateway.status(*key[:2], tls=key[2], timeout=2.0) for key in expected}
    assert found == expected
    assert gateway.refused() == []
    refusals = await gateway.envoy.stats("update_rejected")
    assert refusals
    assert not any(refusals.values())
    assert SCOPED_ROUTE_TYPE not in pushed(gateway)
