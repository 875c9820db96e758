"""TLS of an ingress gateway as visitors see it, on a real Envoy: classes of settings, wildcards, names on demand."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aggregator.app.setting_values import ObjectName
from aggregator.traffic.annotations.tls import CIPHERS, VERSIONS
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.eventually import eventually
from tests.kit.ingress_gateway import IngressGateway, answer
from tests.kit.visitor import Visitor, answers, visit
from xds.messages.secret import SECRET_TYPE

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


async def counted(gateway: IngressGateway, name: str) -> int:
    return sum((await gateway.envoy.stats(name)).values())


async def test_a_host_that_asks_for_certificates_lets_in_who_has_one_and_nobody_by_another_hosts_connection(
    gateway: IngressGateway, tmp_path: Path
) -> None:
    someone: dict[str, Any] = {"client": c.host_pair("someone", issuer=CLIENTS), "directory": tmp_path}
    stranger: dict[str, Any] = {"client": c.host_pair("someone", issuer=OTHERS), "directory": tmp_path}
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


async def test_of_those_with_certificates_only_the_names_that_are_listed_get_in(
    gateway: IngressGateway, tmp_path: Path
) -> None:
    gateway.apply(
        *demanding(
            gateway,
            "named.example",
            auth_tls_match_cn="CN=(alice|bob.example)",
            auth_tls_pass_certificate_to_upstream="true",
        )
    )
    fields: dict[str, Any] = {"directory": tmp_path}
    told = await answers(gateway, 200, "named.example", client=c.host_pair("alice", issuer=CLIENTS), **fields)
    assert told.seen["ssl-client-cert"].startswith("-----begin%20certificate-----%0a")
    for name, status in (("bob.example", 200), ("bobxexample", 403), ("malice", 403), ("x,CN=alice", 403)):
        found = await visit(gateway, "named.example", client=c.host_pair(name, issuer=CLIENTS), **fields)
        assert found.status == status, name


async def test_what_a_client_says_of_its_certificate_itself_reaches_no_backend(
    gateway: IngressGateway, tmp_path: Path
) -> None:
    gateway.apply(*demanding(gateway, "any.example", auth_tls_verify_client="optional"))
    await answers(gateway, 200, "any.example")
    async with Visitor(gateway, "any.example") as visitor:
        told = await visitor.ask("any.example", ssl_client_verify="SUCCESS", ssl_client_cert="x")
    assert told.status == 200
    assert not {name for name in told.seen if name.startswith("ssl-client")}
    stranger = c.host_pair("someone", issuer=OTHERS)
    assert (await visit(gateway, "any.example", client=stranger, directory=tmp_path)).status == 0


async def test_who_demands_certificates_of_roots_that_are_not_there_lets_nobody_in_until_they_are(
    gateway: IngressGateway, tmp_path: Path
) -> None:
    someone: dict[str, Any] = {"client": c.host_pair("someone", issuer=CLIENTS), "directory": tmp_path}
    *objects, roots = demanding(gateway, "closed.example")
    gateway.apply(*objects, *gateway.secured("open.example"))
    await answers(gateway, 200, "open.example")
    assert (await visit(gateway, "closed.example", **someone)).status == 0
    assert "wants certificates of the roots" in gateway.plane.control.findings()[0]
    gateway.apply(roots)
    await answers(gateway, 200, "closed.example", **someone)
    gateway.delete(roots)
    await answers(gateway, 0, "closed.example", **someone)
    assert (await visit(gateway, "open.example")).status == 200


async def test_other_roots_of_clients_change_no_listener(gateway: IngressGateway, tmp_path: Path) -> None:
    someone: dict[str, Any] = {"client": c.host_pair("someone", issuer=CLIENTS), "directory": tmp_path}
    stranger: dict[str, Any] = {"client": c.host_pair("someone", issuer=OTHERS), "directory": tmp_path}
    gateway.apply(*demanding(gateway, "closed.example"))
    await answers(gateway, 200, "closed.example", **someone)
    before = len(gateway.plane.pushes())
    gateway.apply(m.secret("shop/clients", ca_crt=c.pem(OTHERS.certificate)))
    await answers(gateway, 200, "closed.example", **stranger)
    assert (await visit(gateway, "closed.example", **someone)).status == 0
    assert {one.type_url for one in gateway.plane.pushes()[before:]} == {SECRET_TYPE}


async def test_versions_of_tls_are_those_that_a_host_asks_for(gateway: IngressGateway) -> None:
    ingress, secret = gateway.secured("modern.example")
    annotations = {"isthmus.io/tls-min-protocol-version": "TLSv1.3"}
    modern = {**ingress, "metadata": {**ingress["metadata"], "annotations": annotations}}
    gateway.apply(modern, secret, *gateway.secured("other.example"))
    await answers(gateway, 200, "modern.example")
    old: dict[str, Any] = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    assert (await visit(gateway, "modern.example", **old)).status == 0
    assert (await answers(gateway, 200, "other.example", **old)).status == 200
    assert (await visit(gateway, "other.example", "modern.example")).status == 421


async def test_a_backend_ends_tls_itself_where_that_is_asked_for(tmp_path: Path, binary: Path) -> None:
    async with IngressGateway(tmp_path, binary, answering=False) as gateway:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        for file, content in zip(("own.crt", "own.key"), gateway.pair("passed.example"), strict=True):
            (tmp_path / file).write_bytes(content)
        context.load_cert_chain(tmp_path / "own.crt", tmp_path / "own.key")
        place = gateway.application
        server = await asyncio.start_server(answer, place.host, place.port, ssl=context)
        passed = annotated(m.ingress("shop/passed", "passed.example", "web"), ssl_passthrough="true")
        gateway.apply(passed, *gateway.secured("open.example"))
        told = await answers(gateway, 200, "passed.example")
        assert told.names == ("passed.example",)
        assert (await visit(gateway, "open.example", "passed.example")).status == 421
        assert await gateway.status("passed.example", tls=False) == 308
        assert gateway.refused() == []
        server.close()


async def test_a_gateway_takes_all_settings_that_can_be_asked_for(gateway: IngressGateway) -> None:
    prefix = "isthmus.io/tls-{}-protocol-version"
    many: list[dict[str, str]] = [{"isthmus.io/ssl-cipher": cipher} for cipher in CIPHERS]
    for place, least in enumerate(VERSIONS):
        many += [{prefix.format("min"): least, prefix.format("max"): most} for most in VERSIONS[place:]]
    many += [{prefix.format("max"): most} for most in VERSIONS[2:]]
    for verify in ("on", "optional", "optional_no_ca"):
        demand = {"auth-tls-secret": "clients", "auth-tls-verify-client": verify, "auth-tls-verify-depth": "16"}
        many.append({f"isthmus.io/{name}": value for name, value in demand.items()})
    many.append({**many[-1], **many[0], **many[-4], "isthmus.io/tls-chain": "static"})
    secret = m.tls_secret("shop/many", *gateway.pair("*.many.example"))
    gateway.apply(secret, m.secret("shop/clients", ca_crt=c.pem(CLIENTS.certificate)))
    for number, asked in enumerate(many):
        ingress = m.ingress(f"shop/i{number}", f"h{number}.many.example", "web", secret="many")
        gateway.apply({**ingress, "metadata": {**ingress["metadata"], "annotations": asked}})
    host = f"h{len(CIPHERS) + 9}.many.example"  # from TLS 1.3 to TLS 1.3
    await answers(gateway, 200, host)
    await answers(gateway, 421, host, "h0.many.example")
    listeners = await gateway.holds("dynamic_listeners")
    (told,) = [one["active_state"]["listener"] for one in listeners if one["name"] == "https"]
    assert len(told["filter_chains"]) == 1 + len(many)
    assert not any("error_state" in one for one in listeners)


# Certificates that are there from the start.


async def test_connections_to_a_host_with_a_chain_of_its_own_are_resumed(gateway: IngressGateway) -> None:
    hot, secret = gateway.secured("hot.example")
    own = {**hot, "metadata": {**hot["metadata"], "annotations": {"isthmus.io/tls-chain": "static"}}}
    gateway.apply(own, secret, *gateway.secured("cold.example"))
    await answers(gateway, 200, "hot.example")
    await answers(gateway, 200, "cold.example")
    assert await reconnects(gateway, "hot.example") == 5
    assert await reconnects(gateway, "cold.example") == 0
    assert (await visit(gateway, "cold.example", "hot.example")).status == 200  # they are of one class
    before = (await visit(gateway, "hot.example")).serial
    gateway.apply(m.tls_secret("shop/hot-example", *gateway.pair("hot.example")))

    async def renewed() -> bool:
        return (await visit(gateway, "hot.example")).serial != before

    await gateway.envoy.until(renewed, "seen to show another certificate")
    gateway.delete(secret)
    await answers(gateway, 0, "hot.example")


async def reconnects(gateway: IngressGateway, host: str) -> int:
    """How many of five further connections are resumed."""
    place = (gateway.https.host, gateway.https.port)
    context = gateway.trust
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # the session is there with the handshake

    def connect(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
        with (
            socket.create_connection(place, timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=host, session=session) as secured,
        ):
            return secured.session, bool(secured.session_reused)

    session, _ = await asyncio.to_thread(connect, None)
    return sum([(await asyncio.to_thread(connect, session))[1] for _ in range(5)])


# Names that are asked for.


async def test_without_a_good_certificate_a_host_and_who_names_none_are_shown_the_default_one(
    tmp_path: Path, binary: Path
) -> None:
    async with IngressGateway(tmp_path, binary, default_certificate=ObjectName("shop", "fallback")) as gateway:
        fallback = m.tls_secret("shop/fallback", *gateway.pair("fallback.example"))
        ingress, secret = gateway.secured("late.example")
        gateway.apply(fallback, ingress, m.ingress("shop/plain", "plain.example", "web"))
        for host in ("late.example", "plain.example"):
            told = await answers(gateway, 200, host)
            assert told.names == ("fallback.example",)
        assert (await visit(gateway, None, "plain.example")).names == ("fallback.example",)
        unknown = await visit(gateway, "unknown.example")
        assert (unknown.status, unknown.names) == (421, ("fallback.example",))
        gateway.apply(secret)

        async def own() -> bool:
            return (await visit(gateway, "late.example")).names == ("late.example",)

        await gateway.envoy.until(own, "seen to show the host's own certificate")
        gateway.apply(m.tls_secret("shop/fallback", *gateway.pair("new.example")))

        async def renewed() -> bool:
            return (await visit(gateway, "unknown.example")).names == ("new.example",)

        await gateway.envoy.until(renewed, "seen to show the new default certificate")
        gateway.delete(m.tls_secret("shop/fallback", b"", b""))
        await answers(gateway, 0, "unknown.example")
        assert (await visit(gateway, "late.example")).status == 200
        assert gateway.refused() == []


async def test_a_handshake_waits_for_a_certificate_that_comes_in_time(gateway: IngressGateway) -> None:
    ingress, secret = gateway.secured("late.example")
    gateway.apply(ingress)
    await eventually(lambda: bool(gateway.plane.control.tables.awaited.get(("late.example",))))
    handshake = asyncio.create_task(visit(gateway, "late.example"))

    async def asked() -> bool:
        return bool(await counted(gateway, "on_demand_secret.cert_requested"))

    await gateway.envoy.until(asked, "seen to ask for the certificate")
    gateway.apply(secret)
    told = await handshake
    assert told.status == 200
    assert told.seconds < 5.0


async def test_a_handshake_whose_certificate_does_not_come_fails_before_the_client_gives_up(
    gateway: IngressGateway,
) -> None:
    ingress, _ = gateway.secured("never.example")
    gateway.apply(ingress)
    await eventually(lambda: bool(gateway.plane.control.tables.awaited.get(("never.example",))))
    told = await visit(gateway, "never.example")
    assert told.status == 0
    assert 4.0 < told.seconds < 8.0
