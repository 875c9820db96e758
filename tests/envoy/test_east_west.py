"""An east-west gateway on a real Envoy: what it accepts of its control plane, whom it lets in, and where to."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from aggregator.demo import changes
from aggregator.demo.credentials import TRUST_DOMAIN, Credentials
from aggregator.demo.stage import NAMESPACE
from tests.kit import manifests as m
from tests.kit import tunnel as t
from tests.kit.eventually import eventually
from tests.kit.mesh import Mesh
from tests.kit.plane import Plane
from tests.kit.tunnel_client import CATALOG, HOSTNAME, Client
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.listener import LISTENER_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.records import Ack, Push, StreamOpened
from xds.server.authentication import Identity

POD = "spiffe://cluster.local/ns/shop/sa/catalog"
GATEWAY = "spiffe://cluster.local/ns/istio-system/sa/east-west"
CLIENT = "spiffe://cluster.local/ns/shop/sa/front"


OK = b"HTTP/1.1 200 OK"


@pytest.fixture
async def mesh(tmp_path: Path, binary: Path) -> AsyncIterator[Mesh]:
    """East with its pods and its gateway."""
    async with Mesh(tmp_path, binary) as mesh:
        await start_east(mesh)
        yield mesh


@pytest.fixture
async def client(mesh: Mesh) -> AsyncIterator[Client]:
    client = Client(mesh)
    yield client
    await client.close()


async def start_east(mesh: Mesh) -> None:
    await mesh.start_pods(mesh.stage.east)
    await (await mesh.start_gateway(mesh.stage.east)).ready()


def east(mesh: Mesh) -> Plane:
    return mesh.planes["east"]


def pushes(plane: Plane, since: int = 0) -> list[Push]:
    """What went to the gateway with something in it."""
    return [push for push in plane.pushes()[since:] if push.resources or push.removed]


def add_service(mesh: Mesh, name: str) -> None:
    """Another global service in east, in front of the pods of catalog."""
    m.write_manifests(
        mesh.stage.east.manifests,
        m.service(f"shop/{name}", mesh.stage.east.address("96.200"), selector={"app": "catalog"}, is_global=True),
        file=f"{name}.yaml",
    )


async def test_everything_it_is_told_is_accepted(mesh: Mesh) -> None:
    plane = east(mesh)
    acks = [record for record in plane.control.records.recent() if isinstance(record, Ack)]
    assert {ack.type_url for ack in acks} >= {CLUSTER_TYPE, LISTENER_TYPE, SECRET_TYPE}
    assert [ack.message for ack in acks if not ack.accepted] == []
    rejected = await mesh.east_west.stats(r"(update_rejected|listener_create_failure|in_place_.*failure)$")
    assert sum(rejected.values()) == 0
    listeners = (await mesh.east_west.get("/listeners?format=json")).body.decode()
    for name in ("connect_terminate", "main_internal", "forward_inner_connect"):
        assert f'"{name}"' in listeners


async def test_a_tunnel_in_a_tunnel_reaches_a_pod_and_both_ends_are_who_they_should_be(client: Client) -> None:
    way, gateway, pod = await client.both()
    assert (gateway.peer, pod.peer) == ((GATEWAY,), (POD,))
    assert await client.ask(way) == OK


async def test_the_log_shows_who_came_for_what_and_which_pod_it_was(mesh: Mesh, client: Client) -> None:
    way, _, _ = await client.both()
    gateway = mesh.east_west
    opened = await gateway.logged(lambda line: line["event"] == "DownstreamTunnelSuccessfullyEstablished")
    assert (opened["authority"], opened["peer"], opened["source"], opened["code"]) == (CATALOG, CLIENT, None, 200)
    passed = await gateway.logged(lambda line: line["event"] == "TcpUpstreamConnected")
    assert passed["authority"] == CATALOG
    assert passed["upstream"].startswith(f"envoy://forward_inner_connect/{mesh.stage.east.prefix}.1.1")
    await way.close()
    ended = await gateway.logged(lambda line: line["event"] == "DownstreamEnd")
    assert ended["duration_ms"] >= 0


async def test_what_a_client_says_of_its_kind_is_in_the_log(mesh: Mesh, client: Client) -> None:
    await client.outer(x_istio_source="gateway")
    line = await mesh.east_west.logged(lambda line: line["listener"] == "connect_terminate")
    assert line["source"] == "gateway"


async def test_what_is_not_exposed_is_unavailable(client: Client) -> None:
    for authority in (
        f"{HOSTNAME}:81",
        "nothing.shop.svc.cluster.local:80",
        "127.0.0.1:15000",
        "main_internal",
        "forward_inner_connect",
    ):
        with pytest.raises(t.Refused) as refused:
            await client.outer(authority)
        assert refused.value.status == 503, authority


async def test_a_service_without_ready_pods_is_unavailable(mesh: Mesh, client: Client) -> None:
    for number in (1, 2, 3):
        changes.set_ready(mesh.stage.east, f"catalog-{number}", ready=False)

    async def unavailable() -> bool:
        try:
            await client.outer()
        except t.Refused as refused:
            return refused.status == 503
        return False

    await mesh.east_west.until(unavailable, "unavailable", 10.0)


async def test_only_peers_with_a_certificate_of_the_mesh_come_in(mesh: Mesh, client: Client, tmp_path: Path) -> None:
    credentials = mesh.stage.credentials
    front = Identity(TRUST_DOMAIN, NAMESPACE, "front", "front-2")
    (tmp_path / "other").mkdir()
    other = Credentials(tmp_path / "other")
    other.write()
    for certificate in (
        (),
        credentials.issue("west", msgspec.structs.replace(front, trust_domain="elsewhere.example")),
        other.issue("west", front),
    ):
        with pytest.raises((ConnectionResetError, ssl.SSLError)):
            await t.tunnel(await client.door(), t.trusting(credentials.root, *certificate), CATALOG)
    assert not [line for line in mesh.east_west.access_log() if line["authority"]]


async def test_a_new_service_costs_two_resources_no_listener_and_no_tunnel(mesh: Mesh, client: Client) -> None:
    way, _, _ = await client.both()
    before = len(east(mesh).pushes())
    counters = r"^listener_manager\.(listener_added|listener_modified|lds\.update_success)$"
    listeners = await mesh.east_west.stats(counters)
    assert listeners
    add_service(mesh, "flyer")

    async def reachable() -> bool:
        try:
            await client.outer("flyer.shop.svc.cluster.local:80")
        except t.Refused:
            return False
        return True

    await mesh.east_west.until(reachable, "able to reach it", 10.0)
    told = pushes(east(mesh), before)
    assert {push.type_url for push in told} == {CLUSTER_TYPE, ASSIGNMENT_TYPE}
    assert sum(push.resources for push in told) == 2
    assert await mesh.east_west.stats(counters) == listeners
    assert await client.ask(way) == OK


async def test_a_control_plane_that_starts_again_sends_nothing_and_no_tunnel_breaks(mesh: Mesh, client: Client) -> None:
    way, gateway, _ = await client.both()
    await mesh.stop_control(mesh.stage.east)
    assert await client.ask() == OK
    plane = await mesh.start_control(mesh.stage.east)
    await eventually(lambda: any(isinstance(one, StreamOpened) for one in plane.control.records.recent()), 15.0)
    add_service(mesh, "flyer")  # when that has arrived, so has all that was to be sent before
    await eventually(lambda: sum(push.resources for push in plane.pushes()) >= 2, 10.0)
    assert {push.type_url for push in pushes(plane)} == {CLUSTER_TYPE, ASSIGNMENT_TYPE}
    assert sum(push.resources for push in plane.pushes()) == 2
    assert await client.ask(way) == OK
    _, later = await client.outer()
    assert later.serial == gateway.serial


async def test_its_certificate_is_renewed_under_way_and_no_tunnel_breaks(tmp_path: Path, binary: Path) -> None:
    async with Mesh(tmp_path, binary, workload_cert_ttl=6.0) as mesh:
        await start_east(mesh)
        client = Client(mesh)
        try:
            way, first, _ = await client.both()

            async def another() -> bool:
                _, secured = await client.outer()
                return secured.serial != first.serial

            await mesh.east_west.until(another, "given another certificate", 10.0)
            assert await client.ask(way) == OK
        finally:
            await client.close()
