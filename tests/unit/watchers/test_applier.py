"""Rules of `watchers.applier`, against a fake API server in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aggregator.cache.table import Table
from tests.kit import manifests
from tests.kit.clock import virtual_time
from tests.kit.kube_api import Hang, Hold, KubeCluster, Refuse, Slow
from tests.kit.kube_session import MemorySession
from watchers.applier import Applier
from watchers.facts.conditions import Condition, ListenerStatus
from watchers.metrics import WriteMetrics
from watchers.write_queue import Manner
from watchers.writes import ConditionsStatus, GatewayStatus, IngressStatus, Write, WriteKey, path

ONE, TWO = IngressStatus(("192.0.2.1",)), IngressStatus(("192.0.2.1", "lb.example.com"))


def key(name: str = "cart", kind: str = "Ingress", namespace: str = "shop") -> WriteKey:
    return ("home", kind, namespace, name, "status")


class World:
    """An API server with Ingresses a, b, ..., a table of writes, and the applier between them."""

    def __init__(self, *names: str, manner: Manner) -> None:
        self.cluster = KubeCluster("home")
        for name in names:
            self.cluster.apply(manifests.ingress(f"shop/{name}", f"{name}.example", "cart"))
        self.table: Table[WriteKey, Write] = Table("writes")
        self.metrics = WriteMetrics()
        self.answer: Callable[[], bool] = lambda: True
        self.applier = Applier(
            self.table,
            MemorySession(self.cluster),
            leads=self.leads,
            metrics=self.metrics,
            clock=asyncio.get_running_loop().time,
            wall=lambda: 1_767_225_600.0,
            chance=lambda: 1.0,
            manner=manner,
        )

    def leads(self) -> bool:
        return self.answer()

    def set(self, *names: str, write: Write | None = ONE) -> None:
        self.table.apply([(key(name), write) for name in names])

    def status(self, name: str, kind: str = "Ingress", namespace: str = "shop") -> Any:
        stored = self.cluster.store.get(kind, (namespace, name))
        assert stored is not None
        return stored.document.get("status") or {}

    def addresses(self, name: str) -> list[str]:
        balancer = self.status(name).get("loadBalancer") or {}
        return [one.get("ip") or one.get("hostname") for one in balancer.get("ingress", ())]

    def patches(self) -> list[str]:
        return [one.name[1] for one in self.cluster.requests if one.verb == "patch" and one.name]

    def outcomes(self) -> dict[str, float]:
        return {labels[0]: value for labels, value in self.metrics.writes.values.items()}


@asynccontextmanager
async def running(*names: str, **manner: Any) -> AsyncIterator[World]:
    world = World(*names, manner=Manner(**manner))
    task = asyncio.create_task(world.applier.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled(), task.exception()


@virtual_time
async def test_a_write_is_a_server_side_apply_on_the_status() -> None:
    async with running("a") as world:
        world.set("a", write=TWO)
        await asyncio.sleep(1)
        request = world.cluster.requests[-1]
        assert (request.subresource, request.content_type) == ("status", "application/apply-patch+yaml")
        assert request.query == {"fieldManager": "isthmus", "force": "true"}
        assert world.status("a") == {
            "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example.com"}]}
        }
        assert world.outcomes() == {"done": 1}


@virtual_time
async def test_an_empty_write_takes_back_what_was_written_and_nothing_else() -> None:
    async with running("a") as world:
        world.set("a")
        await asyncio.sleep(1)
        world.set("a", write=IngressStatus(()))
        await asyncio.sleep(5)
        assert world.addresses("a") == []
        stored = world.cluster.store.get("Ingress", ("shop", "a"))
        assert stored is not None
        assert not stored.document["metadata"]["managedFields"]


@virtual_time
async def test_conditions_are_dated_when_they_are_written_unless_they_held_before() -> None:
    accepted = Condition("Accepted", "True", "Accepted", "", 3, "2026-01-31T09:00:00Z")
    programmed = Condition("Programmed", "False", "AddressNotAssigned", "it has none", 3)
    async with running() as world:
        world.cluster.apply(manifests.gateway("istio-system/east-west", "isthmus-east-west"))
        gateway = key("east-west", "Gateway", "istio-system")
        world.table.apply([(gateway, GatewayStatus((accepted, programmed), (ListenerStatus("mesh", (accepted,)),)))])
        await asyncio.sleep(1)
        status = world.status("east-west", "Gateway", "istio-system")
        assert [(one["type"], one["lastTransitionTime"]) for one in status["conditions"]] == [
            ("Accepted", "2026-01-31T09:00:00Z"),
            ("Programmed", "2026-01-01T00:00:00Z"),
        ]
        assert status["conditions"][1]["observedGeneration"] == 3
        assert [one["name"] for one in status["listeners"]] == ["mesh"]


def test_what_belongs_to_no_namespace_has_no_namespace_in_its_path() -> None:
    assert path(key("isthmus", "GatewayClass", "")) == (
        "/apis/gateway.networking.k8s.io/v1/gatewayclasses/isthmus/status"
    )


@virtual_time
async def test_a_gateway_class_is_told_too() -> None:
    async with running() as world:
        world.cluster.apply(manifests.gateway_class("isthmus", "isthmus.dev/east-west-gateway"))
        accepted = Condition("Accepted", "True", "Accepted", "", 1)
        world.table.apply([(key("isthmus", "GatewayClass", ""), ConditionsStatus((accepted,)))])
        await asyncio.sleep(1)
        assert world.status("isthmus", "GatewayClass", "")["conditions"][0]["status"] == "True"


@virtual_time
async def test_while_a_write_is_under_way_the_newest_waits_and_no_other() -> None:
    async with running("a") as world:
        hold = Hold(asyncio.Event())
        world.cluster.script(hold, verb="patch")
        for write in (ONE, TWO, ONE, TWO, ONE, TWO):
            world.set("a", write=write)
            await asyncio.sleep(0.1)
        assert world.patches() == ["a"]
        hold.until.set()
        await asyncio.sleep(1)
        assert world.patches() == ["a", "a"]
        assert world.addresses("a") == ["192.0.2.1", "lb.example.com"]


@virtual_time
async def test_few_requests_are_under_way_at_a_time() -> None:
    names = [f"i{number}" for number in range(20)]
    async with running(*names, rate=1000, burst=1000, in_flight=3) as world:
        world.cluster.script(Slow(2.0), verb="patch", times=None)
        world.set(*names)
        await asyncio.sleep(1)
        assert len(world.patches()) == 3
        await asyncio.sleep(2 * 7)
        assert len(world.patches()) == 20


@virtual_time
async def test_the_rate_is_kept_after_a_burst() -> None:
    names = [f"i{number}" for number in range(100)]
    async with running(*names, rate=20, burst=40) as world:
        world.set(*names)
        await asyncio.sleep(0.01)
        assert len(world.patches()) == 40
        await asyncio.sleep(1)
        assert len(world.patches()) == 60


@virtual_time
async def test_what_is_not_to_be_written_any_more_is_not() -> None:
    async with running("a", "b", rate=1, burst=1) as world:
        world.set("a", "b")
        await asyncio.sleep(0.1)
        world.set("b", write=None)
        await asyncio.sleep(10)
        assert world.patches() == ["a"]


@virtual_time
async def test_an_object_that_is_gone_is_dropped() -> None:
    async with running() as world:
        world.set("gone")
        await asyncio.sleep(600)
        assert world.patches() == ["gone"]
        assert world.outcomes() == {"gone": 1}


CURED: dict[str, Callable[[], Any]] = {
    "conflict": lambda: Refuse(409, "Conflict"),
    "throttled": lambda: Refuse(429, "TooManyRequests", headers={"Retry-After": "7"}),
    "overloaded": lambda: Refuse(503, "ServiceUnavailable", headers={"Retry-After": "2"}),
    "internal": lambda: Refuse(500, "InternalError"),
    "token": lambda: Refuse(401, "Unauthorized"),
    "silent": Hang,
}


@pytest.mark.parametrize("trouble", CURED)
def test_what_will_pass_is_tried_again_until_it_has(trouble: str) -> None:
    @virtual_time
    async def tried() -> None:
        async with running("a", limit=5) as world:
            world.cluster.script(CURED[trouble](), verb="patch", times=2)
            world.set("a")
            await asyncio.sleep(60)
            assert world.patches() == ["a"] * 3
            assert world.addresses("a") == ["192.0.2.1"]

    tried()


@virtual_time
async def test_a_server_that_wants_to_be_left_alone_is() -> None:
    async with running("a", "b") as world:
        world.cluster.script(Refuse(429, "TooManyRequests", headers={"Retry-After": "7"}), verb="patch", times=2)
        world.set("a", "b")
        await asyncio.sleep(6.9)
        assert len(world.patches()) == 2
        await asyncio.sleep(0.2)
        assert len(world.patches()) == 4


@virtual_time
async def test_what_is_invalid_is_told_once_and_tried_again_only_with_other_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running("a", "b") as world:
        world.cluster.script(Refuse(422, "Invalid", "status: wrong"), verb="patch", times=2)
        with caplog.at_level(logging.WARNING):
            world.set("a", "b")
            await asyncio.sleep(3600)
        assert sorted(world.patches()) == ["a", "b"]
        assert [record.message for record in caplog.records] == ["write refused"]
        world.set("a", write=TWO)
        await asyncio.sleep(1)
        assert world.addresses("a") == ["192.0.2.1", "lb.example.com"]


@virtual_time
async def test_what_may_not_be_written_is_told_once_and_asked_for_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = [f"i{number}" for number in range(50)]
    async with running(*names, in_flight=2) as world:
        fault = world.cluster.script(Refuse(403, "Forbidden"), verb="patch", times=None)
        with caplog.at_level(logging.WARNING):
            world.set(*names)
            await asyncio.sleep(601)
        assert len(world.patches()) == 2 + 10
        assert [record.message for record in caplog.records] == ["write forbidden"]
        fault.withdraw()
        await asyncio.sleep(61)
        assert all(world.addresses(name) for name in names)


@virtual_time
async def test_an_api_server_that_is_away_is_not_hammered_and_then_everything_is_written() -> None:
    names = [f"i{number}" for number in range(50)]
    async with running(*names) as world:
        world.cluster.refuse_connections = True
        world.set(*names)
        await asyncio.sleep(600)
        assert world.outcomes()["failed"] < 60
        world.cluster.refuse_connections = False
        await asyncio.sleep(301)
        assert all(world.addresses(name) for name in names)


@virtual_time
async def test_nothing_is_sent_by_one_who_does_not_lead_any_more() -> None:
    async with running("a") as world:
        world.answer = lambda: False
        world.set("a")
        await asyncio.sleep(60)
        assert world.patches() == []


@virtual_time
async def test_whether_it_leads_is_asked_right_before_a_request() -> None:
    async with running("a") as world:
        await asyncio.sleep(1)
        asked: list[bool] = []

        def leads() -> bool:
            asked.append(len(asked) < 1)
            return asked[-1]

        world.answer = leads
        world.set("a")
        await asyncio.sleep(60)
        assert asked[:2] == [True, False]
        assert world.patches() == []


@virtual_time
async def test_whoever_begins_to_lead_writes_all_there_is_to_write() -> None:
    world = World("a", "b", manner=Manner())
    world.set("a", "b")
    for _ in range(2):
        task = asyncio.create_task(world.applier.run())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait((task,))
    assert sorted(world.patches()) == ["a", "a", "b", "b"]
