"""What holds for a session as a whole: limits, the rules between types, cost at rest, the end."""

from __future__ import annotations

import pytest

from tests.unit.xds.session.model import Client, DeltaClient, SotwClient, View, World
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.session.machine import MAX_TYPES
from xds.session.ordering import Order
from xds.session.requests import DeltaRequest, ProtocolViolation, SotwRequest

both = pytest.mark.parametrize("variant", [DeltaClient, SotwClient], ids=["delta", "sotw"])
CLUSTERS, LISTENERS, ROUTES = "type/clusters", "type/listeners", "type/routes"
ENVOY = Order(
    ranks={CLUSTERS: 0, LISTENERS: 1, ROUTES: 2},
    dependents={CLUSTERS: (LISTENERS, ROUTES)},
)


def request(variant: type[Client], type_url: str) -> DeltaRequest | SotwRequest:
    return DeltaRequest(type_url) if variant is DeltaClient else SotwRequest(type_url)


@both
def test_a_request_without_type_is_a_violation(variant: type[Client]) -> None:
    client = variant(World({}))
    with pytest.raises(ProtocolViolation, match="type_url"):
        client.send(request(variant, ""))


@both
def test_more_types_than_the_limit_are_a_violation(variant: type[Client]) -> None:
    client = variant(World({}))
    for number in range(MAX_TYPES):
        client.send(request(variant, f"type/{number}"))
    with pytest.raises(ProtocolViolation, match=str(MAX_TYPES)):
        client.send(request(variant, "type/more"))


@both
def test_types_without_rank_wait_for_nobody(variant: type[Client]) -> None:
    client = variant(World({"type/slow": View(state="unknown"), "type/other": View({"a": "1"})}), ENVOY)
    client.subscribe("type/slow")
    assert len(client.subscribe("type/other")) == 1


@both
def test_responses_go_out_by_rank_whatever_was_asked_for_first(variant: type[Client]) -> None:
    views = {type_url: View({"a": "1"}, state="unknown") for type_url in (ROUTES, LISTENERS, CLUSTERS)}
    client = variant(World(views), ENVOY)
    for type_url, view in views.items():
        client.subscribe(type_url)
        view.state = "settled"
    sent = client.poll()
    assert [response.type_url for response in sent] == [CLUSTERS, LISTENERS, ROUTES]


@both
def test_a_removal_waits_for_all_dependents(variant: type[Client]) -> None:
    views = {type_url: View({"a": "1"}) for type_url in (CLUSTERS, LISTENERS, ROUTES)}
    client = variant(World(views), ENVOY)
    for type_url in views:
        client.subscribe(type_url)
    client.ack_all()
    views[CLUSTERS].change(a=None)
    views[LISTENERS].change(a="2")
    views[ROUTES].change(a="2")
    listeners, routes = client.poll()
    assert client.ack(routes) == []
    (removal,) = client.ack(listeners)
    assert (removal.type_url, removal.removed) == (CLUSTERS, ["a"])


@both
def test_a_removal_does_not_wait_for_changes_that_came_later(variant: type[Client]) -> None:
    views = {type_url: View({"a": "1"}) for type_url in (CLUSTERS, LISTENERS)}
    client = variant(World(views), ENVOY)
    for type_url in views:
        client.subscribe(type_url)
    client.ack_all()
    client.poll(advance=1.0)
    views[CLUSTERS].change(a=None)
    views[LISTENERS].change(a="2")
    (update,) = client.poll()
    views[LISTENERS].change(a="3")
    sent = client.ack(update)
    assert [(response.type_url, response.removed) for response in sent] == [(CLUSTERS, ["a"]), (LISTENERS, [])]


@both
def test_a_change_that_turns_out_to_be_no_concern_releases_a_removal_in_the_same_poll(variant: type[Client]) -> None:
    views = {CLUSTERS: View({"a": "1"}), LISTENERS: View({"a": "1", "b": "1"})}
    client = variant(World(views), ENVOY)
    client.subscribe(CLUSTERS)
    client.subscribe(LISTENERS, "a")
    client.ack_all()
    client.poll(advance=1.0)
    views[CLUSTERS].change(a=None)
    views[LISTENERS].change(b="2")
    (removal,) = client.poll()
    assert removal.removed == ["a"]


@both
def test_a_held_removal_is_not_acknowledged_before_it_is_sent(variant: type[Client]) -> None:
    addresses, policies = View({"a": "p"}), View({"p": "1"})
    client = variant(World({ADDRESS_TYPE: addresses, AUTHORIZATION_TYPE: policies}))
    client.subscribe(AUTHORIZATION_TYPE)
    client.subscribe(ADDRESS_TYPE)
    client.ack_all()
    policies.change(p=None)
    addresses.change(a="")
    client.poll()
    assert client.session.acknowledged == {AUTHORIZATION_TYPE: 1, ADDRESS_TYPE: 1}
    client.ack_all()
    assert client.session.acknowledged == {AUTHORIZATION_TYPE: 2, ADDRESS_TYPE: 2}


def test_on_reconnection_a_removal_waits_a_moment_for_its_dependents_to_be_asked_for() -> None:
    addresses, policies = View({"a": "p"}), View({"p": "1"})
    client = DeltaClient(World({ADDRESS_TYPE: addresses, AUTHORIZATION_TYPE: policies}))
    client.subscribe(AUTHORIZATION_TYPE)
    client.subscribe(ADDRESS_TYPE)
    client.ack_all()
    client.connect()
    policies.change(p=None)
    addresses.change(a="")
    (answer,) = client.subscribe(AUTHORIZATION_TYPE)
    assert answer.removed == []
    client.ack()
    assert client.session.next_moment == pytest.approx(client.now + 0.1)
    (update,) = client.subscribe(ADDRESS_TYPE)
    assert update.texts == {"a": ""}
    (removal,) = client.ack()
    assert removal.removed == ["p"]


def test_on_reconnection_a_removal_waits_no_longer_if_they_are_not() -> None:
    policies = View({"p": "1"})
    client = DeltaClient(World({AUTHORIZATION_TYPE: policies}))
    client.subscribe(AUTHORIZATION_TYPE)
    client.ack()
    client.connect()
    policies.change(p=None)
    client.subscribe(AUTHORIZATION_TYPE)
    client.ack()
    (removal,) = client.poll(advance=0.11)
    assert removal.removed == ["p"]


def test_an_on_demand_client_that_asks_for_no_address_yet_holds_nothing_up() -> None:
    policies = View({"p": "1"})
    client = DeltaClient(World({ADDRESS_TYPE: View({"a": "p"}), AUTHORIZATION_TYPE: policies}))
    client.send(DeltaRequest(ADDRESS_TYPE, ("*",), ("*",)))
    client.subscribe(AUTHORIZATION_TYPE)
    client.ack()
    policies.change(p=None)
    (removal,) = client.poll()
    assert removal.removed == ["p"]


@both
def test_an_idle_poll_takes_nothing_and_wants_no_moment(variant: type[Client]) -> None:
    view = View({"a": "1"})
    client = variant(World({ADDRESS_TYPE: view, AUTHORIZATION_TYPE: View()}))
    client.subscribe(AUTHORIZATION_TYPE)
    client.subscribe(ADDRESS_TYPE)
    client.ack_all()
    client.poll(advance=1.0)
    takes = view.readings[0].takes
    for _ in range(3):
        assert client.poll() == []
    assert view.readings[0].takes == takes
    assert client.session.next_moment is None


@both
def test_changes_nobody_asked_for_are_taken_so_that_they_do_not_pile_up(variant: type[Client]) -> None:
    view = View({"a": "1", "b": "1"})
    client = variant(World({ADDRESS_TYPE: view}), Order())
    client.subscribe(ADDRESS_TYPE, "a")
    client.ack()
    client.unsubscribe(ADDRESS_TYPE, "a")
    view.change(b="2")
    client.poll()
    assert not view.readings[0].pending


@both
def test_the_end_of_a_session_ends_all_reading(variant: type[Client]) -> None:
    views = {ADDRESS_TYPE: View(), AUTHORIZATION_TYPE: View()}
    client = variant(World(views))
    client.subscribe(ADDRESS_TYPE)
    client.subscribe(AUTHORIZATION_TYPE)
    client.subscribe("type/unserved")
    client.session.close()
    assert all(view.readings[0].closed for view in views.values())
