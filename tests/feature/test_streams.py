"""Whole streams over memory: from the first request to the end, with real session machines."""

from __future__ import annotations

import asyncio
import logging

import grpc
import msgspec
import pytest

from tests.kit.accounts import NODE_ID, ORDERS, ZTUNNEL, Accounts
from tests.kit.clock import virtual_time
from tests.kit.transport import Content, Peer, turns
from xds import protos
from xds.encoded import Resource, encode, wrap
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.records import Ack, Push, Record, StreamClosed, StreamOpened
from xds.server.access import Access
from xds.server.dialogue import Variant
from xds.server.rates import Rate
from xds.server.refusals import Refusal
from xds.server.streams import Limits, Streams

BOTH = pytest.mark.parametrize("variant", ["delta", "sotw"])
SECRET_TYPE = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"


def workload(name: str, network: str = "") -> Resource:
    address = protos.istio.workload.Address()
    address.workload.uid = name
    address.workload.network = network
    return wrap(ADDRESS_TYPE, name, encode(address))


class Server:
    """Streams with everything around them in memory."""

    def __init__(self, limits: Limits | None = None, *, known: bool = True) -> None:
        self.content = Content()
        self.accounts = Accounts(known=known)
        self.records: list[Record] = []
        self.streams = Streams(
            Access(self.accounts, patience=0.01), self.content.views_for, self.records, limits=limits or Limits()
        )

    def of(self, kind: type[Record]) -> list[Record]:
        return [record for record in self.records if isinstance(record, kind)]


@pytest.fixture
def server() -> Server:
    made = Server()
    made.content.apply(ADDRESS_TYPE, workload("a"), workload("b"))
    return made


async def subscribed(peer: Peer) -> None:
    """Asks for both types of a ztunnel, and accepts the first answers."""
    peer.ask(ADDRESS_TYPE)
    peer.ask(AUTHORIZATION_TYPE)
    for _ in range(2):
        peer.ack(await peer.response())
    await turns()


async def refusal(peer: Peer) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await asyncio.wait_for(peer.served, 5)
    return caught.value


@BOTH
async def test_nothing_is_parsed_of_an_account_that_may_open_no_stream(server: Server, variant: Variant) -> None:
    async with Peer(server.streams, variant, identity=ORDERS) as peer:
        peer.send(b"\xff no request")
        assert (await refusal(peer)).code is grpc.StatusCode.PERMISSION_DENIED


@BOTH
async def test_a_ztunnel_is_answered_both_of_its_types(server: Server, variant: Variant) -> None:
    async with Peer(server.streams, variant) as peer:
        peer.ask(ADDRESS_TYPE)
        peer.ask(AUTHORIZATION_TYPE)
        policies = await peer.response()
        peer.ack(policies)
        addresses = await peer.response()
        assert (policies.type_url, len(policies.resources)) == (AUTHORIZATION_TYPE, 0)
        assert (addresses.type_url, len(addresses.resources)) == (ADDRESS_TYPE, 2)


@BOTH
async def test_a_change_is_pushed_when_the_bell_rings(server: Server, variant: Variant) -> None:
    async with Peer(server.streams, variant) as peer:
        await subscribed(peer)
        assert peer.silent
        server.content.apply(ADDRESS_TYPE, workload("c"))
        response = await peer.response()
        assert len(response.resources) == (1 if variant == "delta" else 3)


async def test_the_proxy_views_are_made_for_is_the_proven_one(server: Server) -> None:
    async with Peer(server.streams) as peer:
        await subscribed(peer)
        (proxy,) = server.content.proxies
        assert (proxy.id, proxy.identity, proxy.role, proxy.network, proxy.node) == (
            NODE_ID,
            ZTUNNEL,
            "ztunnel",
            "net-1",
            "n1",
        )


async def test_a_moment_the_session_waits_for_comes_without_any_event(server: Server) -> None:
    async with Peer(server.streams) as peer:
        peer.ask(ADDRESS_TYPE)  # and never for policies, which the answer waits for some time
        assert len((await peer.response()).resources) == 2


async def test_nothing_is_answered_while_content_is_unknown(server: Server) -> None:
    server.content.become("unknown")
    async with Peer(server.streams) as peer:
        peer.ask(AUTHORIZATION_TYPE)
        await turns()
        assert peer.silent
        assert not peer.served.done()
        server.content.become("settled")
        assert (await peer.response()).type_url == AUTHORIZATION_TYPE


async def test_a_stream_waits_until_admissions_are_known() -> None:
    server = Server(known=False)
    async with Peer(server.streams) as peer:
        peer.ask(AUTHORIZATION_TYPE)
        await turns()
        assert not peer.served.done()
        server.accounts.known = True
        server.accounts.ring()
        assert (await peer.response()).type_url == AUTHORIZATION_TYPE


async def test_a_type_the_proxy_may_not_read_is_answered_empty_and_never_opened(server: Server) -> None:
    server.content.apply(SECRET_TYPE, wrap(SECRET_TYPE, "key", encode(protos.istio.workload.Address())))
    async with Peer(server.streams) as peer:
        peer.ask(SECRET_TYPE)
        assert len((await peer.response()).resources) == 0
        assert server.content.readings == []


async def test_everything_a_stream_does_is_recorded(server: Server) -> None:
    async with Peer(server.streams) as peer:
        await subscribed(peer)
        server.content.apply(ADDRESS_TYPE, workload("c", "x"), removed=["a"], cause="why")
        response = await peer.response()
        peer.nack(response, "c: bad: network")
        await turns()
        peer.half_close()
        await peer.served
    opened, *_, closed = server.records
    assert isinstance(opened, StreamOpened)
    assert isinstance(closed, StreamClosed)
    assert (opened.proxy, opened.peer, opened.kind) == (NODE_ID, "10.0.0.1:1000", "delta")
    assert (closed.proxy, closed.reason) == (NODE_ID, "ended by the peer")
    push = server.of(Push)[-1]
    assert isinstance(push, Push)
    assert (push.proxy, push.type_url, push.nonce, push.resources, push.removed, push.causes) == (
        NODE_ID,
        ADDRESS_TYPE,
        response.nonce,
        1,
        1,
        ("why",),
    )
    assert push.size == response.ByteSize()
    answers = [record for record in server.records if isinstance(record, Ack)]
    assert [answer.accepted for answer in answers] == [True, True, False]
    assert (answers[-1].nonce, answers[-1].message) == (response.nonce, "c: bad: network")
    assert push.sent_ns <= answers[-1].received_ns <= closed.at_ns


async def test_what_a_proxy_rejects_and_holds_can_be_looked_up(server: Server) -> None:
    async with Peer(server.streams) as peer:
        await subscribed(peer)
        server.content.apply(ADDRESS_TYPE, workload("c"))
        peer.nack(await peer.response(), "c: bad")
        await turns()
        (stream,) = server.streams
        assert stream.dialogue is not None
        assert stream.dialogue.rejected.keys() == {(ADDRESS_TYPE, "c")}
        assert stream.dialogue.acknowledged[ADDRESS_TYPE] == server.content.revision


async def test_nothing_grows_while_a_peer_does_not_read(server: Server) -> None:
    async with Peer(server.streams, room=1) as peer:
        await subscribed(peer)
        for network in map(str, range(500)):
            server.content.apply(ADDRESS_TYPE, workload("a", network))
            server.content.apply(AUTHORIZATION_TYPE, wrap(AUTHORIZATION_TYPE, "p", encode(workload_of(network))))
            await turns(2)
        assert peer.transport.responses.qsize() == 1
        first, second = await peer.response(), await peer.response()
        assert {first.type_url, second.type_url} == {ADDRESS_TYPE, AUTHORIZATION_TYPE}
        peer.ack(first)
        peer.ack(second)
        newest = [await peer.response() for _ in range(2)]
        (address,) = (response for response in newest if response.type_url == ADDRESS_TYPE)
        assert address.resources[0].version == workload("a", "499").version
        await turns()
        assert peer.silent


def workload_of(network: str) -> protos.istio.workload.Address:
    address = protos.istio.workload.Address()
    address.workload.network = network
    return address


async def test_answers_are_heard_while_a_write_waits(server: Server) -> None:
    async with Peer(server.streams, room=1) as peer:
        peer.ask(ADDRESS_TYPE)
        peer.ask(AUTHORIZATION_TYPE)
        peer.ack(await peer.response())
        await turns()
        server.content.apply(AUTHORIZATION_TYPE, wrap(AUTHORIZATION_TYPE, "p", encode(workload_of("x"))))
        await turns()  # the address answer fills the room, the policy waits in its write
        assert not peer.silent
        peer.half_close()
        await asyncio.wait_for(peer.served, 5)


async def test_a_peer_that_sends_no_more_ends_its_stream_quietly(server: Server) -> None:
    async with Peer(server.streams) as peer:
        await subscribed(peer)
        peer.half_close()
        await asyncio.wait_for(peer.served, 5)
    assert len(server.streams) == 0
    assert server.content.readings == []


async def test_a_peer_that_sends_nothing_at_all_ends_its_stream_quietly(server: Server) -> None:
    async with Peer(server.streams) as peer:
        peer.half_close()
        await asyncio.wait_for(peer.served, 5)
    assert server.records == []


async def test_cancellation_is_let_through_and_leaves_nothing(server: Server) -> None:
    async with Peer(server.streams) as peer:
        await subscribed(peer)
        peer.served.cancel()
        with pytest.raises(asyncio.CancelledError):
            await peer.served
    assert len(server.streams) == 0
    assert server.content.readings == []
    assert [record.reason for record in server.records if isinstance(record, StreamClosed)] == ["cancelled by the peer"]
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("xds")]


@virtual_time
async def test_a_silent_stream_is_ended_after_some_time() -> None:
    server = Server(Limits(first_request=10))
    async with Peer(server.streams) as peer:
        refused = await refusal_after(peer, 10)
    assert refused.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "no request within 10 s" in refused.message


async def refusal_after(peer: Peer, seconds: float) -> Refusal:
    begun = asyncio.get_running_loop().time()
    with pytest.raises(Refusal) as caught:
        await peer.served
    assert asyncio.get_running_loop().time() - begun == pytest.approx(seconds)
    return caught.value


@virtual_time
async def test_a_stream_that_has_spoken_may_be_silent_for_ever() -> None:
    server = Server(Limits(first_request=10))
    async with Peer(server.streams) as peer:
        peer.ask(AUTHORIZATION_TYPE)
        peer.ack(await peer.response())
        await asyncio.sleep(86_400)
        assert not peer.served.done()


async def test_a_first_request_without_node_is_refused(server: Server) -> None:
    async with Peer(server.streams, node_id="") as peer:
        peer.ask(ADDRESS_TYPE)
        refused = await refusal(peer)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "node.id" in refused.message


async def test_a_node_of_another_namespace_than_its_token_is_denied(server: Server) -> None:
    async with Peer(server.streams, node_id="ztunnel~10.0.0.1~ztunnel-x.shop~shop.svc.cluster.local") as peer:
        peer.ask(ADDRESS_TYPE)
        refused = await refusal(peer)
    assert refused.code is grpc.StatusCode.PERMISSION_DENIED
    assert server.content.proxies == []


async def test_an_account_of_workloads_is_denied(server: Server) -> None:
    async with Peer(server.streams, identity=ORDERS) as peer:
        peer.ask(ADDRESS_TYPE)
        assert (await refusal(peer)).code is grpc.StatusCode.PERMISSION_DENIED


async def test_the_node_is_needed_on_the_first_request_only(server: Server) -> None:
    async with Peer(server.streams) as peer:
        await subscribed(peer)
        peer.ask(ADDRESS_TYPE, resource_names_subscribe=["a"])
        assert (await peer.response()).resources[0].name == "a"


@BOTH
async def test_bytes_that_are_no_request_end_the_stream_with_the_reason(server: Server, variant: Variant) -> None:
    async with Peer(server.streams, variant) as peer:
        await subscribed(peer)
        peer.send(b"\xff\xff\xff")
        refused = await refusal(peer)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_request_that_breaks_the_protocol_ends_the_stream_with_the_reason(server: Server) -> None:
    async with Peer(server.streams) as peer:
        peer.ask("")
        refused = await refusal(peer)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "type_url" in refused.message


async def test_a_request_beyond_the_limit_is_refused_with_the_limit() -> None:
    server = Server(Limits(request_bytes=1000))
    async with Peer(server.streams) as peer:
        peer.ask(ADDRESS_TYPE, resource_names_subscribe=["x" * 1000])
        refused = await refusal(peer)
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "1000" in refused.message


async def test_a_pod_that_opens_streams_too_often_is_refused_and_no_other() -> None:
    server = Server(Limits(opened=Rate(per_second=0.001, burst=2)))
    for _ in range(2):
        async with Peer(server.streams) as peer:
            await subscribed(peer)
    async with Peer(server.streams) as peer:
        refused = await refusal(peer)
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "too often" in refused.message
    async with Peer(server.streams, identity=msgspec.structs.replace(ZTUNNEL, pod="ztunnel-y"), node_id="z") as other:
        await subscribed(other)


@virtual_time
async def test_a_peer_that_asks_too_fast_is_read_more_slowly_and_loses_nothing() -> None:
    server = Server(Limits(requests=Rate(per_second=4.0, burst=3)))
    server.content.apply(ADDRESS_TYPE, workload("a"))
    loop = asyncio.get_running_loop()
    async with Peer(server.streams) as peer:
        peer.ask(ADDRESS_TYPE)
        peer.ack(await peer.response())
        began = loop.time()
        for number in range(10):
            peer.ask(ADDRESS_TYPE, resource_names_subscribe=[str(number)])
        removed: set[str] = set()
        while len(removed) < 10:
            answer = await peer.response()
            removed |= set(answer.removed_resources)
            peer.ack(answer)
        assert removed == {str(number) for number in range(10)}
        assert 2 <= loop.time() - began <= 5


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(streams=2), "2 streams of this server"),
        (Limits(streams_per_account=2), "2 streams of service account istio-system/ztunnel"),
        (Limits(streams_per_pod=2), "2 streams of pod ztunnel-x"),
    ],
)
async def test_streams_beyond_a_limit_are_refused_until_one_ends(limits: Limits, says: str) -> None:
    server = Server(limits)
    async with Peer(server.streams) as first, Peer(server.streams) as second:
        await turns()
        async with Peer(server.streams) as third:
            refused = await refusal(third)
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert says in refused.message
        first.half_close()
        await first.served
        async with Peer(server.streams) as fourth:
            await subscribed(fourth)
        assert not second.served.done()


@BOTH
async def test_the_stream_of_a_proxy_that_is_to_be_served_in_another_mode_ends_at_once(
    server: Server, variant: Variant
) -> None:
    pod = ("istio-system", "ztunnel-x")
    async with Peer(server.streams, variant) as peer:
        await subscribed(peer)
        known = server.accounts.pods[pod]
        for ineffective in (msgspec.structs.replace(known, network="net-2"), None):
            server.accounts.pods.pop(pod)
            if ineffective is not None:
                server.accounts.pods[pod] = ineffective
            server.streams.look_at({pod})
        server.accounts.pods[pod] = msgspec.structs.replace(known, mode="compatible")
        server.streams.look_at({("istio-system", "another")})
        await turns()
        assert not peer.served.done()
        server.streams.look_at({pod})
        refused = await refusal(peer)
        assert refused.code is grpc.StatusCode.UNAVAILABLE
        assert "mode" in refused.message


@virtual_time
async def test_a_drain_ends_all_streams_with_unavailable_spread_over_time(server: Server) -> None:
    peers = [Peer(server.streams) for _ in range(4)]
    for peer in peers:
        await subscribed(peer)
    loop = asyncio.get_running_loop()
    begun, ended = loop.time(), []
    for peer in peers:
        peer.served.add_done_callback(lambda _: ended.append(loop.time() - begun))
    await server.streams.drain(8)
    for peer in peers:
        refused = await refusal(peer)
        assert refused.code is grpc.StatusCode.UNAVAILABLE
        assert "draining" in refused.message
    assert ended == pytest.approx([0, 2, 4, 6])
    assert server.content.readings == []


async def test_a_drain_reaches_streams_in_every_stage(server: Server) -> None:
    server.content.become("unknown")
    unknown = Server(known=False)
    async with (
        Peer(server.streams) as silent,
        Peer(server.streams) as waiting,
        Peer(server.streams, room=1) as stuck,
        Peer(unknown.streams) as unjudged,
    ):
        waiting.ask(ADDRESS_TYPE)
        unjudged.ask(ADDRESS_TYPE)
        await turns()
        server.content.become("settled")
        stuck.ask(AUTHORIZATION_TYPE)
        stuck.ask(SECRET_TYPE)
        await turns()
        await asyncio.wait_for(asyncio.gather(server.streams.drain(0), unknown.streams.drain(0)), 5)
        for peer in (silent, waiting, stuck, unjudged):
            assert (await refusal(peer)).code is grpc.StatusCode.UNAVAILABLE


async def test_a_draining_server_takes_no_streams(server: Server) -> None:
    await server.streams.drain(0)
    async with Peer(server.streams) as peer:
        assert (await refusal(peer)).code is grpc.StatusCode.UNAVAILABLE


async def test_nothing_is_logged_as_an_error_in_the_life_of_a_stream(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with Peer(server.streams) as peer:
        await subscribed(peer)
        await server.streams.drain(0)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
