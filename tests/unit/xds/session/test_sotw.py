"""What is particular to the state-of-the-world machine: versions, last good resources put back, complete sets."""

from __future__ import annotations

from tests.unit.xds.session.model import SotwClient, View, World, resource
from xds import protos
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.session.ordering import MAKE_BEFORE_BREAK, Order
from xds.session.requests import SotwRequest

TYPE = "type.googleapis.com/istio.workload.Workload"


def client_of(view: View) -> SotwClient:
    return SotwClient(World({TYPE: view}))


def test_the_version_follows_the_content_and_not_its_history() -> None:
    first = View({"a": "1", "b": "2"})
    second = View({"b": "0", "c": "3"})
    second.change(b="2", a="1", c=None)
    (one,), (other,) = client_of(first).subscribe(TYPE), client_of(second).subscribe(TYPE)
    assert one.version == other.version
    first.change(a="3")
    (changed,) = client_of(first).subscribe(TYPE)
    assert changed.version != one.version


def test_resources_come_in_the_order_of_their_names() -> None:
    (response,) = client_of(View({"c": "1", "a": "1", "b": "1"})).subscribe(TYPE)
    assert list(response.texts) == ["a", "b", "c"]


def test_a_rejected_resource_is_put_back_at_its_last_good_version() -> None:
    view = View({"a": "1", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(a="bad")
    client.poll()
    client.nack("a: no", bad=["a"])
    view.change(b="2")
    (response,) = client.poll()
    assert response.texts == {"a": "1", "b": "2"}


def test_a_rejected_resource_without_a_good_version_is_left_out() -> None:
    view = View({"a": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(b="bad")
    client.poll()
    client.nack("b: no", bad=["b"])
    view.change(a="2")
    (response,) = client.poll()
    assert response.texts == {"a": "2"}


def test_what_was_in_a_rejected_response_beside_the_culprit_is_offered_again() -> None:
    # An Envoy stops at the first endpoint assignment it cannot use: what came after it was not applied.
    view = View({"a": "1", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE, "a", "b")
    client.ack()
    view.change(a="bad", b="2")
    client.poll()
    (response,) = client.nack("a: no", bad=["a", "b"])
    assert response.texts == {"b": "2"}


def test_what_a_rejected_response_may_have_changed_is_told_again_though_content_is_back_where_it_was() -> None:
    view = View({"a": "1", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE, "a", "b")
    client.ack()
    view.change(a="2", b="bad")
    client.poll()
    view.change(a="1")
    (response,) = client.nack("b: no", bad=["b"])
    assert response.texts == {"a": "1"}


def test_a_last_good_version_told_again_does_not_end_a_rejection() -> None:
    view = View({"a": "bad", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.nack("a: no", bad=["a"])
    client.ack()
    view.change(b=None, c="bad")
    client.poll()
    view.change(b="bad")
    client.nack("c: no", bad=["c"])
    while client.inbox:
        (response,) = client.inbox
        bad = [name for name, text in response.texts.items() if text == "bad"]
        client.nack("; ".join(f"{name}: no" for name in bad), bad=bad) if bad else client.ack()
    assert {name for _, name in client.session.rejected} == {"a", "b", "c"}


def test_a_rejection_ends_with_the_content_it_was_about_though_nothing_has_to_be_sent() -> None:
    view = View({"a": "1", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(a="bad")
    client.poll()
    client.nack("a: bad", bad=["a"])
    client.ack_all()
    assert set(client.session.rejected) == {(TYPE, "a")}
    view.change(a="1")  # what the client holds
    client.poll()
    assert client.session.rejected == {}
    assert client.session.held(TYPE, view.content) == {"a", "b"}


def test_while_a_culprit_is_sought_no_other_resource_is_missing_from_a_complete_set() -> None:
    view = View({"a": "1", "b": "1", "c": "1", "d": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(a="bad", b="2", c="2", d="2")
    client.poll()
    while client.inbox:
        (response,) = client.inbox
        assert response.texts.keys() == {"a", "b", "c", "d"}
        if "bad" in response.texts.values():
            client.nack("something is bad")
        else:
            client.ack()
    assert client.of(TYPE).texts == {"a": "1", "b": "2", "c": "2", "d": "2"}


def test_a_resource_that_waits_to_be_removed_stays_in_the_set() -> None:
    addresses, policies = View({"x": "p"}), View({"p": "1", "q": "1"})
    client = SotwClient(World({ADDRESS_TYPE: addresses, AUTHORIZATION_TYPE: policies}))
    client.subscribe(AUTHORIZATION_TYPE)
    client.subscribe(ADDRESS_TYPE)
    client.ack_all()
    addresses.change(x="q")
    policies.change(p=None, q="2")
    policy_update, address_update = client.poll()
    assert policy_update.texts == {"p": "1", "q": "2"}
    client.ack(policy_update)
    (removal,) = client.ack(address_update)
    assert removal.texts == {"q": "2"}


def test_a_client_with_the_version_of_the_present_named_state_is_sent_nothing_until_a_change() -> None:
    view = View({"a": "1", "b": "2"})
    client = client_of(view)
    client.subscribe(TYPE, "a")
    client.ack()
    client.connect()
    assert client.subscribe(TYPE, "a") == []
    view.change(b="3")
    assert client.poll() == []
    view.change(a="3")
    (response,) = client.poll()
    assert response.texts == {"a": "3"}


def test_a_client_with_that_version_that_asks_for_more_is_answered() -> None:
    view = View({"a": "1", "b": "2"})
    client = client_of(view)
    client.subscribe(TYPE, "a")
    client.ack()
    client.connect()
    (response,) = client.subscribe(TYPE, "a", "b")
    assert response.texts == {"a": "1", "b": "2"}


def test_a_second_request_before_the_first_answer_is_no_new_subscription() -> None:
    client = client_of(View({"a": "1"}))
    (first,) = client.subscribe(TYPE, "a")
    client.send(SotwRequest(TYPE, ("a", "b")))
    assert client.poll() == []
    assert client.ack(first) == []


def test_a_response_under_way_proves_nothing_about_names_asked_for_since() -> None:
    client = client_of(View({"a": "1", "b": "2"}))
    (first,) = client.subscribe(TYPE, "a", "b")
    client.unsubscribe(TYPE, "b")
    client.subscribe(TYPE, "b")
    (response,) = client.ack(first)
    assert response.texts == {"b": "2"}


def test_a_named_resource_that_went_and_came_back_the_same_is_sent_again() -> None:
    view = View({"a": "1"})
    client = client_of(view)
    client.subscribe(TYPE, "a")
    client.ack()
    view.change(a=None)
    assert client.poll() == []
    view.change(a="1")
    (response,) = client.poll()
    assert response.texts == {"a": "1"}


def waiting_client(view: View) -> SotwClient:
    """One that waits for every name it asks for."""
    return SotwClient(World({TYPE: view}), order=Order(nothing={TYPE: lambda name: resource(name, "nothing")}))


def test_an_envoy_waits_for_the_endpoints_of_every_cluster_it_asks_about() -> None:
    none = MAKE_BEFORE_BREAK.nothing[ASSIGNMENT_TYPE]("outbound|80||gone")
    message = protos.envoy.config.endpoint.v3.ClusterLoadAssignment.FromString(bytes(none.body))
    assert (none.name, message.cluster_name, list(message.endpoints)) == ("outbound|80||gone", "outbound|80||gone", [])


def test_a_client_that_waits_for_a_name_that_does_not_exist_is_told_that_it_has_no_endpoints() -> None:
    view = View({"a": "1"})
    client = waiting_client(view)
    (response,) = client.subscribe(TYPE, "a", "gone")
    assert response.texts == {"a": "1", "gone": "nothing"}
    client.ack()
    assert client.poll() == []


def test_what_a_client_holds_of_a_name_is_not_emptied_when_that_goes() -> None:
    # The cluster that it belongs to goes first.
    view = View({"a": "1", "b": "1"})
    client = waiting_client(view)
    client.subscribe(TYPE, "a", "b")
    client.ack()
    view.change(a=None)
    assert client.poll() == []


def test_a_name_that_may_still_come_is_answered_once_it_is_certain_that_it_does_not() -> None:
    view = View({"a": "1"}, state="partial")
    client = waiting_client(view)
    (response,) = client.subscribe(TYPE, "a", "late", "gone")
    assert list(response.texts) == ["a"]
    client.ack()
    view.change(late="1")
    (response,) = client.poll()
    assert list(response.texts) == ["late"]
    client.ack()
    view.state = "settled"
    (response,) = client.poll()
    assert response.texts == {"gone": "nothing"}
