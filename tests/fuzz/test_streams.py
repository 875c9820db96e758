"""Whatever one stream says, at its beginning or later, at most that stream ends; the others go on as if nothing was."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import strategies as st

from tests.fuzz.requests import TYPES, VARIANTS, discovery, hostile_requests, requests
from tests.kit.accounts import ORDERS, ZTUNNEL, Accounts
from tests.kit.fuzzing import bounded, fuzz
from tests.kit.grpc_server import workload
from tests.kit.hostile import damaged, damaged_message
from tests.kit.transport import Content, Peer, turns
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.records import Record
from xds.server.access import Access
from xds.server.authentication import Identity
from xds.server.dialogue import Variant
from xds.server.refusals import LONGEST_MESSAGE, Refusal
from xds.server.streams import Limits, Streams

pytestmark = pytest.mark.slow

STRANGER = Identity("cluster.local", "nowhere", "nobody")
DOCUMENTED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class World:
    """A server in memory with one honest ztunnel, and everything that goes wrong where nobody waits for it."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.faults: list[dict[str, Any]] = []
        self.records: list[Record] = []
        self.content = Content()
        self.changes = 0
        runner.get_loop().set_exception_handler(lambda _, context: self.faults.append(context))
        runner.run(self._begin())

    async def _begin(self) -> None:
        self.content.apply(ADDRESS_TYPE, workload("a"), workload("b"))
        access = Access(Accounts(), patience=0.001)
        self.streams = Streams(access, self.content.views_for, self.records, limits=Limits(request_bytes=1 << 20))
        self.honest = Peer(self.streams, "delta", room=4)
        self.honest.ask(ADDRESS_TYPE)
        self.honest.ask(AUTHORIZATION_TYPE)
        for _ in range(2):
            self.honest.ack(await self.honest.response())
        await turns()

    async def attacked(self, variant: Variant, identity: Identity | None, steps: list[Any]) -> None:
        """One stream that says all of `steps`, and the honest one beside it."""
        peer = Peer(self.streams, variant, identity=identity, room=100)
        for step in steps:
            if callable(step):
                step(peer)
            else:
                peer.send(step)
            await turns(8)
        self.changes += 1
        self.content.apply(ADDRESS_TYPE, workload("a", self.changes % 1000))
        change = await self.honest.response()
        assert [resource.name for resource in change.resources] == ["a"]
        self.honest.ack(change)
        peer.half_close()
        await asyncio.wait((peer.served,), timeout=5)
        assert peer.served.done(), "a stream that says no more has to end"
        failure = peer.served.exception()
        if failure is not None:
            assert isinstance(failure, Refusal), failure
            assert failure.code in DOCUMENTED, failure
            assert 0 < len(failure.message) <= LONGEST_MESSAGE
        await turns()
        assert len(self.streams) == 1, "only the honest stream is left"
        self.records.clear()
        self.content.proxies.clear()

    async def end(self) -> None:
        await self.honest.__aexit__(None, None, None)


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    with asyncio.Runner() as runner:
        made = World(runner)
        yield made
        assert not made.honest.served.done(), "the honest stream has ended"
        runner.run(made.end())
        gc.collect()
        assert made.faults == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def attack(world: World, *strategies: st.SearchStrategy[Any]) -> None:
    """Fuzzes with (variant, identity, steps)."""

    def one(variant: Variant, identity: Identity | None, steps: list[Any]) -> None:
        bounded_run(world, variant, identity, steps)

    fuzz(one, *strategies, share=0.25)


def bounded_run(world: World, variant: Variant, identity: Identity | None, steps: list[Any]) -> None:
    size = sum(len(step) for step in steps if isinstance(step, bytes))
    bounded(lambda: world.runner.run(world.attacked(variant, identity, steps)), size)


IDENTITIES = st.sampled_from([ZTUNNEL, ORDERS, STRANGER, None])


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_first_message_ends_its_own_stream_at_most(world: World, variant: Variant) -> None:
    first = hostile_requests(variant, first=True).map(lambda data: [data])
    attack(world, st.just(variant), IDENTITIES, first)


def answers(variant: Variant) -> st.SearchStrategy[Any]:
    """What is said to the latest response, if there is one: yes, no with all kinds of reasons, or another's nonce."""

    def said(reason: str | None, nonce: str | None) -> Any:
        def say(peer: Peer) -> None:
            response = peer.transport.responses
            if response.empty():
                return
            kind = "DeltaDiscoveryResponse" if variant == "delta" else "DiscoveryResponse"
            found = getattr(discovery, kind).FromString(response.get_nowait())
            if nonce is not None:
                found.nonce = nonce
            if reason is None:
                peer.ack(found)
            else:
                peer.nack(found, reason)

        return say

    reasons = st.sampled_from(
        [None, "", "a: bad", "a: bad; b: worse", "nobody: x", "; " * 50, "a:\n" * 9]
    ) | st.text(st.characters(codec="utf-8"), max_size=30)
    return st.builds(said, reasons, st.none() | st.sampled_from(["", "x", "\0", "1" * 5000]))





@pytest.mark.parametrize("variant", VARIANTS)
def test_any_later_messages_end_their_own_stream_at_most(world: World, variant: Variant) -> None:
    sound = requests(variant, first=True)
    later = requests(variant, first=False)
    hostile = damaged_message(later) | damaged(later) | st.binary(max_size=60)
    steps = st.lists(later | later | hostile | answers(variant) | answers(variant), max_size=12)
    attack(
        world,
        st.just(variant),
        st.just(ZTUNNEL),
        st.builds(lambda first, rest: [first, *rest], sound, steps),
    )


def test_a_stream_may_ask_for_many_types_and_then_ends(world: World) -> None:
    def asks(count: int) -> list[Any]:
        def ask(number: int) -> Any:
            return lambda peer: peer.ask(f"type.googleapis.com/{number}" if number % 9 else TYPES[number % len(TYPES)])

        return [ask(number) for number in range(count)]

    fuzz(lambda count: bounded_run(world, "delta", ZTUNNEL, asks(count)), st.integers(0, 80), share=0)
