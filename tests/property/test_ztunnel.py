"""Whatever changes in whatever order, a ztunnel ends with what there is and never names what it was not told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from aggregator.views import ztunnel
from tests.kit.mesh_events import events, mesh, take
from tests.kit.told_world import (
    NODE,
    Backend,
    Mesh,
    Pod,
    ToldStream,
    ToldWorld,
    dangling,
    endpoints_held,
    endpoints_of,
    held_names,
    names_in,
    pod_address,
    pod_uid,
    resources_of,
    service_address,
    service_name,
    standing_in,
)
from tests.kit.ztunnel import Node, ZtunnelMachine
from xds import protos
from xds.encoded import ADMITS_ALL, ADMITS_HEALTHY, ADMITS_NOTHING
from xds.session import delta

SOME = settings(max_examples=80, stateful_step_count=12, deadline=None)
SERVICES, PODS, POLICIES = ("a", "b", "w"), ("p1", "p2", "p3"), ("x", "y")
GOING_ON = st.sampled_from(("rest", "take", "poll", "nothing"))
PRESENT_PODS = st.builds(
    Pod,
    services=st.frozensets(st.sampled_from(SERVICES)),
    healthy=st.booleans(),
    policies=st.frozensets(st.sampled_from(POLICIES)),
    behind=st.booleans(),
    node=st.sampled_from((NODE, "node-2")),
)
PRESENT_SERVICES = st.builds(
    Backend,
    admits_all=st.booleans(),
    waypoint=st.sampled_from(("", "", "w")),
    text=st.sampled_from(("", "other")),
    ranges=st.sampled_from(((), (16,), (24,))),
)


NAMES = st.sampled_from(
    (
        *map(pod_uid, PODS),
        *map(pod_address, PODS),
        *map(service_name, SERVICES),
        *map(service_address, SERVICES),
        "near/10.97.0.9",
        "near/192.0.2.1",
        "shop/nowhere.example",
    )
)


class Streams(RuleBasedStateMachine):
    """One stand-in, over many streams, and a mesh that changes."""

    on_demand = False

    def __init__(self) -> None:
        super().__init__()
        self.world = ToldWorld()
        self.machine = ZtunnelMachine(Node(node_name=NODE), on_demand=self.on_demand)
        self.stream = ToldStream(self.world, self.machine)

    @initialize(
        pods=st.fixed_dictionaries(dict.fromkeys(PODS, PRESENT_PODS)),
        services=st.fixed_dictionaries(dict.fromkeys(SERVICES, PRESENT_SERVICES)),
    )
    def begin(self, pods: dict[str, Pod], services: dict[str, Backend]) -> None:
        self.world.publish(Mesh(pods, services, dict.fromkeys(POLICIES, ""), gateway=True))

    def change(self, part: str, name: str, value: Any) -> None:
        there = dict(getattr(self.world.mesh, part))
        if value is None:
            there.pop(name, None)
        else:
            there[name] = value
        self.world.publish(msgspec.structs.replace(self.world.mesh, **{part: there}))

    def go_on(self, how: str) -> None:
        """How far the ztunnel gets before the next thing happens."""
        if how == "rest":
            self.stream.rest()
        elif how != "nothing":
            self.stream.poll(advance=0.05)
            if how == "take":
                self.stream.deliver()

    @rule(name=st.sampled_from(PODS), pod=st.none() | PRESENT_PODS, then=GOING_ON)
    def pod_changes(self, name: str, pod: Pod | None, then: str) -> None:
        self.change("pods", name, pod)
        self.go_on(then)

    @rule(name=st.sampled_from(SERVICES), service=PRESENT_SERVICES, then=GOING_ON)
    def service_changes(self, name: str, service: Backend, then: str) -> None:
        self.change("services", name, service)
        self.go_on(then)

    @rule(name=st.sampled_from(SERVICES), then=GOING_ON)
    def service_goes(self, name: str, then: str) -> None:
        self.change("services", name, None)
        self.go_on(then)

    @rule(
        name=st.sampled_from(SERVICES), service=PRESENT_SERVICES, gone=GOING_ON, back=GOING_ON, reconnects=st.booleans()
    )
    def service_goes_and_comes_back(
        self, name: str, service: Backend, gone: str, back: str, reconnects: bool
    ) -> None:
        self.service_goes(name, gone)
        self.service_changes(name, service, "nothing" if reconnects else back)
        if reconnects:
            self.ztunnel_reconnects(back)

    @rule(name=st.sampled_from(POLICIES), text=st.none() | st.sampled_from(("", "-other")), then=GOING_ON)
    def policy_changes(self, name: str, text: str | None, then: str) -> None:
        self.change("policies", name, text)
        self.go_on(then)

    @rule(there=st.booleans(), then=GOING_ON)
    def gateway_changes(self, there: bool, then: str) -> None:
        self.world.publish(msgspec.structs.replace(self.world.mesh, gateway=there))
        self.go_on(then)

    @rule()
    def everything_is_answered(self) -> None:
        self.finish()

    @rule(then=GOING_ON)
    def ztunnel_reconnects(self, then: str) -> None:
        self.stream.close()
        self.stream = ToldStream(self.world, self.machine)
        self.go_on(then)

    @rule(order=st.permutations((*SERVICES, "gateway")), steps=st.integers(0, 4))
    def control_plane_restarts(self, order: list[str], steps: int) -> None:
        """It reads home's pods and policies, then the rest bit by bit; the ztunnel comes in between."""
        there = self.world.mesh
        self.stream.close()
        self.world.restart()
        self.world.publish(Mesh(there.pods, {}, there.policies))
        for number, part in enumerate([*order, ""]):
            if number == steps:
                self.stream = ToldStream(self.world, self.machine)
            if number >= steps:
                self.go_on("take")
            if part == "gateway":
                self.world.publish(msgspec.structs.replace(self.world.mesh, gateway=there.gateway))
            elif part in there.services:
                self.change("services", part, there.services[part])
        self.world.settle()
        self.stream.rest()

    @invariant()
    def nothing_names_what_is_not_there(self) -> None:
        assert dangling(self.machine.state) == []
        assert all(response.error == "" for response in self.machine.received)

    def finish(self) -> None:
        """Everything is sent and answered, and the stand-in holds what it should."""
        self.stream.rest()
        told = resources_of(self.world.mesh)
        for view in ztunnel.VIEWS:
            wanted = {name: one.version for (where, name), one in told.items() if where == view.name}
            assert self.machine.held(view.type_url) == wanted
        assert endpoints_held(self.machine.state) == endpoints_of(self.world.mesh)

    def teardown(self) -> None:
        self.finish()


class Lookups(Streams):
    """A stand-in that is told what it asks for, by whatever name."""

    on_demand = True

    @rule(name=NAMES, then=GOING_ON)
    def ztunnel_asks(self, name: str, then: str) -> None:
        self.stream.ask(name)
        self.go_on(then)

    @rule(name=NAMES)
    def whoever_waits_for_an_answer_gets_it(self, name: str) -> None:
        self.stream.ask(name)
        self.stream.rest()
        assert self.machine.demanded == frozenset()
        told, known = names_in(self.world.mesh, name), held_names(self.machine)
        assert told <= known
        self.finish()

    def finish(self) -> None:
        self.stream.rest()
        mesh, known = self.world.mesh, held_names(self.machine)
        # Of what it asked for on a stream that broke, it claims the version where it holds one; then it is not told.
        assert self.machine.demanded <= known
        assert standing_in(mesh) <= known
        told = {name: one.version for (_, name), one in resources_of(mesh).items()}
        for view in ztunnel.VIEWS:
            held = {name: version for name, version in self.machine.held(view.type_url).items() if version}
            assert held == {name: told[name] for name in held}
        wanted = endpoints_of(mesh)
        endpoints = endpoints_held(self.machine.state)
        assert endpoints == {name: wanted[name] for name in endpoints}


def test_a_ztunnel_that_asks_is_told_what_there_is_with_all_that_goes_with_it_and_is_kept_up_to_date() -> None:
    run_state_machine_as_test(Lookups, settings=SOME)


@pytest.mark.parametrize("chunk", [delta.CHUNK, 1], ids=["whole", "one by one"])
def test_a_ztunnel_ends_with_what_there_is_and_never_holds_a_name_of_what_it_was_not_told(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CHUNK", chunk)
    run_state_machine_as_test(Streams, settings=SOME)


@settings(max_examples=40, deadline=None)
@given(events())
def test_ties_of_whatever_is_told_follow_from_its_bytes(happened: list[Any]) -> None:
    world = mesh()
    for cluster, event, deleted in happened:
        take(world, cluster, event, deleted=deleted)
    world.step()
    told = [one for (view, _), one in world.resources.items() if view == ztunnel.ADDRESSES.name]
    assert told
    for one in told:
        assert (set(one.ties.joins), one.ties.admits) == ties_in(one.body.tobytes())


def ties_in(data: bytes) -> tuple[set[str], int]:
    address = protos.istio.workload.Address.FromString(data)
    if address.HasField("workload"):
        return set(address.workload.services), ADMITS_NOTHING
    all_of_them = address.service.load_balancing.health_policy == protos.istio.workload.LoadBalancing.ALLOW_ALL
    return set(), ADMITS_ALL if all_of_them else ADMITS_HEALTHY
