"""A ztunnel and a whole control plane, from the files of two clusters to routes, over real gRPC on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from tests.kit import golden
from tests.kit import manifests as m
from tests.kit.certificates import signing_request
from tests.kit.eventually import eventually
from tests.kit.manifests import write_manifests
from tests.kit.plane import Clock, Plane, learned, told
from tests.kit.process import Isthmus, run_arguments, running
from tests.kit.relay import Relay
from tests.kit.two_clusters import CART, CART_1, CART_2, CART_3, CLIENT, GATEWAY, TOKEN, WAY, TwoClusters
from tests.kit.ztunnel import Node, Route, Tunnel, Ztunnel, ZtunnelClient, ZtunnelMachine
from tests.kit.ztunnel.grpc_transport import METHOD, GrpcDialer, GrpcTransport
from tests.kit.ztunnel.readings import PolicyUpdate, ServiceUpdate, WorkloadUpdate
from tests.kit.ztunnel.validation import Rejected
from watchers.directory import Directory
from xds import protos
from xds.client import StreamEnded
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE, WORKLOAD_TYPE

discovery = protos.envoy.service.discovery.v3
BEHIND = {GATEWAY, WAY}


@pytest.fixture
def world(tmp_path: Path) -> TwoClusters:
    return TwoClusters(tmp_path)


def since(client: ZtunnelClient, count: int) -> list[tuple[set[str], set[str]]]:
    """What the responses after the first `count` held: names told and names removed."""
    return [(set(each.resources), set(each.removed)) for each in list(client.machine.received)[count:]]


async def recorded(plane: Plane, client: ZtunnelClient) -> int:
    """The number of responses sent, once all that its only client has seen are in its records: the client may be
    quicker.
    """
    await eventually(lambda: len(plane.pushes()) >= len(client.machine.received))
    return len(plane.pushes())


# What is told.


@pytest.mark.parametrize("name", [name for name in golden.names() if "ztunnel" in golden.load(name).compared])
async def test_what_comes_over_the_wire_equals_our_own_record_and_a_ztunnel_takes_all_of_it(name: str) -> None:
    scenario = golden.load(name)
    recorded = json.loads((scenario.directory / "isthmus" / "ztunnel.json").read_text())
    home = scenario.directories[scenario.local_cluster]
    remotes = [path for path in scenario.directories.values() if path != home]
    ztunnel = Ztunnel("net1")
    async with Plane(home, *remotes) as plane:
        async with plane.client() as client, client.delta() as stream:
            await stream.subscribe(ADDRESS_TYPE)
            answer = await stream.receive()
        async with plane.connect(ztunnel) as connected:
            machine = await learned(connected)
        findings = (await plane.admin("/findings")).json()
    bodies = {resource.name: golden.decode(ADDRESS_TYPE, resource.body) for resource in answer.resources}
    assert bodies == recorded["address"]
    versions = {resource.name: resource.version for resource in answer.resources}
    assert versions == {name: recorded["versions"][name] for name in recorded["address"]}
    assert findings == recorded["findings"]
    assert {**machine.held(ADDRESS_TYPE), **machine.held(AUTHORIZATION_TYPE)} == recorded["versions"]
    assert [(response.error, response.removed) for response in machine.received] == [("", ()), ("", ())]
    assert machine.oddities == []


async def test_a_connection_at_home_takes_one_tunnel_and_one_to_another_network_two_with_shares_by_capacity() -> None:
    directories = golden.load("02-two-networks").directories
    ztunnel = Ztunnel("net1")
    async with Plane(directories["alpha"], directories["beta"]) as plane, plane.connect(ztunnel) as client:
        await learned(client)
        shares = ztunnel.routes("alpha//Pod/shop/local-only-1", "10.96.1.10:80")
    cart = "spiffe://cluster.local/ns/shop/sa/cart"
    assert [
        (
            share.probability,
            share.outcome.tunnel,
            share.outcome.address,
            share.outcome.authority,
            set(share.outcome.identities),
            share.outcome.inner_identities,
        )
        for share in shares
        if isinstance(share.outcome, Route)
    ] == [
        (
            Fraction(3, 5),
            Tunnel.DOUBLE_HBONE,
            "192.0.2.20:15008",
            "cart.shop.svc.cluster.local:80",
            {"spiffe://cluster.local/ns/istio-system/sa/istio-eastwestgateway"},
            (cart,),
        ),
        (Fraction(1, 5), Tunnel.HBONE, "10.10.2.1:15008", "10.10.2.1:8080", {cart}, ()),
        (Fraction(1, 5), Tunnel.HBONE, "10.10.1.2:15008", "10.10.1.2:8080", {cart}, ()),
    ]


@pytest.mark.parametrize("token", ["", TOKEN])
async def test_a_ztunnel_learns_the_same_over_tls_with_its_token_and_in_plaintext(
    world: TwoClusters, token: str
) -> None:
    ztunnel = Ztunnel("net1", Node(pod_name="ztunnel-1", namespace="istio-system", node_name="alpha-1"))
    async with world.plane() as plane, plane.connect(ztunnel, token) as client:
        machine = await learned(client)
        assert {CLIENT, CART_1, CART_2, CART, *BEHIND} <= set(machine.held(ADDRESS_TYPE))
        assert machine.oddities == []


async def test_an_unknown_token_opens_no_stream(world: TwoClusters) -> None:
    async with world.plane() as plane, plane.client("stolen") as client, client.delta() as stream:
        with pytest.raises(StreamEnded) as caught:
            await stream.receive()
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED


async def test_the_token_of_a_plain_workload_opens_no_stream(world: TwoClusters) -> None:
    async with world.plane() as plane, plane.client("cart-token") as client, client.delta() as stream:
        await stream.subscribe(ADDRESS_TYPE)
        with pytest.raises(StreamEnded) as caught:
            await stream.receive()
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
    assert plane.pushes() == []


async def test_fifty_clients_at_once_are_told_the_same_bytes(world: TwoClusters) -> None:
    async with world.plane() as plane, AsyncExitStack() as stack:

        async def ask() -> object:
            client = await stack.enter_async_context(plane.client())
            stream = await stack.enter_async_context(client.delta())
            await stream.subscribe(ADDRESS_TYPE)
            answer = await stream.receive()
            return answer.resources, answer.removed, answer.version

        answers = await asyncio.gather(*(ask() for _ in range(50)))
    assert len(set(answers)) == 1


@pytest.mark.parametrize("asked", [CART, "net1/10.96.1.10"])
async def test_a_ztunnel_that_asks_is_told_what_a_connection_needs(world: TwoClusters, asked: str) -> None:
    node = Node(pod_name="ztunnel-1", namespace="istio-system", node_name="alpha-1")
    ztunnel = Ztunnel("net1", node, on_demand=True)
    async with world.plane() as plane, plane.connect(ztunnel) as client:
        await client.until(lambda machine: machine.ready and CLIENT in machine.held(ADDRESS_TYPE))
        assert CART not in client.machine.held(ADDRESS_TYPE)
        await client.demand(asked)
        await client.until(lambda machine: not machine.demanded)
        assert isinstance(ztunnel.connect(CLIENT, "10.96.1.10:80"), Route)
        assert {CART, CART_1, CART_2, *BEHIND} <= set(client.machine.held(ADDRESS_TYPE))
        assert client.machine.oddities == []


async def test_whoever_asks_for_bare_workloads_is_told_them_without_services(world: TwoClusters) -> None:
    async with world.plane() as plane, plane.client() as client, client.delta() as stream:
        await stream.subscribe(WORKLOAD_TYPE)
        answer = await stream.receive()
    told = {resource.name: resource.message() for resource in answer.resources}
    assert {CLIENT, CART_1, CART_2, *BEHIND} <= told.keys()
    assert CART not in told
    assert all(message.uid == name for name, message in told.items())


# Changes of files.


async def test_an_edited_file_reaches_the_client(world: TwoClusters) -> None:
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        world.client(app="shopfront")
        await told(client, CLIENT)
        assert machine.state.workloads.by_uid[CLIENT].canonical_name == "shopfront"


async def test_a_new_file_brings_its_pod_and_a_deleted_file_takes_it_away(world: TwoClusters) -> None:
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        file = world.cart_pod(world.alpha, 3)
        brought = await told(client, CART_3)
        file.unlink()
        taken = await told(client, CART_3)
        assert (brought.resources, brought.removed) == ((CART_3,), ())
        assert (taken.resources, taken.removed) == ((), (CART_3,))


async def test_a_broken_file_keeps_its_content_and_shows_a_finding_until_it_is_mended(world: TwoClusters) -> None:
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        file = world.alpha / "cart-1.yaml"
        text = file.read_text()
        file.write_text(text + "---\nkind: [\n")
        broken = text.count("\n") + 3
        (finding,) = await eventually(plane.control.findings)
        assert f"SourceFault cart-1.yaml in alpha: cart-1.yaml:{broken}: " in finding
        world.client(app="shopfront")  # a neighbour still gets through, and is all that does
        assert (await told(client, CLIENT)).resources == (CLIENT,)
        assert CART_1 in client.machine.held(ADDRESS_TYPE)
        file.write_text(text)
        await eventually(lambda: not plane.control.findings())


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts how often directories were read to the end."""
    count = 0
    load = Directory.load

    def counted(directory: Directory) -> Any:
        nonlocal count
        loaded = load(directory)
        count += 1
        return loaded

    monkeypatch.setattr(Directory, "load", counted)
    return lambda: count


def noisy(world: TwoClusters) -> None:
    """Rewrites a pod with nothing changed but what nobody reads."""
    pod = m.pod(
        "shop/client-1",
        "10.10.1.100",
        account="client",
        node="alpha-1",
        annotations={"example.org/seen": "now"},
        status={"startTime": "2026-01-01T00:00:01Z"},
    )
    write_manifests(world.alpha, pod, file="client.yaml")


@pytest.mark.parametrize("rewrite", [lambda world: world.client(), noisy], ids=["equal", "irrelevant"])
async def test_a_file_written_anew_without_change_runs_no_pass_and_pushes_nothing(
    world: TwoClusters, loads: Callable[[], int], rewrite: Callable[[TwoClusters], object]
) -> None:
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        passes, pushes, loaded = len(plane.passes()), await recorded(plane, client), loads()
        rewrite(world)
        await eventually(lambda: loads() > loaded)
        # The next change is told alone, by the next pass: nothing came of the one before.
        world.cart_pod(world.alpha, 2, ready=False)
        await told(client, CART_2)
        assert (len(plane.passes()), await recorded(plane, client)) == (passes + 1, pushes + 1)
        assert plane.pushes()[-1].resources == 1


@pytest.mark.parametrize(("cluster", "name"), [("alpha", CART_2), ("beta", WAY)])
async def test_one_pod_that_becomes_ready_sends_one_resource(world: TwoClusters, cluster: str, name: str) -> None:
    directory = world.alpha if cluster == "alpha" else world.beta
    world.cart_pod(directory, 2, ready=False)
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        pushes = await recorded(plane, client)
        world.cart_pod(directory, 2)
        change = await told(client, name)
        assert (change.resources, change.removed) == ((name,), ())
        await recorded(plane, client)
        assert [(push.resources, push.removed) for push in plane.pushes()[pushes:]] == [(1, 0)]


async def test_shares_follow_the_pods_that_are_ready_elsewhere(world: TwoClusters) -> None:
    ztunnel = Ztunnel("net1")
    async with world.plane() as plane, plane.connect(ztunnel) as client:
        await learned(client)
        shares = [await probability_of_the_way_to_beta(ztunnel)]
        for number in (1, 2, 3):
            world.cart_pod(world.beta, number, ready=False)
            await told(client, WAY)
            shares.append(await probability_of_the_way_to_beta(ztunnel))
        assert shares == [Fraction(3, 5), Fraction(2, 4), Fraction(1, 3), 0]


async def probability_of_the_way_to_beta(ztunnel: Ztunnel) -> Fraction:
    shares = ztunnel.routes(CLIENT, "10.96.1.10:80")
    double = [share.probability for share in shares if getattr(share.outcome, "tunnel", "") is Tunnel.DOUBLE_HBONE]
    return sum(double, Fraction(0))


# Reconnections.


async def test_a_client_that_comes_back_is_told_nothing_it_holds(world: TwoClusters) -> None:
    ztunnel = Ztunnel("net1")
    async with world.plane() as plane:
        async with plane.connect(ztunnel) as client:
            machine = await learned(client)
        before = len(machine.received)
        async with plane.connect(ztunnel) as client:
            await client.until(lambda machine: len(machine.received) == before + 2)
            assert since(client, before) == [(set(), set()), (set(), set())]


async def test_a_client_that_comes_back_is_told_the_difference_and_what_has_gone(world: TwoClusters) -> None:
    ztunnel = Ztunnel("net1")
    async with world.plane() as plane:
        async with plane.connect(ztunnel) as client:
            machine = await learned(client)
        before = len(machine.received)
        async with plane.connect(Ztunnel("net1")) as other:
            await learned(other)
            (world.alpha / "cart-1.yaml").unlink()
            await told(other, CART_1)
            world.cart_pod(world.alpha, 2, ready=False)
            await told(other, CART_2)
            world.cart_pod(world.alpha, 3)
            await told(other, CART_3)
        async with plane.connect(ztunnel) as client:
            await client.until(lambda machine: len(machine.received) == before + 2)
            assert since(client, before)[1] == ({CART_2, CART_3}, {CART_1})
            assert machine.held(ADDRESS_TYPE) == other.machine.held(ADDRESS_TYPE)


async def reconnected(ztunnel: Ztunnel, process: Isthmus) -> tuple[set[str], set[str]]:
    """Names told and names removed when the ztunnel connects to a process."""
    before = len(ztunnel.machine.received)
    dialer = GrpcDialer(process.target("xds plaintext"))
    client = ZtunnelClient(ztunnel.machine)
    transport = await dialer.open()
    stream = asyncio.create_task(client.run(transport))
    await client.until(lambda machine: len(machine.received) == before + 2)
    transport.cancel()
    await stream
    await dialer.close()
    return since(client, before)[1]


async def test_a_restarted_control_plane_resends_nothing_whatever_the_order_of_its_sets(world: TwoClusters) -> None:
    ztunnel = Ztunnel("net1")
    arguments = run_arguments(f"alpha={world.alpha}", f"beta={world.beta}", plaintext=True)
    answers = []
    for hash_seed in (1, 2):
        async with running(*arguments, hash_seed=hash_seed) as process:
            await process.ready()
            answers.append(await reconnected(ztunnel, process))
    assert answers == [(set(ztunnel.machine.held(ADDRESS_TYPE)), set()), (set(), set())]


async def test_what_an_unread_remote_may_hold_is_not_withdrawn_before_its_limit_has_passed(world: TwoClusters) -> None:
    ztunnel = Ztunnel("net1")
    async with world.plane() as plane, plane.connect(ztunnel) as client:
        machine = await learned(client)
        held = dict(machine.held(ADDRESS_TYPE))
    before, clock = len(machine.received), Clock()
    async with world.plane(held=["beta"], now=clock, remote_timeout=0.02) as plane, plane.connect(ztunnel) as client:
        await client.until(lambda machine: len(machine.received) == before + 2)
        world.cart_pod(world.alpha, 3)
        await told(client, CART_3)
        (world.alpha / "cart-2.yaml").unlink()
        await told(client, CART_2)
        # Neither removed nor, as the service whose addresses beta knows, told without them. What is new is told, and
        # what was seen to go is removed.
        assert since(client, before) == [
            (set(), set()),
            (set(), set()),
            ({CART_3}, set()),
            (set(), {CART_2}),
        ]
        clock.now += 1
        await told(client, WAY)
        assert since(client, before + 4) == [({CART}, BEHIND)]
        plane.release("beta")
        await told(client, WAY)
        there = set(held) - {CART_2} | {CART_3}
        assert set(machine.held(ADDRESS_TYPE)) == there
        assert {name: machine.held(ADDRESS_TYPE)[name] for name in held if name in there} == {
            name: version for name, version in held.items() if name in there
        }


async def test_what_happened_at_home_while_the_plane_was_down_is_told_though_a_remote_is_unread(
    world: TwoClusters,
) -> None:
    ztunnel = Ztunnel("net1")
    async with world.plane() as plane, plane.connect(ztunnel) as client:
        machine = await learned(client)
    before = len(machine.received)
    world.cart_pod(world.alpha, 1, ready=False)
    (world.alpha / "cart-2.yaml").unlink()
    async with world.plane(held=["beta"]) as plane, plane.connect(ztunnel) as client:
        await client.until(lambda machine: len(machine.received) == before + 2)
        assert since(client, before) == [(set(), set()), ({CART_1}, {CART_2})]
        assert set(machine.held(ADDRESS_TYPE)) >= BEHIND


async def test_a_new_client_is_served_what_is_known_while_a_remote_is_unread(world: TwoClusters) -> None:
    async with world.plane(held=["beta"]) as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        assert {CLIENT, CART_1, CART_2, CART} <= set(machine.held(ADDRESS_TYPE))
        assert not BEHIND & set(machine.held(ADDRESS_TYPE))
        plane.release("beta")
        await client.until(lambda machine: set(machine.held(ADDRESS_TYPE)) >= BEHIND)


async def test_nobody_is_served_before_home_is_read(world: TwoClusters) -> None:
    async with world.plane(held=["alpha"]) as plane, plane.connect(Ztunnel("net1")) as client:
        await eventually(lambda: plane.cluster("beta").state == "synced")
        assert not client.machine.received
        assert plane.pushes() == []
        plane.release("alpha")
        machine = await learned(client)
        assert {CLIENT, *BEHIND} <= set(machine.held(ADDRESS_TYPE))


# Clients that refuse, and clients that do not read.


class Picky(ZtunnelMachine):
    """A ztunnel that refuses the resources named in `refused`; with `silent` it does not say which."""

    def __init__(self, *refused: str, silent: bool = False) -> None:
        super().__init__()
        self.refused = set(refused)
        self.offered: list[tuple[str, str]] = []
        self._silent = silent

    def receive(self, data: bytes) -> bytes:
        answer = discovery.DeltaDiscoveryRequest.FromString(super().receive(data))
        response = discovery.DeltaDiscoveryResponse.FromString(data)
        self.offered += [(each.name, each.version) for each in response.resources]
        if self._silent and answer.HasField("error_detail"):
            answer.error_detail.message = "cannot be used"
        return answer.SerializeToString()

    def _read(self, type_url: str, resource: Any) -> WorkloadUpdate | ServiceUpdate | PolicyUpdate:
        if resource.name in self.refused:
            raise Rejected("not to my taste")
        return super()._read(type_url, resource)


class Refusing(Ztunnel):
    """A ztunnel with a picky machine."""

    def __init__(self, machine: Picky) -> None:
        super().__init__("net1")
        self.machine = machine


@pytest.mark.parametrize("silent", [False, True])
async def test_what_a_client_refuses_is_not_sent_again_until_it_changes_and_all_else_gets_through(
    world: TwoClusters, silent: bool
) -> None:
    picky = Picky(CART_1, silent=silent)
    async with world.plane() as plane, plane.connect(Refusing(picky)) as client:
        await client.until(lambda machine: {CLIENT, CART_2, CART, *BEHIND} <= set(machine.held(ADDRESS_TYPE)))
        (finding,) = await eventually(plane.control.findings)
        assert finding.startswith("Pod shop/cart-1 in alpha: ")
        assert CART_1 in finding
        version, offered = dict(picky.offered)[CART_1], len(picky.offered)
        assert [name for name, _ in picky.offered].count(CART_1) <= (3 if silent else 1)
        for number in range(3):
            world.client(app=f"shopfront-{number}")
            await told(client, CLIENT)
        assert {name for name, _ in picky.offered[offered:]} == {CLIENT}
        picky.refused.clear()
        world.cart_pod(world.alpha, 1, ready=False)
        await told(client, CART_1)
        assert client.machine.held(ADDRESS_TYPE)[CART_1] != version
        await eventually(lambda: not plane.control.findings())


async def test_what_one_client_refuses_another_is_told(world: TwoClusters) -> None:
    async with (
        world.plane() as plane,
        plane.connect(Refusing(Picky(CART_1))) as picky,
        plane.connect(Ztunnel("net1")) as client,
    ):
        await picky.until(lambda machine: machine.awaited == {ADDRESS_TYPE})
        assert CART_1 in (await learned(client)).held(ADDRESS_TYPE)
        world.cart_pod(world.alpha, 1, ready=False)
        assert (await told(client, CART_1)).error == ""


WINDOW = 65_535
"""Bytes that HTTP/2 lets a server send to a client that does not read, unless the client allows for more."""
NARROW = [("grpc.http2.lookahead_bytes", WINDOW), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]


async def test_a_client_that_does_not_read_holds_up_nobody_and_then_catches_up_with_the_newest(
    world: TwoClusters,
) -> None:
    crowd = [m.pod(f"shop/crowd-{number}", f"10.11.{number // 250}.{number % 250}") for number in range(1000)]
    write_manifests(world.alpha, *crowd, file="crowd.json")
    lazy = ZtunnelMachine(Node(pod_name="lazy", namespace="istio-system"))
    async with (
        world.plane() as plane,
        Relay(plane.plaintext) as relay,
        grpc.aio.insecure_channel(relay.address, NARROW) as channel,
        plane.connect(Ztunnel("net1")) as client,
    ):
        transport = GrpcTransport(channel.stream_stream(METHOD)())
        for request in lazy.open_stream():
            await transport.write(request)
        await transport.write(lazy.receive(await received(transport)))
        await eventually(lambda: relay.sent > WINDOW)  # the answer is on its way, and stuck
        await learned(client)
        for number in range(3):
            world.client(app=f"shopfront-{number}")
            await told(client, CLIENT)
        of_lazy = [push.type_url for push in plane.pushes() if push.proxy == lazy.node.message().id]
        assert of_lazy == [AUTHORIZATION_TYPE]
        await transport.write(lazy.receive(await received(transport)))
        await transport.write(lazy.receive(await received(transport)))
        assert lazy.held(ADDRESS_TYPE) == client.machine.held(ADDRESS_TYPE)
        assert [len(each.resources) for each in lazy.received] == [0, len(lazy.held(ADDRESS_TYPE)), 1]


async def received(transport: GrpcTransport) -> bytes:
    """The next response."""
    data = await asyncio.wait_for(transport.read(), 10)
    assert data is not None
    return data


# Certificates.


def names_of(leaf: str) -> list[str]:
    """The URIs a certificate names."""
    certificate = x509.load_pem_x509_certificate(leaf.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


def identity(account: str) -> str:
    return "spiffe://cluster.local/ns/{}/sa/{}".format(*account.split("/"))


async def test_a_ztunnel_gets_certificates_for_itself_and_for_accounts_with_a_pod_on_its_node(
    world: TwoClusters,
) -> None:
    async with world.plane() as plane, plane.client(TOKEN) as client:
        for account in ("istio-system/ztunnel", "shop/client", "shop/cart"):
            name = identity(account)
            chain = await client.create_certificate(signing_request(name), impersonate=name)
            assert names_of(chain[0]) == [name]
            assert chain[-1] == plane.control.authority.root_certificates


async def test_nobody_gets_certificates_for_accounts_that_are_not_theirs(world: TwoClusters) -> None:
    elsewhere = m.pod("shop/ledger-1", "10.10.1.50", account="ledger", node="alpha-2")
    write_manifests(world.alpha, elsewhere, file="ledger.yaml")
    refused = [
        (TOKEN, "shop/ledger"),  # runs on the other node only
        (TOKEN, "shop/nobody"),  # runs nowhere
        ("cart-token", "shop/client"),  # asked for by one that is no ztunnel
    ]
    async with world.plane() as plane:

        async def ask(token: str, account: str) -> StreamEnded:
            name = identity(account)
            async with plane.client(token) as client:
                with pytest.raises(StreamEnded) as caught:
                    await client.create_certificate(signing_request(name), impersonate=name)
            return caught.value

        ends = await asyncio.gather(*(ask(token, account) for token, account in refused))
        assert [end.code for end in ends] == [grpc.StatusCode.PERMISSION_DENIED] * len(refused)
        assert all(identity(account) in end.details for end, (_, account) in zip(ends, refused, strict=True))


async def test_a_pod_that_comes_to_a_node_is_worth_a_certificate_at_once(world: TwoClusters) -> None:
    async with world.plane() as plane, plane.client(TOKEN) as client:
        name = identity("shop/newcomer")
        # Asked for before the control plane has heard of the pod: it waits a moment for it.
        asked = asyncio.create_task(client.create_certificate(signing_request(name), impersonate=name))
        pod = m.pod("shop/newcomer-1", "10.10.1.60", account="newcomer", node="alpha-1")
        write_manifests(world.alpha, pod, file="newcomer.yaml")
        assert names_of((await asked)[0]) == [name]
