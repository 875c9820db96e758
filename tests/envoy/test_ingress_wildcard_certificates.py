"""Wildcard certificates of an ingress gateway: whom they are shown to, and what is not disturbed, on a real Envoy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.ingress_gateway import IngressGateway
from tests.kit.visitor import Visitor, answers, visit
from xds.messages.scope import SCOPED_ROUTE_TYPE


@pytest.fixture
async def gateway(tmp_path: Path, binary: Path) -> AsyncIterator[IngressGateway]:
    """A gateway with nothing to serve."""
    async with IngressGateway(tmp_path, binary) as gateway:
        yield gateway
    assert gateway.refused() == []


def wildcard(gateway: IngressGateway, **annotations: str) -> list[m.Manifest]:
    """A wildcard host and its certificate."""
    ingress = m.ingress("shop/wild", "*.wild.example", "web", secret="wild")
    given = {f"isthmus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    made = {**ingress, "metadata": {**ingress["metadata"], "annotations": given}}
    return [made, m.tls_secret("shop/wild", *gateway.pair("*.wild.example"))]


async def shows(gateway: IngressGateway, sni: str, *names: str) -> None:
    """Waits until a visitor is shown a certificate for these names."""

    async def shown() -> bool:
        return (await visit(gateway, sni)).names == names

    await gateway.envoy.until(shown, f"seen to show {sni} a certificate for {names}")


async def counted(gateway: IngressGateway, name: str) -> int:
    return sum((await gateway.envoy.stats(name)).values())


@pytest.mark.parametrize("chain", ["static", "on-demand"])
async def test_names_under_a_wildcard_host_are_shown_its_certificate_whoever_asks_first(
    gateway: IngressGateway, chain: str
) -> None:
    gateway.apply(*wildcard(gateway, tls_chain=chain))
    told = await answers(gateway, 200, "any.wild.example")
    assert told.names == ("*.wild.example",)
    assert (await visit(gateway, "other.wild.example")).status == 200
    assert (await visit(gateway, "two.labels.wild.example")).status in (0, 421)
    assert (await visit(gateway, "wild.example")).status == 0
    assert (await visit(gateway, "any.wild.example", "other.wild.example")).status == 200
    assert len(await gateway.holds("dynamic_active_secrets")) >= (1 if chain == "static" else 2)


async def test_a_host_under_a_wildcard_with_a_certificate_of_its_own_shows_it_and_drains_nobody(
    gateway: IngressGateway,
) -> None:
    gateway.apply(*wildcard(gateway))
    await answers(gateway, 200, "own.wild.example")
    updated = await counted(gateway, "listener_in_place_updated")
    async with Visitor(gateway, "any.wild.example") as kept:
        gateway.apply(*gateway.secured("own.wild.example"))
        await shows(gateway, "own.wild.example", "own.wild.example")
        assert (await kept.ask("any.wild.example")).status == 200
    assert (await visit(gateway, "any.wild.example")).names == ("*.wild.example",)
    assert await counted(gateway, "listener_in_place_updated") == updated + 1
    assert await counted(gateway, "total_filter_chains_draining") == 0


async def test_a_host_under_a_wildcard_that_shares_its_certificate_changes_no_listener(gateway: IngressGateway) -> None:
    gateway.apply(*wildcard(gateway))
    await answers(gateway, 200, "one.wild.example")
    before = len(gateway.plane.pushes())
    gateway.apply(m.ingress("shop/one", "one.wild.example", "web", path="/one", secret="wild"))
    await answers(gateway, 404, "one.wild.example")
    assert {one.type_url for one in gateway.plane.pushes()[before:]} == {SCOPED_ROUTE_TYPE}


async def test_a_wildcard_that_goes_takes_its_chain_along(gateway: IngressGateway) -> None:
    objects = wildcard(gateway)
    gateway.apply(*objects, *gateway.secured("own.wild.example"))
    await answers(gateway, 200, "any.wild.example")
    gateway.delete(*objects)
    await answers(gateway, 0, "any.wild.example")
    assert (await visit(gateway, "own.wild.example")).status == 200


async def test_a_wildcard_host_may_ask_for_certificates_of_clients(gateway: IngressGateway, tmp_path: Path) -> None:
    clients = c.Issuer("clients")
    objects = wildcard(gateway, auth_tls_secret="shop/clients")
    gateway.apply(*objects, m.secret("shop/clients", ca_crt=c.pem(clients.certificate)), *gateway.secured("a.example"))
    someone: dict[str, Any] = {"client": c.host_pair("someone", issuer=clients), "directory": tmp_path}
    await answers(gateway, 200, "any.wild.example", **someone)
    assert (await visit(gateway, "any.wild.example")).status == 0
    assert (await answers(gateway, 421, "a.example", "any.wild.example")).status == 421
