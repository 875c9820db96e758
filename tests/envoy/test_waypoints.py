"""Services with a waypoint and gateways that are real Envoys: who goes through it, and who straight."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aggregator.demo.credentials import TRUST_DOMAIN
from aggregator.demo.destination import Pod
from aggregator.demo.stage import HOST, NAMESPACE, Site
from tests.kit import manifests as m
from tests.kit import tunnel as t
from tests.kit.mesh import Mesh
from tests.kit.tunnel_client import CATALOG, HOSTNAME, Client
from xds.records import Ack
from xds.server.authentication import Identity

POD = "spiffe://cluster.local/ns/shop/sa/catalog"
WAYPOINT = "spiffe://cluster.local/ns/shop/sa/waypoint"
LABELS = '  labels: {istio.io/global: "true"}\n'


@pytest.fixture
async def mesh(tmp_path: Path, binary: Path) -> AsyncIterator[Mesh]:
    """East with its pods, a waypoint in its namespace that no service has yet, and its gateway."""
    async with Mesh(tmp_path, binary) as mesh:
        write_waypoint(mesh.stage.east)
        await start_pods(mesh, mesh.stage.east, CATALOG)
        await (await mesh.start_gateway(mesh.stage.east)).ready()
        yield mesh


async def start_pods(mesh: Mesh, site: Site, *authorities: str) -> None:
    """Starts the pods of a cluster and that of its waypoint, which is asked for these authorities.

    What a waypoint does with a request matters here as little as what an application does.
    """
    identity = Identity(TRUST_DOMAIN, NAMESPACE, "waypoint", "waypoint-1")
    certificate, key = mesh.stage.credentials.issue(site.name, identity)
    root, address = mesh.stage.credentials.root, site.address("1.20")
    waypoint = Pod("waypoint-1", address, certificate, key, root, authorities, 8080)
    await mesh.plane.start_pods(site, [*mesh.stage.destinations(site), waypoint])


@pytest.fixture
async def client(mesh: Mesh) -> AsyncIterator[Client]:
    client = Client(mesh)
    yield client
    await client.close()


def write_waypoint(site: Site, *, ready: bool = True) -> None:
    """The waypoint's Gateway, its Service, which says nothing of being global, and its pod."""
    managed = {"gateway.istio.io/managed": "istio.io-mesh-controller"}
    own = {"app": "waypoint", **managed}
    m.write_manifests(
        site.manifests,
        m.gateway("shop/waypoint", addresses=[("Hostname", "waypoint.shop.svc.cluster.local")]),
        m.service("shop/waypoint", site.address("96.20"), ports={"mesh": 15008}, selector=own, labels=managed),
        m.pod("shop/waypoint-1", site.address("1.20"), labels=own, account="waypoint", ambient=False, ready=ready),
        file="waypoint.yaml",
    )


def use_waypoint(mesh: Mesh, *, ingress: bool = False) -> None:
    """East's service asks for the waypoint, for ingress gateways as well if so."""
    mesh.edit(mesh.stage.east, "catalog.yaml", LABELS, labels(ingress=ingress))


def labels(*, ingress: bool) -> str:
    more = ', istio.io/ingress-use-waypoint: "true"' if ingress else ""
    return f'  labels: {{istio.io/global: "true", istio.io/use-waypoint: waypoint{more}}}\n'


async def reached(mesh: Mesh, client: Client, wanted: str, **headers: str) -> None:
    """Makes tunnels until one ends at a peer of that identity, which then answers."""

    async def there() -> bool:
        try:
            way, _, peer = await client.both(**headers)
        except (t.Refused, ConnectionResetError, ssl.SSLError):
            return False
        return peer.peer == (wanted,) and (await client.ask(way)).startswith(b"HTTP/1.1 200")

    await mesh.east_west.until(there, f"led to {wanted}", 10.0)


async def test_clients_go_through_the_waypoint_and_waypoints_straight(mesh: Mesh, client: Client) -> None:
    use_waypoint(mesh)
    await reached(mesh, client, WAYPOINT)
    assert (await client.both(x_istio_source="sidecar"))[2].peer == (WAYPOINT,)
    for source in ("waypoint", "gateway"):
        assert (await client.both(x_istio_source=source))[2].peer == (POD,)
    acks = [one for one in mesh.planes["east"].control.records.recent() if isinstance(one, Ack)]
    assert acks
    assert [one.message for one in acks if not one.accepted] == []


async def test_ingress_gateways_go_through_the_waypoint_if_the_service_says_so(mesh: Mesh, client: Client) -> None:
    use_waypoint(mesh, ingress=True)
    await reached(mesh, client, WAYPOINT, x_istio_source="gateway")
    assert (await client.both())[2].peer == (WAYPOINT,)
    assert (await client.both(x_istio_source="waypoint"))[2].peer == (POD,)


async def test_a_service_gets_a_waypoint_and_loses_it_and_no_tunnel_breaks(mesh: Mesh, client: Client) -> None:
    straight, _, _ = await client.both()
    use_waypoint(mesh)
    await reached(mesh, client, WAYPOINT)
    through, _, _ = await client.both()
    (mesh.stage.east.manifests / "waypoint.yaml").unlink()
    await reached(mesh, client, POD)
    for way in (straight, through):
        assert (await t.ask(way, HOSTNAME)).startswith(b"HTTP/1.1 200")


async def test_a_waypoint_without_ready_pods_is_not_passed_over(mesh: Mesh, client: Client) -> None:
    use_waypoint(mesh)
    await reached(mesh, client, WAYPOINT)
    write_waypoint(mesh.stage.east, ready=False)

    async def closed() -> bool:
        try:
            _, _, peer = await client.both()
        except (t.Refused, ConnectionResetError, ssl.SSLError):
            return True
        assert peer.peer == (WAYPOINT,)
        return False

    await mesh.east_west.until(closed, "without a way to the waypoint", 10.0)
    assert (await client.both(x_istio_source="waypoint"))[2].peer == (POD,)


async def test_the_log_shows_the_way_through_the_waypoint(mesh: Mesh, client: Client) -> None:
    use_waypoint(mesh)
    await reached(mesh, client, WAYPOINT)
    passed = await mesh.east_west.logged(
        lambda line: (line["listener"], line["event"]) == ("to_waypoint", "TcpUpstreamConnected")
    )
    assert passed["authority"] == "waypoint.shop.svc.cluster.local:15008"
    assert passed["upstream"].startswith(f"envoy://forward_inner_connect/{mesh.stage.east.prefix}.1.20:15008")


# Ingress gateways.


async def test_an_ingress_gateway_is_led_to_the_waypoint_of_a_service_elsewhere(tmp_path: Path, binary: Path) -> None:
    async with Mesh(tmp_path, binary) as mesh:
        west, east = mesh.stage.sites
        write_waypoint(east)
        await mesh.start_pods(west)
        await start_pods(mesh, east, CATALOG)
        for gateway in [await mesh.start_gateway(site) for site in mesh.stage.sites]:
            await gateway.ready()
        assert (await mesh.traveller.follow(HOST, "/")).echo.app.startswith("catalog-")
        use_waypoint(mesh, ingress=True)
        await mesh.answered(HOST, "/", lambda journey: journey.echo.app == "waypoint-1", times=3)


async def test_an_ingress_gateway_goes_through_the_waypoint_at_home_and_never_around_it(
    tmp_path: Path, binary: Path
) -> None:
    async with Mesh(tmp_path, binary) as mesh:
        west, east = mesh.stage.sites
        write_waypoint(west)
        await start_pods(mesh, west, f"{west.address('96.2')}:80")
        await mesh.start_pods(east)
        for gateway in [await mesh.start_gateway(site) for site in mesh.stage.sites]:
            await gateway.ready()
        service = "  name: orders\n  namespace: shop\n"
        mesh.edit(west, "shop.yaml", service + LABELS, service + labels(ingress=True))
        await mesh.answered(HOST, "/orders", lambda journey: journey.echo.app == "waypoint-1", times=3)
        write_waypoint(west, ready=False)
        await mesh.status(HOST, "/orders", 503)
