"""Objects that are read by their names: what is asked, what becomes of it, and how many there may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aggregator.cache.table import Table
from tests.kit import manifests as m
from tests.kit.clock import virtual_time
from tests.kit.kube_api import KubeCluster, Refuse
from tests.kit.kube_session import MemorySession
from watchers.facts import Fact, NamedSecret, ObjectKey, Reading, RootsConfigMap
from watchers.facts.named import WantedKey, object_key, reading_key
from watchers.kubernetes.named_objects import LINGER, MOST, NamedObjects
from watchers.metrics import WatchMetrics

TLS: WantedKey = ("NamedSecret", "infra", "tls")
CA: WantedKey = ("RootsConfigMap", "infra", "ca")
READ = Reading("read")


class Bench:
    """An API server and who reads it."""

    def __init__(self, *objects: m.Manifest, most: int = MOST, most_of_namespace: int = MOST) -> None:
        self.cluster = KubeCluster("alpha")
        self.cluster.apply(*objects)
        self.session = MemorySession(self.cluster)
        self.wanted: Table[WantedKey, Any] = Table("wanted")
        self.facts: Table[ObjectKey, Fact] = Table("facts")
        loop = asyncio.get_running_loop()
        self.named = NamedObjects(
            self.wanted,
            self.facts,
            self.session,
            cluster="alpha",
            metrics=WatchMetrics(),
            chance=lambda: 0.5,
            clock=loop.time,
            most=most,
            most_of_namespace=most_of_namespace,
        )

    @asynccontextmanager
    async def running(self, *wanted: WantedKey, by: str = "infra") -> AsyncIterator[None]:
        self.want(*wanted, by=by)
        task = asyncio.create_task(self.named.run())
        try:
            await asyncio.sleep(1)
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))

    def want(self, *wanted: WantedKey, by: str = "infra") -> None:
        self.wanted.apply([(key, (by,)) for key in wanted])

    def forget(self, *wanted: WantedKey) -> None:
        self.wanted.apply([(key, None) for key in wanted])

    def read(self, wanted: WantedKey) -> tuple[Fact | None, Fact | None]:
        """The object, and how it is being read."""
        return self.facts.get(object_key(wanted)), self.facts.get(reading_key(wanted))


def secret(name: str = "infra/tls", text: bytes = b"c", **fields: Any) -> m.Manifest:
    return m.secret(name, cert=text, key=b"k", **fields)


@virtual_time
async def test_an_object_is_asked_for_by_its_name_alone_and_followed() -> None:
    bench = Bench(secret(), secret("infra/other"), secret("certs/tls"))
    async with bench.running(TLS):
        assert bench.read(TLS) == (NamedSecret(b"c", b"k", generic=True), READ)
        assert {(one.kind, one.namespace, one.query["fieldSelector"]) for one in bench.cluster.requests} == {
            ("Secret", "infra", "metadata.name=tls")
        }
        bench.cluster.apply(secret(text=b"new"))
        await asyncio.sleep(1)
        assert bench.read(TLS)[0] == NamedSecret(b"new", b"k", generic=True)
        bench.cluster.delete("Secret", "infra/tls")
        await asyncio.sleep(1)
        assert bench.read(TLS) == (None, READ)


@virtual_time
async def test_what_is_not_there_is_known_to_be_absent_and_noticed_when_it_comes() -> None:
    bench = Bench()
    async with bench.running(TLS):
        assert bench.read(TLS) == (None, READ)
        bench.cluster.apply(secret(kind="kubernetes.io/tls"))
        await asyncio.sleep(1)
        assert bench.read(TLS)[0] is not None


@virtual_time
async def test_two_of_one_namespace_do_not_disturb_each_other() -> None:
    bench = Bench(secret(), secret("infra/b", b"b"))
    other = ("NamedSecret", "infra", "b")
    async with bench.running(TLS, other):
        bench.cluster.delete("Secret", "infra/b")
        await asyncio.sleep(1)
        assert bench.read(TLS)[0] is not None
        assert bench.read(other) == (None, READ)


@virtual_time
async def test_config_maps_are_read_for_their_roots() -> None:
    bench = Bench(m.config_map("infra/ca", ca_crt="roots", more="text"))
    async with bench.running(CA):
        assert bench.read(CA) == (RootsConfigMap(b"roots"), READ)


@virtual_time
async def test_nothing_is_known_before_the_first_answer() -> None:
    bench = Bench(secret())
    bench.cluster.refuse_connections = True
    async with bench.running(TLS):
        assert bench.read(TLS) == (None, None)
        bench.cluster.refuse_connections = False
        await asyncio.sleep(10)
        assert bench.read(TLS)[1] == READ


@virtual_time
async def test_what_may_not_be_read_is_said_and_tried_again() -> None:
    bench = Bench(secret())
    bench.cluster.forbidden.add("Secret")
    async with bench.running(TLS):
        fact, reading = bench.read(TLS)
        assert fact is None
        assert isinstance(reading, Reading)
        assert (reading.state, "403 Forbidden" in reading.reason) == ("denied", True)
        bench.cluster.forbidden.clear()
        await asyncio.sleep(60)
        assert bench.read(TLS)[1] == READ


@virtual_time
async def test_what_was_read_stands_while_it_cannot_be_read_any_more() -> None:
    bench = Bench(secret())
    async with bench.running(TLS):
        for fault in (Refuse(503), Refuse(403, "Forbidden")):
            scripted = bench.cluster.script(fault, times=None)
            bench.cluster.end_watches()
            await asyncio.sleep(90)
            assert bench.read(TLS)[0] == NamedSecret(b"c", b"k", generic=True)
            scripted.withdraw()
            await asyncio.sleep(90)
            assert bench.read(TLS)[1] == READ


@virtual_time
async def test_an_object_that_cannot_be_used_is_said_without_a_word_of_what_it_holds() -> None:
    bad = {**secret(), "data": {"cert": "dHJlYXN1cmU!", "key": "aw=="}}
    bench = Bench(secret())
    async with bench.running(TLS):
        bench.cluster.apply(bad)
        await asyncio.sleep(1)
        fact, reading = bench.read(TLS)
        assert fact == NamedSecret(b"c", b"k", generic=True)
        assert isinstance(reading, Reading)
        assert (reading.state, "base64" in reading.reason, "dHJl" in reading.reason) == ("invalid", True, False)
        bench.cluster.apply(secret())
        await asyncio.sleep(1)
        assert bench.read(TLS)[1] == READ


@virtual_time
async def test_what_nobody_wants_any_more_is_read_no_more_and_forgotten() -> None:
    bench = Bench(secret())
    async with bench.running(TLS):
        bench.forget(TLS)
        await asyncio.sleep(LINGER + 1)
        assert bench.read(TLS) == (None, None)
        assert bench.cluster.watches() == 0
        bench.want(TLS)
        await asyncio.sleep(1)
        assert bench.read(TLS)[1] == READ


@virtual_time
async def test_who_wants_and_forgets_all_the_time_makes_nobody_ask_all_the_time() -> None:
    bench = Bench(secret(), most_of_namespace=4)
    async with bench.running(TLS):
        for number in range(100):
            other: WantedKey = ("NamedSecret", "infra", f"x{number}")
            bench.want(other)
            bench.forget(TLS)
            await asyncio.sleep(0.1)
            bench.forget(other)
            bench.want(TLS)
            await asyncio.sleep(0.1)
        assert bench.read(TLS)[1] == READ
        assert bench.cluster.count("watch", "Secret") <= 4
        await asyncio.sleep(LINGER + 1)
        assert bench.cluster.watches() == 1
        assert len(list(bench.facts.scan(()))) == 2


@virtual_time
async def test_beyond_the_bound_objects_wait_until_others_are_wanted_no_more() -> None:
    bench = Bench(secret(), most=2)
    others: list[WantedKey] = [("NamedSecret", "infra", f"x{number}") for number in range(2)]
    async with bench.running(*others):
        bench.want(TLS)
        await asyncio.sleep(1)
        reading = bench.read(TLS)[1]
        assert isinstance(reading, Reading)
        assert (reading.state, "2 objects" in reading.reason) == ("denied", True)
        assert bench.cluster.watches() == 2
        bench.forget(others[0])
        await asyncio.sleep(LINGER + 1)
        assert bench.read(TLS)[1] == READ
        assert bench.cluster.watches() == 2


@virtual_time
async def test_no_namespace_takes_the_places_of_others() -> None:
    bench = Bench(secret(), most_of_namespace=2)
    greedy: list[WantedKey] = [("RootsConfigMap", "infra", f"x{number}") for number in range(9)]
    async with bench.running(*greedy, by="greedy"):
        bench.want(TLS, by="infra")
        await asyncio.sleep(1)
        assert bench.read(TLS)[1] == READ
        assert [bench.read(one)[1] == READ for one in greedy] == [True, True, *[False] * 7]


@virtual_time
async def test_a_server_that_sends_other_objects_is_not_believed() -> None:
    bench = Bench(secret("infra/other"))
    objects = bench.cluster.store.objects
    bench.cluster.store.objects = lambda kind, selects=lambda _: True: objects(kind)  # type: ignore[method-assign]
    async with bench.running(TLS):
        assert bench.read(TLS) == (None, READ)
