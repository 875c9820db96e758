"""A view of which a wildcard covers a few names, and the others come when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.xds.session.model import Answer, DeltaClient, Reading, View, World
from xds.messages.workload import ADDRESS_TYPE
from xds.session.on_demand import OnDemand
from xds.session.ordering import Order


class Opened(World):
    """A world whose one type is on demand, but for `standing`."""

    def open(self, type_url: str) -> OnDemand:  # type: ignore[override]
        view = self.views[type_url]
        reading = Reading(view)
        view.readings.append(reading)
        return OnDemand(reading, {"standing"}.__contains__)


def client_of(content: Mapping[str, str]) -> tuple[DeltaClient, View]:
    view = View(content)
    return DeltaClient(Opened({ADDRESS_TYPE: view}), Order()), view


def told(answers: list[Answer]) -> list[tuple[dict[str, str], list[str]]]:
    return [(answer.texts, answer.removed) for answer in answers]


ALL = {"standing": "1", "a": "1", "b": "1"}


def test_everything_is_what_stands() -> None:
    client, _ = client_of(ALL)
    assert told(client.subscribe(ADDRESS_TYPE)) == [({"standing": "1"}, [])]


def test_a_name_is_told_when_it_is_asked_for_and_when_it_changes_after_that() -> None:
    client, view = client_of(ALL)
    client.subscribe(ADDRESS_TYPE)
    client.ack_all()
    assert told(client.subscribe(ADDRESS_TYPE, "a")) == [({"a": "1"}, [])]
    client.ack_all()
    view.change(a="2", b="2")
    assert told(client.poll()) == [({"a": "2"}, [])]
    client.ack_all()
    view.change(a=None, b=None)
    assert told(client.poll()) == [({}, ["a"])]


def test_a_name_that_does_not_exist_yet_is_told_when_it_does() -> None:
    client, view = client_of({"standing": "1"})
    client.subscribe(ADDRESS_TYPE)
    client.ack_all()
    assert told(client.subscribe(ADDRESS_TYPE, "a")) == [({}, ["a"])]
    client.ack_all()
    view.change(a="1")
    assert told(client.poll()) == [({"a": "1"}, [])]


def test_a_change_of_what_nobody_asked_for_says_nothing() -> None:
    client, view = client_of(ALL)
    client.subscribe(ADDRESS_TYPE)
    client.ack_all()
    view.change(a="2", b=None, c="1")
    assert client.poll() == []


def test_a_client_that_comes_back_is_told_the_difference_to_what_it_holds() -> None:
    client, view = client_of(ALL)
    client.subscribe(ADDRESS_TYPE)
    client.ack_all()
    client.subscribe(ADDRESS_TYPE, "a", "b")
    client.ack_all()
    client.connect()
    view.change(a="2", b=None)
    assert told(client.subscribe(ADDRESS_TYPE, "*", "a", "b")) == [({"a": "2"}, ["b"])]


def test_causes_come_with_what_they_caused() -> None:
    view = View(ALL)
    reading = Reading(view)
    view.readings.append(reading)
    on_demand = OnDemand(reading, {"standing"}.__contains__)
    on_demand.take()
    view.change({"a": "2"}, cause="somebody else's")
    assert on_demand.pending
    assert (on_demand.take().causes, on_demand.pending) == ((), False)
    view.change({"standing": "2"}, cause="ours")
    assert on_demand.take().causes == ("ours",)


def test_the_end_is_the_views_too() -> None:
    reading = Reading(View(ALL, state="partial"))
    on_demand = OnDemand(reading, frozenset[str]().__contains__)
    assert (on_demand.state, on_demand.known("a"), on_demand.known("x"), on_demand.final("a")) == (
        "partial",
        True,
        False,
        False,
    )
    on_demand.close()
    assert reading.closed


def test_names_that_begin_as_is_said_stand_too_from_when_they_exist() -> None:
    view = View({"standing": "1", "copy|b": "1", "copy|a": "1", "other": "1"})
    reading = Reading(view)
    view.readings.append(reading)
    on_demand = OnDemand(reading, lambda name: name == "standing" or name.startswith("copy|"))
    assert [name for name, _ in on_demand.items()] == ["copy|a", "copy|b", "standing"]
    on_demand.take()
    view.change({"copy|c": "1", "other": "2"})
    assert list(on_demand.take().changes) == ["copy|c"]
