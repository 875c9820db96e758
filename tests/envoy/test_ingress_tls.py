"""TLS of an ingress gateway as visitors see it, on a real Envoy: classes of settings, wildcards, names on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.ingress_gateway import IngressGateway
from tests.kit.visitor import Told, Visitor, visit

NGINX = "nginx.ingress.kubernetes.io/"


@pytest.fixture
async def gateway(tmp_path: Path, binary: Path) -> AsyncIterator[IngressGateway]:
    """A gateway with nothing to serve."""
    async with IngressGateway(tmp_path, binary) as gateway:
        yield gateway
    assert gateway.refused() == []


CLIENTS = c.Issuer("clients")
OTHERS = c.Issuer("others")


def annotated(ingress: m.Manifest, **annotations: str) -> m.Manifest:
    """An Ingress with annotations of ingress-nginx, `_` for `-`."""
    given = {f"{NGINX}{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {**ingress, "metadata": {**ingress["metadata"], "annotations": given}}


def demanding(gateway: IngressGateway, host: str, **annotations: str) -> list[m.Manifest]:
    """A host that asks its clients for certificates of CLIENTS."""
    ingress, secret = gateway.secured(host)
    roots = m.secret("shop/clients", ca_crt=c.pem(CLIENTS.certificate))
    return [annotated(ingress, auth_tls_secret="shop/clients", **annotations), secret, roots]


async def answers(gateway: IngressGateway, status: int, sni: str | None, host: str = "", **fields: Any) -> Told:
    """Waits until a visitor is answered so (0: not at all); the last answer."""
    found: list[Told] = []

    async def answered() -> bool:
        found.append(await visit(gateway, sni, host, **fields))
        return found[-1].status == status

    await gateway.envoy.until(answered, f"seen to answer {sni} with {status}")
    return found[-1]


async def counted(gateway: IngressGateway, name: str) -> int:
    return sum((await gateway.envoy.stats(name)).values())


async def test_a_host_that_asks_for_certificates_lets_in_who_has_one_and_nobody_by_another_hosts_connection(
    gateway: IngressGateway, tmp_path: Path
) -> None:
    someone = {"client": c.host_pair("someone", issuer=CLIENTS), "directory": tmp_path}
    stranger = {"client": c.host_pair("someone", issuer=OTHERS), "directory": tmp_path}
    gateway.apply(*gateway.secured("open.example"))
    await answers(gateway, 200, "open.example")
    async with Visitor(gateway, "open.example") as kept:
        gateway.apply(*demanding(gateway, "closed.example"))
        told = await answers(gateway, 200, "closed.example", **someone)
        assert told.seen["ssl-client-verify"] == "success"
        assert told.seen["ssl-client-subject-dn"] == "cn=someone"
        assert (await kept.ask("open.example")).status == 200
        assert (await kept.ask("closed.example")).status == 421
    assert (await visit(gateway, "closed.example")).status == 0
    assert (await visit(gateway, "closed.example", **stranger)).status == 0
    assert (await visit(gateway, "closed.example", "open.example", **someone)).status == 421
    assert await gateway.status("closed.example", tls=False) == 308
    assert await counted(gateway, "total_filter_chains_draining") == 0
    assert await counted(gateway, "listener_in_place_updated") == 1
