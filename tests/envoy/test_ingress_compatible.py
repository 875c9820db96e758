"""An ingress gateway in compatibility mode as visitors see it: a real Envoy that is told all hosts at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aggregator.operate.bootstrap import Mode
from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.ingress_gateway import IngressGateway, ask
from xds.messages.listener import LISTENER_TYPE
from xds.messages.route_table import ROUTE_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE

FORMS: dict[str, dict[str, Any]] = {"delta": {"mode": "compatible"}, "sotw": {"incremental": False}}


@pytest.fixture(params=FORMS)
async def gateway(request: pytest.FixtureRequest, tmp_path: Path, binary: Path) -> AsyncIterator[IngressGateway]:
    """A gateway with nothing to serve: one that was forced into the mode, and one that speaks nothing else."""
    async with IngressGateway(tmp_path, binary, **FORMS[request.param]) as gateway:
        yield gateway


async def answers(gateway: IngressGateway, status: int, host: str, path: str = "/", **fields: Any) -> None:
    """Waits until a visitor is answered so (0: not at all)."""
    # A client that is hung up on in its handshake is not always told so by asyncio: it should not wait long.
    await gateway.answers(status, host, path, **{"timeout": 0.5, **fields})


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
    found = {key: await gateway.status(*key[:2], tls=key[2], timeout=0.5) for key in expected}
    assert found == expected
    assert gateway.refused() == []
    refusals = await gateway.envoy.stats("update_rejected")
    assert refusals
    assert not any(refusals.values())
    assert SCOPED_ROUTE_TYPE not in pushed(gateway)


# What a host costs.


async def test_one_more_host_under_a_certificate_that_is_there_leaves_all_connections_alone(
    gateway: IngressGateway,
) -> None:
    pair = gateway.pair("*.shop.example")
    gateway.apply(m.tls_secret("shop/wild", *pair), m.ingress("shop/a", "a.shop.example", "web", secret="wild"))
    await answers(gateway, 200, "a.shop.example")
    kept = await gateway.opened("a.shop.example")
    assert await ask(*kept, "a.shop.example") == (200, False)
    before = len(gateway.plane.pushes())
    # A copy of the certificate in another Secret is the same chain.
    gateway.apply(m.tls_secret("shop/z", *pair), m.ingress("shop/b", "b.shop.example", "web", secret="z"))
    await answers(gateway, 200, "b.shop.example")
    assert pushed(gateway, before) == {LISTENER_TYPE, ROUTE_TYPE}
    assert await ask(*kept, "a.shop.example") == (200, False)
    kept[1].close()
    assert await drained(gateway) == 0
    assert gateway.refused() == []


async def test_a_host_with_a_certificate_of_its_own_leaves_all_connections_alone(gateway: IngressGateway) -> None:
    gateway.apply(*gateway.secured("a.example"))
    await answers(gateway, 200, "a.example")
    reader, writer = await gateway.opened("a.example")
    gateway.apply(*gateway.secured("b.example"))
    await answers(gateway, 200, "b.example")
    assert await ask(reader, writer, "a.example") == (200, False)
    writer.close()
    assert await drained(gateway) == 0


async def test_a_renewed_certificate_is_one_resource(gateway: IngressGateway) -> None:
    gateway.apply(*gateway.secured("a.example"))
    await answers(gateway, 200, "a.example")
    old = await gateway.shown("a.example")
    before = len(gateway.plane.pushes())
    gateway.apply(*gateway.secured("a.example"))

    async def renewed() -> bool:
        return await gateway.shown("a.example") != old

    await gateway.envoy.until(renewed, "seen to show another certificate")
    assert pushed(gateway, before) == {SECRET_TYPE}
    assert await drained(gateway) == 0


async def test_a_host_that_is_deleted_is_served_no_more_by_open_connections_either(gateway: IngressGateway) -> None:
    ingress, secret = gateway.secured("a.example")
    gateway.apply(*gateway.secured("b.example", "other"), ingress, secret)
    await answers(gateway, 200, "a.example")
    gateway.apply(m.ingress("shop/wild", "c.example", "web", secret="a-example"))
    reader, writer = await gateway.opened("a.example")
    assert await ask(reader, writer, "a.example") == (200, False)
    gateway.delete(ingress, secret)
    await answers(gateway, 0, "a.example", timeout=0.5)

    # Listeners and routes are told one after the other.
    async def misdirected() -> bool:
        return (await ask(reader, writer, "a.example"))[0] == 421

    await gateway.envoy.until(misdirected, "seen to answer 421 on a kept connection")
    writer.close()


async def test_a_secret_that_is_missing_costs_its_host_and_no_other(gateway: IngressGateway) -> None:
    ingress, secret = gateway.secured("late.example")
    gateway.apply(ingress, *gateway.secured("a.example"))
    await answers(gateway, 200, "a.example")
    assert await gateway.status("late.example", timeout=0.5) == 0
    gateway.apply(secret)
    await answers(gateway, 200, "late.example")
    assert gateway.refused() == []


async def test_a_control_plane_that_starts_anew_sends_what_changed_and_no_more(gateway: IngressGateway) -> None:
    gateway.apply(*gateway.secured("a.example"), m.ingress("shop/plain", "plain.example", "web"))
    await answers(gateway, 200, "a.example")
    await gateway.restart()
    gateway.apply(m.ingress("shop/new", "new.example", "web"))
    await answers(gateway, 200, "new.example", tls=False)
    # The gateway's own certificate is made anew, which only the incremental variant can do without.
    assert {one.type_url for one in gateway.plane.pushes() if one.resources} - {SECRET_TYPE} == {ROUTE_TYPE}


# The mode.


@pytest.mark.parametrize("first", ["on-demand", "compatible"])
async def test_a_change_of_the_mode_drops_no_connection_and_no_request(
    tmp_path: Path, binary: Path, first: Mode
) -> None:
    async with IngressGateway(tmp_path, binary, mode=first) as gateway:
        gateway.apply(*gateway.secured("a.example"), *gateway.secured("b.example"))
        await answers(gateway, 200, "a.example")
        await answers(gateway, 200, "b.example")
        kept = await gateway.opened("a.example")
        assert await ask(*kept, "a.example") == (200, False)
        visits: list[int] = []
        visiting = asyncio.create_task(visit(gateway, visits))
        second = "compatible" if first == "on-demand" else "on-demand"
        gateway.apply(gateway.pod(**{"isthmus.io/ingress-mode": second}))

        async def changed() -> bool:
            listeners = await gateway.holds("dynamic_listeners")
            text = json.dumps([one for one in listeners if one["name"] == "https"])
            return ("scoped_routes" in text) == (second == "on-demand") and "draining_state" not in text

        await gateway.envoy.until(changed, f"seen to be in mode {second}")
        answered: list[tuple[int, bool]] = []

        async def told_to_go() -> bool:
            answered.append(await ask(*kept, "a.example"))
            return answered[-1][1]

        # It is answered as before until it is told, with some answer while the listener drains, to open another.
        await gateway.envoy.until(told_to_go, "seen to end a connection")
        assert {status for status, _ in answered} == {200}
        count = len(visits)
        await eventually(lambda: len(visits) > count + 3)
        visiting.cancel()
        assert set(visits) == {200}
        assert await gateway.status("b.example") == 200
        assert gateway.refused() == []


async def visit(gateway: IngressGateway, visits: list[int]) -> None:
    while True:
        visits.append(await gateway.status("a.example"))
        await asyncio.sleep(0.01)


async def drained(gateway: IngressGateway) -> int:
    """Chains whose connections were told to go."""
    return sum((await gateway.envoy.stats("total_filter_chains_draining")).values())
