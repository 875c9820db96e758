"""`isthmus domains` and /domains against a running control plane: what they show is what is so, gateway by gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from aggregator.cli.main import app
from aggregator.operate.domain_list import schema
from aggregator.views.ingress_gateway import scope_keys
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.domains import Domains, secured
from tests.kit.eventually import eventually

HOST = "shop.example.org"


@pytest.fixture
async def domains(tmp_path: Path) -> AsyncIterator[Domains]:
    made = Domains(tmp_path)
    async with made.running():
        yield made


async def states(domains: Domains, query: str = "") -> dict[str, str]:
    page = await domains.ask(query)
    return {one["host"]: one["state"] for one in page.json()["items"]}


async def known(domains: Domains, count: int) -> None:
    """Waits until so many hosts are known."""
    hosts = domains.plane.control.pipeline
    await eventually(lambda: len(hosts.graph.values(hosts.hosts.claims)) == count and not hosts.graph.under_way)


async def isthmus(domains: Domains, *words: str) -> Any:
    """`isthmus domains`, in a thread, since the control plane it asks is in this loop."""
    command = ("domains", "--admin", f"127.0.0.1:{domains.plane.control.admin.port}", *words)
    return await asyncio.to_thread(CliRunner().invoke, app, command)


# States, each with its reason.


async def test_a_host_with_certificate_and_backend_is_served(domains: Domains) -> None:
    domains.apply(*secured(HOST))
    found = await domains.until(HOST, state="Served")
    assert (found["reason"], found["ingresses"], found["secret"]) == (
        "",
        ["shop/shop-example-org"],
        "shop/shop-example-org",
    )
    expires = datetime.fromisoformat(found["certificateExpires"])
    assert abs(expires - c.NOW - timedelta(days=90)) < timedelta(minutes=1)
    jsonschema.validate(found, schema(), format_checker=jsonschema.FormatChecker())


async def test_each_state_has_its_reason(domains: Domains) -> None:
    ingress, _ = secured("bare.example.org")
    tls = {"hosts": ["tls.example.org"], "secretName": "x"}
    domains.apply(
        *secured("good.example.org"),
        ingress,
        *secured("other.example.org", names=("elsewhere.example.org",)),
        *secured("late.example.org", ends=c.NOW - timedelta(hours=1)),
        m.ingress("shop/nowhere", "nowhere.example.org", "gone"),
        m.ingress("shop/named", "ruled.example.org", "web", spec={"tls": [tls]}),
    )
    await known(domains, 7)
    items = {one["host"]: one for one in (await domains.ask()).json()["items"]}
    bare = "Secret shop/bare-example-org is not there, or holds no pair that can be served"
    other = "Secret shop/other-example-org has a certificate for elsewhere.example.org"
    assert {host: (one["state"], one["reason"]) for host, one in items.items()} == {
        "bare.example.org": ("NoCertificate", bare),
        "good.example.org": ("Served", ""),
        "late.example.org": ("CertificateExpired", "renew the certificate in Secret shop/late-example-org"),
        "nowhere.example.org": ("BackendMissing", "1 of 1 paths answer 503, the first: Prefix /"),
        "other.example.org": ("NoCertificate", other),
        "ruled.example.org": ("Served", ""),
        "tls.example.org": ("WithoutRule", "No Ingress has a rule for the host."),
    }
    assert items["bare.example.org"]["findings"] == 1
    assert items["good.example.org"]["findings"] == 0


async def test_a_host_that_no_ingress_names_is_answered_with_some_that_are_called_alike(domains: Domains) -> None:
    domains.apply(*secured(HOST), m.ingress("shop/b", "other.example.net", "web"))
    await known(domains, 2)
    missing = await domains.ask("/sho.example.org")
    assert missing.status == 404
    assert missing.json() == {"error": "no domain 'sho.example.org'", "domains": [HOST]}


async def test_a_host_is_gone_with_its_last_ingress(domains: Domains) -> None:
    domains.apply(*secured(HOST))
    await known(domains, 1)
    domains.delete(secured(HOST)[0])
    await known(domains, 0)
    assert (await domains.ask()).json()["items"] == []


# Gateways, and the activation.


async def test_every_gateway_counts_that_has_accepted_what_there_is_now(domains: Domains) -> None:
    domains.apply(*secured(HOST))
    await known(domains, 1)
    assert (await domains.one(HOST))["gateways"] == 0
    async with domains.gateway() as one, domains.gateway() as other:
        await domains.until(HOST, gateways=2, acknowledged=2)
        other.answering = False
        domains.apply(m.ingress("shop/more", HOST, "web", path="/more"))
        await eventually(lambda: other.waiting)
        found = await domains.until(HOST, acknowledged=1)
        assert sorted(gateway["acknowledged"] for gateway in found["details"]["gateways"]) == [False, True]
        await other.answer()
        await domains.until(HOST, acknowledged=2)
        assert one.held == other.held


async def test_another_host_that_changes_takes_no_acknowledgement_away(domains: Domains) -> None:
    domains.apply(*secured(HOST))
    async with domains.gateway() as gateway:
        await domains.until(HOST, acknowledged=1)
        gateway.answering = False
        domains.apply(*secured("new.example.org"))
        await eventually(lambda: gateway.waiting)
        assert (await domains.one(HOST))["acknowledged"] == 1
        assert (await domains.one("new.example.org"))["acknowledged"] == 0


async def test_a_gateway_that_refuses_is_named_with_its_reason_and_the_others_count(domains: Domains) -> None:
    async with domains.gateway(refused=(scope_keys(HOST, None)[0][1],)), domains.gateway():
        domains.apply(*secured(HOST), *secured("other.example.org"))
        found = await domains.until(HOST, state="Refused", acknowledged=1)
        assert found["reason"].endswith("no such filter")
        assert found["activation"] is None
        await domains.until("other.example.org", state="Served", acknowledged=2)


async def test_a_gateway_that_comes_back_holding_all_is_told_nothing_and_counts(domains: Domains) -> None:
    domains.apply(*secured(HOST))
    async with domains.gateway() as before:
        await domains.until(HOST, acknowledged=1)
    async with domains.gateway() as gateway:
        gateway.held |= before.held
        await domains.until(HOST, gateways=1, acknowledged=1)


async def test_the_activation_is_the_time_until_the_first_gateway_has_accepted(domains: Domains) -> None:
    domains.apply(*secured("other.example.org"))
    async with domains.gateway() as gateway:
        await domains.until("other.example.org", acknowledged=1)
        gateway.answering = False
        objects = secured(HOST)
        began = datetime.now(UTC)
        domains.apply(*objects)
        applied = datetime.now(UTC)
        await eventually(lambda: gateway.waiting)
        found = await domains.one(HOST)
        assert (found["acknowledged"], found["activation"]) == (0, None)
        waited = (datetime.now(UTC) - applied).total_seconds()
        await gateway.answer()
        found = await domains.until(HOST, acknowledged=1)
        assert waited < found["activation"] < (datetime.now(UTC) - began).total_seconds()
        assert abs(datetime.fromisoformat(found["changed"]) - began) < timedelta(seconds=1)
        async with domains.gateway():
            again = await domains.until(HOST, gateways=2, acknowledged=2)
        assert again["activation"] == found["activation"]


async def test_a_change_of_the_secret_alone_is_no_change_of_the_routes(domains: Domains) -> None:
    async with domains.gateway():
        domains.apply(*secured(HOST))
        before = await domains.until(HOST, acknowledged=1)
        domains.apply(secured(HOST, ends=c.NOW + timedelta(days=9))[1])
        await eventually(lambda: not domains.plane.control.pipeline.graph.under_way)
        after = await domains.until(HOST, acknowledged=1)
        assert (after["changed"], after["activation"]) == (before["changed"], before["activation"])


async def test_nothing_is_measured_of_changes_while_no_gateway_was_there(domains: Domains) -> None:
    domains.apply(*secured(HOST))
    found = await domains.until(HOST, state="Served")
    assert found["changed"] is not None
    async with domains.gateway():
        found = await domains.until(HOST, acknowledged=1)
        assert found["activation"] is None
        metrics = (await domains.plane.admin("/metrics")).text
        assert "isthmus_domain_activations_total 0.0" in metrics
        domains.apply(*secured("new.example.org"))
        await domains.until("new.example.org", acknowledged=1)
        metrics = (await domains.plane.admin("/metrics")).text
        assert "isthmus_domain_activations_total 1.0" in metrics


# Pages and filters.


async def test_pages_hold_every_domain_once_and_in_order(domains: Domains) -> None:
    hosts = [f"h{number:03}.example.org" for number in range(25)]
    domains.apply(*(m.ingress(f"shop/i{number}", host, "web") for number, host in enumerate(hosts)))
    await known(domains, 25)
    seen: list[str] = []
    after = ""
    while True:
        page = (await domains.ask(f"?limit=10&after={after}")).json()
        seen += [one["host"] for one in page["items"]]
        assert page["total"] == 25
        if not (after := page["after"]):
            break
    assert seen == hosts


async def test_the_server_picks_by_name_by_domain_and_by_state(domains: Domains) -> None:
    domains.apply(
        m.ingress("shop/a", "a.example.org", "web"),
        m.ingress("shop/b", "b.example.org", "gone"),
        m.ingress("shop/c", "c.example.net", "web"),
    )
    await known(domains, 3)
    assert await states(domains, "?name=A.example.org.,c.example.net") == {
        "a.example.org": "Served",
        "c.example.net": "Served",
    }
    assert set(await states(domains, "?name=.example.org")) == {"a.example.org", "b.example.org"}
    assert set(await states(domains, "?name=.example.org,c.example.net")) == {
        "a.example.org",
        "b.example.org",
        "c.example.net",
    }
    assert set(await states(domains, "?state=BackendMissing,NoCertificate")) == {"b.example.org"}
    page = (await domains.ask("?name=a.example.org,nobody.example.org,.nowhere")).json()
    assert (len(page["items"]), page["unknown"]) == (1, ["nobody.example.org"])


@pytest.mark.parametrize("query", ["?limit=0", "?limit=-1", "?limit=99999999999", "?limit=a", "?state=Fine", "?sort=x"])
async def test_a_query_that_means_nothing_is_answered_with_what_does(domains: Domains, query: str) -> None:
    page = await domains.ask(query)
    assert page.status == 400
    assert page.json()["error"]


async def test_pages_are_closed_to_strangers(domains: Domains) -> None:
    pages = domains.plane.control.pages
    assert not pages.is_open("/domains")
    assert not pages.is_open("/domains/x")


# The command.


async def test_the_command_shows_what_the_page_says(domains: Domains) -> None:
    domains.apply(*secured(HOST), m.ingress("shop/b", "b.example.org", "gone"))
    await known(domains, 2)
    done = await isthmus(domains)
    assert (done.exit_code, done.stderr) == (2, "1 of 2 domains needs attention (exit 2)\n")
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["DOMAIN", "STATE", "INGRESS", "CERT-EXPIRES"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["b.example.org", "BackendMissing", "shop/b"],
        [HOST, "Served", "shop/shop-example-org"],
    ]
    assert (await isthmus(domains, HOST)).exit_code == 0
    done = await isthmus(domains, "--not-served", "-o", "json")
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema(), format_checker=jsonschema.FormatChecker())
    assert [one["host"] for one in found["items"]] == ["b.example.org"]


async def test_get_tells_paths_gateways_and_findings(domains: Domains) -> None:
    domains.apply(m.ingress("shop/b", "b.example.org", "gone"))
    async with domains.gateway():
        await domains.until("b.example.org", acknowledged=1)
        done = await isthmus(domains, "get", "b.example.org")
    assert done.exit_code == 2
    said = done.stdout
    assert "BackendMissing: 1 of 1 paths answer 503" in said
    assert "shop/gone:80 (503)" in said
    assert "BackendNotFound" in said
    assert "1 of 1 have acknowledged" in said
    assert "router~10.9.9.9~ingress-1.istio-system~istio-system.svc" in said
