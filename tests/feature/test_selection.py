"""Only what is selected is kept: a reflector, and whole control planes, against fake API servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.cache.table import Table
from tests.kit import manifests as m
from tests.kit.clock import virtual_time
from tests.kit.kube_api import Hold, KubeCluster, Refuse
from tests.kit.kube_session import MemorySession
from tests.kit.running import running
from watchers.facts import Fact, ObjectKey
from watchers.kubernetes.budget import Limits
from watchers.kubernetes.flow import Flow, Rounds
from watchers.kubernetes.listwatch import Pace
from watchers.kubernetes.quota import Holdings
from watchers.kubernetes.reflector import Reflector
from watchers.kubernetes.resources import resources
from watchers.metrics import WatchMetrics
from watchers.selection import PATIENCE, Selection

BY_FACT = {resource.kind.fact: resource for resource in resources("istio-system")}
PACE = Pace(limit=2, silence=15.0, watch=7200.0)


class Reading:
    """What a reflector has written, and every name it ever wrote."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.facts: Table[ObjectKey, Fact] = Table("facts")
        self.selection = Selection()
        self.states: list[str] = []
        self.ever: set[str] = set()
        self.cursor = self.facts.cursor(bell=self._note)

    def _note(self) -> None:
        self.ever.update(f"{key[2]}/{key[3]}" for key in self.cursor.take().changes)

    @property
    def names(self) -> set[str]:
        """namespace/name of all objects held."""
        return {f"{key[2]}/{key[3]}" for key, _ in self.facts.scan(("west", self.kind))}

    @property
    def faults(self) -> set[str]:
        """The objects that cannot be used."""
        return {key[3] for key, _ in self.facts.scan(("west", "SourceFault"))}


@asynccontextmanager
async def reading(west: KubeCluster, kind: str = "Pod") -> AsyncIterator[Reading]:
    """A reflector at work, which has not been told what is selected yet."""
    read, metrics = Reading(kind), WatchMetrics()
    reflector = Reflector(
        BY_FACT[kind],
        "west",
        MemorySession(west),
        read.facts,
        system_namespace="istio-system",
        report=lambda state, _reason: read.states.append(state),
        metrics=metrics,
        flow=Flow("west", Limits(), Rounds(), metrics, asyncio.get_running_loop().time),
        holdings=Holdings(Limits().objects),
        selection=read.selection,
        chance=lambda: 0.5,
        pace=PACE,
        now=asyncio.get_running_loop().time,
    )
    async with running(reflector.run()):
        yield read


def cluster(*pods: str, watch_list: bool = True) -> KubeCluster:
    made = KubeCluster("west")
    made.watch_list = watch_list
    made.bookmark_every = 10.0
    made.apply(*(m.pod(name, "10.0.0.1") for name in pods))
    return made


EITHER_WAY = pytest.mark.parametrize("watch_list", [True, False])
ALL = ("shop/a", "shop/b", "shop/c", "bank/a", "bank/b", "bank/c", "attic/a")


@EITHER_WAY
def test_nothing_of_other_namespaces_is_ever_written(watch_list: bool) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster(*ALL, watch_list=watch_list)
        async with reading(west) as read:
            read.selection.set(("shop", "bank"))
            await asyncio.sleep(1)
            west.apply(m.pod("attic/b", "10.0.0.2"), m.pod("shop/d", "10.0.0.2"))
            west.delete("Pod", "attic/a")
            await asyncio.sleep(1)
            assert read.names == {"shop/a", "shop/b", "shop/c", "shop/d", "bank/a", "bank/b", "bank/c"}
            assert read.ever == read.names

    run()


@virtual_time
async def test_nothing_is_asked_before_it_is_known_what_is_selected() -> None:
    west = cluster(*ALL)
    async with reading(west) as read:
        await asyncio.sleep(PATIENCE / 2)
        assert west.count(kind="Pod") == 0
        read.selection.set(None)
        await asyncio.sleep(0.1)
        assert read.names == set(ALL)


@virtual_time
async def test_who_was_not_told_in_time_reads_everything_and_drops_it_once_told() -> None:
    west = cluster(*ALL)
    async with reading(west) as read:
        await asyncio.sleep(PATIENCE + 1)
        assert read.names == set(ALL)
        read.selection.set(("shop",))
        await asyncio.sleep(1)
        assert read.names == {"shop/a", "shop/b", "shop/c"}


@EITHER_WAY
def test_what_becomes_selected_is_listed_alone_and_nothing_else_is_read_again(watch_list: bool) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster(*ALL, watch_list=watch_list)
        async with reading(west) as read:
            read.selection.set(("shop", "attic"))
            await asyncio.sleep(1)
            before, shown = len(west.requests), len(read.states)
            read.selection.set(("shop", "attic", "bank"))
            await asyncio.sleep(1)
            assert read.names == set(ALL)
            asked = [(one.verb, one.namespace) for one in west.requests[before:]]
            assert asked == [("list", "bank"), ("list", "bank"), ("watch", "")]
            assert not west.requests[-1].query.get("sendInitialEvents")
            assert "syncing" not in read.states[shown:]

    run()


@virtual_time
async def test_what_is_not_selected_any_more_goes_at_once() -> None:
    west = cluster(*ALL)
    west.apply({"kind": "Pod", "metadata": {"name": "odd", "namespace": "bank", "labels": {"-": "x"}}})
    async with reading(west) as read:
        read.selection.set(("shop", "bank"))
        await asyncio.sleep(1)
        assert read.faults
        read.selection.set(("shop", "attic"))
        await asyncio.sleep(1)
        assert read.names == {"shop/a", "shop/b", "shop/c", "attic/a"}
        assert not read.faults


@virtual_time
async def test_of_one_selected_namespace_the_server_sends_nothing_else() -> None:
    west = cluster(*ALL)
    async with reading(west) as read:
        read.selection.set(("shop",))
        await asyncio.sleep(1)
        assert {one.query.get("fieldSelector") for one in west.requests} == {"metadata.namespace=shop"}
        read.selection.set(("shop", "bank"))
        await asyncio.sleep(1)
        assert "fieldSelector" not in west.requests[-1].query
        assert read.names == {name for name in ALL if not name.startswith("attic")}


@virtual_time
async def test_gateways_of_the_system_namespace_are_read_in_any_case() -> None:
    west = cluster()
    for place in ("istio-system", "shop", "attic"):
        west.apply(m.east_west_gateway(f"{place}/edge", "198.51.100.1", network="net-b"))
    async with reading(west, "Gateway") as read:
        read.selection.set(("shop",))
        await asyncio.sleep(1)
        assert read.names == {"shop/edge", "istio-system/edge"}


@pytest.mark.parametrize("kind", ["Namespace", "Node", "GatewayClass", "MeshConfig"])
def test_what_is_not_selected_by_namespace_waits_for_nothing(kind: str) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster()
        async with reading(west, kind):
            await asyncio.sleep(0.1)
            assert west.count(kind=BY_FACT[kind].kind.name) == 1

    run()


@virtual_time
async def test_a_selection_that_changes_while_everything_is_listed_holds_the_list_up_no_more_than_once() -> None:
    west = cluster(*ALL, watch_list=False)
    held = Hold(asyncio.Event())
    async with reading(west) as read:
        west.script(held, verb="list")
        read.selection.set(("shop",))
        await asyncio.sleep(0.1)
        read.selection.set(("bank",))
        read.selection.set(("bank", "attic"))
        held.until.set()
        await asyncio.sleep(3)
        assert read.names == {"bank/a", "bank/b", "bank/c", "attic/a"}
        assert not any(name.startswith("shop") for name in read.ever)


SELECTIONS = (None, (), ("shop",), ("shop", "bank"), ("bank",), ("attic", "shop"))
CHANGE = st.one_of(
    st.tuples(st.just("select"), st.sampled_from(SELECTIONS)),
    st.tuples(st.just("write"), st.sampled_from((*ALL, "shop/new", "bank/new"))),
    st.tuples(st.just("delete"), st.sampled_from(ALL)),
    st.tuples(st.just("wait"), st.sampled_from((0.0, 0.001, 1.0, 30.0))),
    st.tuples(st.just("refuse"), st.sampled_from((410, 429, 500))),
    st.tuples(st.just("compact"), st.none()),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(CHANGE, max_size=15), st.booleans())
def test_whatever_is_selected_in_whatever_order_is_what_is_held_in_the_end(
    changes: list[tuple[str, object]], watch_list: bool
) -> None:
    @virtual_time
    async def run() -> None:
        west = cluster(*ALL, watch_list=watch_list)
        async with reading(west) as read:
            for version, (what, value) in enumerate(changes):
                match what, value:
                    case "select", None | tuple():
                        read.selection.set(value)
                    case "write", str():
                        west.apply(m.pod(value, f"10.0.1.{version}"))
                    case "delete", str():
                        if west.store.get("Pod", (value.split("/")[0], value.split("/")[1])) is not None:
                            west.delete("Pod", value)
                    case "wait", float():
                        await asyncio.sleep(value)
                    case "refuse", int():
                        west.script(Refuse(value), times=1)
                    case _:
                        west.compact()
            await asyncio.sleep(300)
            chosen = read.selection.namespaces
            there = {"/".join(one.name) for one in west.store.objects("Pod")}
            wanted = {name for name in there if chosen is None or name.split("/")[0] in chosen}
            assert read.names == wanted
            held = {f"{key[2]}/{key[3]}": fact for key, fact in read.facts.scan(("west", "Pod"))}
            for one in west.store.objects("Pod"):
                if "/".join(one.name) in wanted:
                    fact = held["/".join(one.name)]
                    assert getattr(fact, "addresses", ()) == (one.document["status"]["podIP"],)

    run()
