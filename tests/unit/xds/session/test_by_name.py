"""Names that lead to readings of their own, beside a view: what is told of them, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.xds.session.model import Answer, Client, DeltaClient, Reading, SotwClient, View, World
from xds.messages.workload import ADDRESS_TYPE
from xds.session.by_name import ByName
from xds.session.ordering import Order


class Opened(World):
    """A world whose one type holds hosts in a view, and, under names that begin with "k:", what `named` holds."""

    def __init__(self, hosts: View | None, most: int = 100) -> None:
        super().__init__({})
        self.hosts = hosts
        self.named: dict[str, View] = {}
        self.most = most
        self.bells: dict[str, Callable[[], None]] = {}
        self.rung = 0
        self.by_name: ByName | None = None

    def open(self, type_url: str) -> ByName:  # type: ignore[override]
        read = None
        if self.hosts is not None:
            read = Reading(self.hosts)
            self.hosts.readings.append(read)
        self.by_name = ByName(read, lambda name: name.startswith("k:"), self._open, self._ring, most=self.most)
        return self.by_name

    def _open(self, name: str, bell: Callable[[], None]) -> Reading | None:
        view = self.named.get(name)
        if view is None:
            return None
        self.bells[name] = bell
        reading = Reading(view)
        reading.changed.clear()
        view.readings.append(reading)
        return reading

    def _ring(self) -> None:
        self.rung += 1

    def change(self, name: str, text: str | None = None, state: str = "settled") -> None:
        """What is under a name changes, or becomes known."""
        view = self.named[name]
        view.state = state  # type: ignore[assignment]
        view.change({name: text} if text is not None or name in view.content else {})
        self.bells[name]()


def client_of(world: Opened, kind: type[Client] = DeltaClient) -> Client:
    return kind(world, Order())


def reconnect(client: Client, world: Opened) -> list[Answer]:
    """A new stream to a control plane that has just begun."""
    client.world = world
    client.connect()
    return client.subscribe(ADDRESS_TYPE, "k:a")


def told(answers: list[Answer]) -> list[tuple[dict[str, str], list[str]]]:
    return [(answer.texts, answer.removed) for answer in answers]


BOTH = pytest.mark.parametrize("kind", [DeltaClient, SotwClient])


@BOTH
def test_what_is_known_at_once_is_told_at_once(kind: type[Client]) -> None:
    world = Opened(View({"a.example": "1"}))
    world.named["k:a"] = View({"k:a": "2"})
    client = client_of(world, kind)
    assert [one.texts for one in client.subscribe(ADDRESS_TYPE, "a.example", "k:a")] == [{"a.example": "1", "k:a": "2"}]


def test_absence_is_told_only_once_it_is_known() -> None:
    world = Opened(View({"a.example": "1"}))
    world.named["k:a"] = View(state="unknown")
    client = client_of(world)
    assert told(client.subscribe(ADDRESS_TYPE, "a.example", "k:a")) == [({"a.example": "1"}, [])]
    client.ack_all()
    assert client.poll() == []
    world.change("k:a")
    assert world.rung == 1
    assert told(client.poll()) == [({}, ["k:a"])]


@BOTH
def test_what_becomes_known_is_told(kind: type[Client]) -> None:
    world = Opened(View({"a.example": "1"}))
    world.named["k:a"] = View(state="unknown")
    client = client_of(world, kind)
    client.subscribe(ADDRESS_TYPE, "a.example", "k:a")
    client.ack_all()
    world.change("k:a", "2")
    assert [one.texts for one in client.poll()] == [{"k:a": "2"}]
    client.ack_all()
    world.change("k:a", "3")
    assert [one.texts for one in client.poll()] == [{"k:a": "3"}]


def test_what_is_withdrawn_is_told_and_may_come_again() -> None:
    world = Opened(View())
    world.named["k:a"] = View({"k:a": "1"})
    client = client_of(world)
    client.subscribe(ADDRESS_TYPE, "k:a")
    client.ack_all()
    world.change("k:a")
    assert told(client.poll()) == [({}, ["k:a"])]
    client.ack_all()
    world.change("k:a", "2")
    assert told(client.poll()) == [({"k:a": "2"}, [])]


def test_an_unknown_name_holds_up_no_host() -> None:
    world = Opened(View(state="unknown"))
    world.named["k:a"] = View(state="unknown")
    client = client_of(world)
    assert client.subscribe(ADDRESS_TYPE, "a.example", "k:a") == []
    assert world.hosts is not None
    world.hosts.state = "settled"
    world.hosts.change({"a.example": "1"})
    assert told(client.poll()) == [({"a.example": "1"}, [])]


def test_a_name_that_stands_for_nothing_is_absent_at_once() -> None:
    client = client_of(Opened(None))
    assert told(client.subscribe(ADDRESS_TYPE, "k:x", "a.example")) == [({}, ["k:x", "a.example"])]


def test_a_host_cannot_be_called_like_what_is_read_apart() -> None:
    world = Opened(View({"k:a": "a host's"}))
    world.named["k:a"] = View({"k:a": "its own"})
    client = client_of(world)
    assert told(client.subscribe(ADDRESS_TYPE, "k:a")) == [({"k:a": "its own"}, [])]
    client.ack_all()
    assert world.hosts is not None
    world.hosts.change({"k:a": "a host's other"})
    assert client.poll() == []


@BOTH
def test_a_name_that_is_given_up_is_read_no_more(kind: type[Client]) -> None:
    world = Opened(View())
    world.named |= {"k:a": View({"k:a": "1"}), "k:b": View({"k:b": "1"})}
    client = client_of(world, kind)
    client.subscribe(ADDRESS_TYPE, "k:a", "k:b")
    client.ack_all()
    client.unsubscribe(ADDRESS_TYPE, "k:a")
    assert [world.named[name].readings[0].closed for name in ("k:a", "k:b")] == [True, False]


def test_more_names_than_the_bound_stand_for_nothing_until_others_are_given_up() -> None:
    world = Opened(None, most=1)
    world.named |= {"k:a": View({"k:a": "1"}), "k:b": View({"k:b": "1"})}
    client = client_of(world)
    assert told(client.subscribe(ADDRESS_TYPE, "k:a", "k:b")) == [({"k:a": "1"}, ["k:b"])]
    client.ack_all()
    client.unsubscribe(ADDRESS_TYPE, "k:a")
    assert told(client.subscribe(ADDRESS_TYPE, "k:b")) == [({"k:b": "1"}, [])]


def test_a_client_that_comes_back_keeps_what_it_holds_until_it_is_known() -> None:
    world = Opened(View())
    world.named["k:a"] = View({"k:a": "1"})
    client = client_of(world)
    client.subscribe(ADDRESS_TYPE, "k:a")
    client.ack_all()
    again = Opened(View())
    again.named["k:a"] = View(state="unknown")
    assert reconnect(client, again) == []
    again.change("k:a", "1")
    assert client.poll() == []
    again.change("k:a", "2")
    assert told(client.poll()) == [({"k:a": "2"}, [])]


def test_a_client_that_comes_back_is_told_of_what_has_gone_meanwhile() -> None:
    world = Opened(View())
    world.named["k:a"] = View({"k:a": "1"})
    client = client_of(world)
    client.subscribe(ADDRESS_TYPE, "k:a")
    client.ack_all()
    again = Opened(View())
    again.named["k:a"] = View(state="unknown")
    assert reconnect(client, again) == []
    again.change("k:a")
    assert told(client.poll()) == [({}, ["k:a"])]


def test_the_end_of_a_stream_ends_all_readings() -> None:
    world = Opened(View())
    world.named["k:a"] = View({"k:a": "1"})
    client = client_of(world)
    client.subscribe(ADDRESS_TYPE, "k:a")
    client.session.close()
    assert world.hosts is not None
    assert [world.hosts.readings[0].closed, world.named["k:a"].readings[0].closed] == [True, True]
