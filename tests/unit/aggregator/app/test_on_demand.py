"""A ztunnel that asks for what it needs: what it is told, when, and how its waiting lookups end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aggregator.app import address_books
from aggregator.app.address_books import SharedBook
from tests.kit.told_world import (
    GATEWAY,
    NODE,
    Backend,
    Mesh,
    Pod,
    ToldStream,
    ToldWorld,
    held_names,
    pod_address,
    pod_uid,
    resources_of,
    service_address,
    service_name,
)
from tests.kit.ztunnel import ADDRESS_TYPE, Node, ZtunnelMachine
from xds import protos
from xds.session import directory

CART, WAY = service_name("cart"), service_name("way")
MESH = Mesh(
    pods={
        "local": Pod(node=NODE),
        "cart-1": Pod(frozenset({"cart"})),
        "cart-2": Pod(frozenset({"cart"}), behind=True),
        "way-1": Pod(frozenset({"way"})),
        "other": Pod(frozenset({"ads"})),
    },
    services={"cart": Backend(waypoint="way"), "way": Backend(), "ads": Backend(ranges=(16,))},
    gateway=True,
)
STANDING = {pod_uid("local"), GATEWAY}
CART_AND_ALL = {CART, pod_uid("cart-1"), pod_uid("cart-2", behind=True), WAY, pod_uid("way-1")}


class OnDemand:
    """A ztunnel on a node, at rest after everything that is done to it."""

    def __init__(self, mesh: Mesh = MESH, node: str = NODE) -> None:
        self.world = ToldWorld()
        self.world.publish(mesh)
        self.machine = ZtunnelMachine(Node(node_name=node), on_demand=True)
        self.connect()

    def connect(self) -> None:
        self.stream = ToldStream(self.world, self.machine)
        self.stream.rest()

    def ask(self, *names: str) -> None:
        for name in names:
            self.stream.ask(name)
        self.stream.rest()
        assert self.machine.demanded == frozenset()

    def change(self, **parts: Any) -> None:
        self.world.publish(msgspec.structs.replace(self.world.mesh, **parts))
        self.stream.rest()

    @property
    def held(self) -> set[str]:
        return held_names(self.machine)

    @property
    def told(self) -> tuple[set[str], set[str]]:
        """What the last response held: names of resources, and of removals."""
        last = self.machine.received[-1]
        return set(last.resources), set(last.removed)


@pytest.fixture
def ztunnel() -> OnDemand:
    return OnDemand()


def test_at_first_it_is_told_of_gateways_and_of_the_workloads_of_its_node_alone(ztunnel: OnDemand) -> None:
    assert ztunnel.held == STANDING


def test_one_whose_node_is_not_known_is_told_of_gateways_alone() -> None:
    assert OnDemand(node="").held == {GATEWAY}


def test_where_there_is_nothing_to_tell_it_is_sent_nothing_and_ready_all_the_same() -> None:
    ztunnel = OnDemand(Mesh())
    assert ztunnel.machine.ready
    assert [response.type_url for response in ztunnel.machine.received if response.type_url == ADDRESS_TYPE] == []


def test_a_service_comes_with_its_endpoints_their_gateways_and_its_waypoint_with_its_own(ztunnel: OnDemand) -> None:
    ztunnel.ask(CART)
    assert ztunnel.told == (CART_AND_ALL, set())


def test_a_workload_comes_without_the_services_it_is_an_endpoint_of(ztunnel: OnDemand) -> None:
    ztunnel.ask(pod_uid("cart-1"))
    assert ztunnel.told == ({pod_uid("cart-1")}, set())


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (pod_address("cart-1"), {pod_uid("cart-1")}),
        (service_address("cart"), CART_AND_ALL),
        ("near/10.97.1.2", {service_name("ads"), pod_uid("other")}),
    ],
)
def test_who_asks_by_address_is_told_the_asked_name_is_gone_once_everything_is_there(
    ztunnel: OnDemand, asked: str, answer: set[str]
) -> None:
    ztunnel.ask(asked)
    assert ztunnel.told == (answer, {asked})


def test_an_answer_carries_all_names_of_its_resources(ztunnel: OnDemand) -> None:
    ztunnel.stream.ask(service_address("ads"))
    ztunnel.stream.poll()
    (payload,) = ztunnel.stream.under_way
    response = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse.FromString(payload)
    assert {one.name: list(one.aliases) for one in response.resources} == {
        service_name("ads"): [service_address("ads"), "near/10.97.0.0/16"],
        pod_uid("other"): [pod_address("other")],
    }


def test_one_that_asks_for_everything_is_told_no_aliases() -> None:
    world = ToldWorld()
    world.publish(MESH)
    stream = ToldStream(world, ZtunnelMachine(Node(node_name=NODE)))
    stream.poll()
    while stream.under_way:
        response = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse.FromString(stream.under_way[0])
        assert all(not one.aliases for one in response.resources)
        stream.deliver()
        stream.poll()


@pytest.mark.parametrize("asked", ["near/192.0.2.1", "shop/nowhere.example", "home//Pod/shop/nobody"])
def test_who_asks_for_what_does_not_exist_is_told_so_at_once(ztunnel: OnDemand, asked: str) -> None:
    ztunnel.ask(asked)
    assert ztunnel.told == (set(), {asked})


def test_what_was_asked_for_in_vain_is_told_when_it_comes_to_be(ztunnel: OnDemand) -> None:
    ztunnel.ask(pod_uid("late"), service_name("later"), pod_address("third"))
    late = {"late": Pod(), "third": Pod(), "later-1": Pod(frozenset({"later"}))}
    ztunnel.change(pods={**MESH.pods, **late})
    assert ztunnel.told == ({pod_uid("late"), pod_uid("third"), pod_uid("later-1")}, set())
    ztunnel.change(services={**MESH.services, "later": Backend()})
    assert ztunnel.told == ({service_name("later"), pod_uid("later-1")}, set())


def test_a_range_that_comes_to_be_is_told_to_who_asked_for_an_address_in_it() -> None:
    ztunnel = OnDemand(Mesh())
    ztunnel.ask("near/10.97.1.2")
    ztunnel.change(services={"small": Backend(ranges=(24,)), "large": Backend(ranges=(16,))})
    assert ztunnel.held == {service_name("large")}


def test_who_asks_again_for_what_it_was_told_is_answered_again(ztunnel: OnDemand) -> None:
    ztunnel.ask(CART)
    ztunnel.ask(CART)
    assert ztunnel.told == ({CART}, set())
    ztunnel.ask(service_address("cart"))
    assert ztunnel.told == ({CART}, {service_address("cart")})


def test_updates_of_what_it_was_told_follow_and_of_nothing_else(ztunnel: OnDemand) -> None:
    ztunnel.ask(CART)
    pods = {**MESH.pods, "cart-1": Pod(healthy=False, services=frozenset({"cart"})), "other": Pod()}
    ztunnel.change(pods=pods, services={**MESH.services, "way": Backend(text="new"), "ads": Backend(text="new")})
    assert ztunnel.told == ({pod_uid("cart-1"), WAY}, set())


def test_an_endpoint_that_comes_to_be_is_told_with_its_services(ztunnel: OnDemand) -> None:
    ztunnel.ask(CART)
    more = {"cart-3": Pod(frozenset({"cart"})), "way-2": Pod(frozenset({"way"})), "ads-1": Pod(frozenset({"ads"}))}
    ztunnel.change(pods={**MESH.pods, **more})
    assert ztunnel.told == ({pod_uid("cart-3"), pod_uid("way-2")}, set())


def test_a_waypoint_that_a_service_is_given_later_comes_with_it() -> None:
    ztunnel = OnDemand(msgspec.structs.replace(MESH, services={"cart": Backend(), "way": Backend()}))
    ztunnel.ask(CART)
    assert WAY not in ztunnel.held
    ztunnel.change(services={"cart": Backend(waypoint="way"), "way": Backend()})
    assert ztunnel.told == ({CART, WAY, pod_uid("way-1")}, set())


def test_a_pod_that_starts_on_its_node_is_told_unasked(ztunnel: OnDemand) -> None:
    ztunnel.change(pods={**MESH.pods, "new": Pod(node=NODE), "elsewhere": Pod(node="node-2")})
    assert ztunnel.told == ({pod_uid("new")}, set())


def test_what_goes_is_removed_and_not_remembered(ztunnel: OnDemand) -> None:
    ztunnel.ask(service_address("cart"))
    ztunnel.change(pods={"local": Pod(node=NODE)}, services={})
    assert ztunnel.held == STANDING
    implied = ztunnel.stream.interest(ADDRESS_TYPE).implied
    assert implied == STANDING


def test_a_ztunnel_that_reconnects_is_told_only_what_differs(ztunnel: OnDemand) -> None:
    ztunnel.ask(service_address("cart"), pod_uid("other"))
    ztunnel.stream.close()
    ztunnel.machine.received.clear()
    ztunnel.connect()
    assert all(one.type_url != ADDRESS_TYPE for one in ztunnel.machine.received)
    ztunnel.stream.close()
    pods = {name: pod for name, pod in MESH.pods.items() if name != "other"}
    ztunnel.world.publish(msgspec.structs.replace(MESH, pods={**pods, "cart-3": Pod(frozenset({"cart"}))}))
    ztunnel.connect()
    assert ztunnel.told == ({pod_uid("cart-3")}, {pod_uid("other")})


def test_a_question_that_was_not_answered_before_the_stream_broke_is_answered_on_the_next() -> None:
    ztunnel = OnDemand()
    ztunnel.stream.ask(service_address("cart"))
    ztunnel.stream.close()
    ztunnel.connect()
    assert ztunnel.machine.demanded == frozenset()
    assert ztunnel.held >= CART_AND_ALL


def test_one_that_turns_to_everything_is_told_everything(ztunnel: OnDemand) -> None:
    ztunnel.stream.ask("*")
    ztunnel.stream.rest()
    assert ztunnel.held == {name for _, name in resources_of(MESH)}


def test_only_the_newest_questions_are_followed(ztunnel: OnDemand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "KEPT_QUESTIONS", 3)
    ztunnel.ask(*(f"near/192.0.2.{number}" for number in range(10)), CART)
    assert ztunnel.stream.interest(ADDRESS_TYPE).names == {CART, *(f"near/192.0.2.{number}" for number in (7, 8, 9))}


# The book that answers.


def test_the_book_is_made_page_by_page_and_nothing_is_answered_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_books, "PAGE", 2)
    world = ToldWorld()
    world.publish(MESH)
    later: list[Callable[[], None]] = []
    rung: list[str] = []
    book = SharedBook(world.tables, "home", later=later.append)
    book.open("reader", lambda: rung.append("ready"))
    pages = 1
    while later:
        assert (book.ready, rung) == (False, [])
        later.pop()()
        pages += 1
    assert (book.ready, rung, pages) == (True, ["ready"], 5)
    assert len(book.book) == 9


def test_the_book_goes_with_its_last_reader_and_is_made_anew_for_the_next() -> None:
    world = ToldWorld()
    world.publish(MESH)
    book = SharedBook(world.tables, "home", later=lambda work: work())
    for reader in ("one", "two"):
        book.open(reader, lambda: None)
    book.close("one")
    assert book.ready
    book.close("two")
    assert (book.ready, len(book.book)) == (False, 0)
    book.open("three", lambda: None)
    assert (book.ready, len(book.book)) == (True, 9)


def test_ztunnels_that_ask_for_everything_cost_no_book() -> None:
    world = ToldWorld()
    world.publish(MESH)
    ToldStream(world, ZtunnelMachine(Node(node_name=NODE))).rest()
    assert not world.addresses.ready
