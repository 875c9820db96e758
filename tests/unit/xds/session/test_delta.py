"""What is particular to the incremental machine: chunks, suspects beside fresh content, and what is remembered."""

from __future__ import annotations

import pytest

from tests.unit.xds.session.model import DeltaClient, View, World, version
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.session import delta
from xds.session.delta import DeltaExchange
from xds.session.requests import MAX_NAMES, DeltaRequest, ProtocolViolation

TYPE = "type.googleapis.com/istio.workload.Workload"


def client_of(view: View) -> DeltaClient:
    return DeltaClient(World({TYPE: view}))


def many(count: int, text: str = "text") -> dict[str, str]:
    return {f"r{number:05}": text for number in range(count)}


# Chunks.


def test_a_client_that_holds_nothing_is_answered_in_one_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHUNK", 500)
    client = client_of(View(many(100)))
    (response,) = client.subscribe(TYPE)
    assert len(response.texts) == 100


def test_a_client_that_names_its_versions_is_told_the_difference_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHUNK", 500)
    view = View(many(20))
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change({**many(20, "new"), "r00000": None})
    client.connect()
    client.subscribe(TYPE)
    client.ack_all()
    assert len(client.all) == 1 + 5
    assert client.of(TYPE).texts == view.texts
    assert [response.removed for response in client.all[:-1]] == [[]] * (len(client.all) - 1)
    assert client.all[-1].removed == ["r00000"]


def test_chunks_end_with_the_first_complete_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHUNK", 500)
    view = View({"r00000": "old"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    client.connect()
    client.subscribe(TYPE)
    client.ack()
    view.change(many(20))
    (response,) = client.poll()
    assert len(response.texts) == 20


def test_an_answer_above_the_limit_is_split_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "WHOLE", 2000)
    view = View({"big": "x" * 5000, **many(30)})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack_all()
    assert client.of(TYPE).texts == view.texts
    sizes = [len(response.action.payload) for response in client.all if "big" not in response.texts]
    assert len(sizes) > 1
    assert max(sizes) < 2200


def test_of_an_answer_in_parts_those_are_held_that_were_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "WHOLE", 1000)
    view = View(many(20))
    client = client_of(view)
    client.subscribe(TYPE)
    while client.inbox:
        accepted = set(client.of(TYPE).texts)
        assert client.session.held(TYPE, view.content) == accepted
        client.ack(client.inbox[0])
    assert client.session.held(TYPE, view.content) == set(view.content) > accepted


def test_a_wildcard_that_ends_before_it_was_answered_leaves_the_named_ones_owed() -> None:
    view = View({"a": "one", "b": "one"})
    client = client_of(view)
    client.subscribe(TYPE, "a")
    (first,) = client.inbox
    client.subscribe(TYPE, "*")  # from now on the client may have forgotten what it holds
    client.of(TYPE).texts.clear()
    client.unsubscribe(TYPE, "*")
    client.inbox.remove(first)
    client.send(client.request(TYPE, nonce=first.nonce))
    client.poll()
    client.ack_all()
    assert client.of(TYPE).texts == {"a": "one"}


def test_a_name_alone_that_has_changed_is_not_held_any_more() -> None:
    view = View(many(3))
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(r00001="new")
    assert client.session.held(TYPE, view.content) == {"r00000", "r00002"}


def test_of_a_type_that_was_not_asked_for_nothing_is_held() -> None:
    view = View(many(3))
    assert client_of(view).session.held(TYPE, view.content) == set()
    assert client_of(view).session.refused(TYPE) == {}


def test_newer_content_replaces_what_waits_in_a_later_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "WHOLE", 1000)
    view = View(many(20))
    client = client_of(view)
    client.subscribe(TYPE)
    view.change(r00019="newest", r00018=None)
    client.ack_all()
    assert client.of(TYPE).texts == view.texts
    sent = [response.texts["r00019"] for response in client.all if "r00019" in response.texts]
    assert sent == ["newest"]


def test_the_revision_is_acknowledged_with_the_last_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "WHOLE", 1000)
    client = client_of(View(many(10)))
    client.subscribe(TYPE)
    while client.inbox:
        assert client.session.acknowledged[TYPE] == 0
        client.ack()
    assert client.session.acknowledged[TYPE] == 1


def test_references_wait_for_the_last_chunk_of_their_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "WHOLE", 1000)
    client = DeltaClient(World({AUTHORIZATION_TYPE: View(many(10)), ADDRESS_TYPE: View({"a": "r00009"})}))
    client.subscribe(ADDRESS_TYPE)
    client.subscribe(AUTHORIZATION_TYPE)
    client.ack_all()
    types = [response.type_url for response in client.all]
    assert types.index(ADDRESS_TYPE) == types.count(AUTHORIZATION_TYPE) > 1


# Rejections.


def test_fresh_content_goes_out_while_a_culprit_is_sought() -> None:
    view = View({"a": "1", "b": "bad", "c": "1", "d": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    (group,) = client.nack("something is bad")
    view.change(fresh="1")
    (fresh,) = client.nack("something is bad", group)
    assert fresh.texts == {"fresh": "1"}
    (group,) = client.ack()
    assert set(group.texts) == {"c", "d"}


def test_causes_travel_with_the_fresh_content_and_not_with_a_group_of_suspects() -> None:
    view = View({"a": "bad", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.nack("something is bad")
    view.change({"fresh": "1"}, cause="why")
    client.ack_all()
    assert [response.action.causes for response in client.all] == [(), (), ("why",), ()]


def test_a_suspect_that_changes_meanwhile_is_sent_once_in_its_new_version() -> None:
    view = View({"a": "1", "b": "bad", "c": "1", "d": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.nack("something is bad")
    view.change(d="2")
    while client.inbox:
        (response,) = client.inbox
        if "bad" in response.texts.values():
            client.nack("something is bad")
        else:
            client.ack()
    assert client.of(TYPE).texts == {"a": "1", "c": "1", "d": "2"}
    assert [response.texts["d"] for response in client.all if "d" in response.texts] == ["1", "2"]


def test_a_culprit_that_is_put_right_while_it_is_sought_is_never_reported() -> None:
    view = View({"a": "bad", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    view.change(a="good")
    client.nack("something is bad")
    client.ack_all()
    assert client.of(TYPE).texts == {"a": "good", "b": "1"}
    assert client.session.rejected == {}


def test_a_suspect_that_is_given_up_is_not_sent_any_more() -> None:
    client = client_of(View({"a": "bad", "b": "1", "c": "1"}))
    client.subscribe(TYPE, "a", "b", "c")
    client.unsubscribe(TYPE, "a")
    client.nack("something is bad")
    client.ack_all()
    assert client.of(TYPE).texts == {"b": "1", "c": "1"}
    assert all("a" not in response.texts for response in client.all[1:])


def test_a_rejected_version_stays_rejected_when_content_returns_to_it() -> None:
    view = View({"a": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(a="bad")
    client.poll()
    client.nack("a: no", bad=["a"])
    view.change(a="2")
    client.poll()
    client.ack()
    view.change(a="bad")
    assert client.poll() == []
    assert client.session.rejected[TYPE, "a"].version == version("a", "bad")
    assert client.of(TYPE).texts == {"a": "2"}


def test_removals_of_a_response_rejected_without_a_name_are_sent_again() -> None:
    view = View({"a": "1", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(a=None, b="bad")
    client.poll()
    (removal,) = client.nack("something is bad")
    assert removal.removed == ["a"]
    client.ack()
    assert client.of(TYPE).texts == {"b": "1"}


# What is remembered.


def names_remembered(exchange: DeltaExchange) -> int:
    kept = (exchange._asked, exchange._claims, exchange._waiting, exchange._absent, exchange._gone)
    return sum(len(names) for names in kept) + len(exchange.interest.names) + len(exchange.bisection.suspects)


@pytest.mark.parametrize("reconnect", [False, True])
def test_a_wildcard_that_is_up_to_date_keeps_no_name(reconnect: bool) -> None:
    view = View(many(500))
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    if reconnect:
        client.connect()
        client.subscribe(TYPE)
        client.ack()
    view.change({"r00001": None, "r00002": "new"})
    client.poll()
    client.ack()
    exchange = client.session._exchanges[TYPE]
    assert isinstance(exchange, DeltaExchange)
    assert names_remembered(exchange) == 0
    assert not exchange.waiting


def test_claims_are_let_go_once_the_content_is_settled() -> None:
    view = View(many(50), state="partial")
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    client.connect()
    client.subscribe(TYPE)
    client.ack()
    exchange = client.session._exchanges[TYPE]
    assert isinstance(exchange, DeltaExchange)
    assert names_remembered(exchange) == 50
    view.state = "settled"
    assert client.poll() == []
    assert names_remembered(exchange) == 0


def test_a_claim_of_a_name_that_has_no_resource_yet_is_compared_when_it_has() -> None:
    view = View()
    view.latent = {"same", "other"}
    client = client_of(view)
    client.send(DeltaRequest(TYPE, ("*",), ("*",), {"same": version("same", "1"), "other": version("other", "0")}))
    assert client.poll() == []
    view.change(same="1", other="1")
    (response,) = client.poll()
    assert (response.texts, response.removed) == ({"other": "1"}, [])


def test_a_claim_without_version_is_a_question() -> None:
    client = client_of(View({"a": "1"}, state="partial"))
    client.send(DeltaRequest(TYPE, ("*",), ("*",), {"a": "", "nobody": ""}))
    (response,) = client.poll()
    assert (response.texts, response.removed) == ({"a": "1"}, ["nobody"])


def test_names_asked_for_before_the_content_is_known_are_answered_when_it_is() -> None:
    view = View({"a": "1"}, state="unknown")
    client = client_of(view)
    assert client.subscribe(TYPE, "a", "nobody") == []
    assert client.subscribe(TYPE, "b") == []
    view.state = "partial"
    (response,) = client.poll()
    assert (response.texts, sorted(response.removed)) == ({"a": "1"}, ["b", "nobody"])


def test_held_versions_given_later_on_a_stream_are_compared_again() -> None:
    view = View({"a": "1", "b": "2"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    client.send(DeltaRequest(TYPE, initial_resource_versions={"a": version("a", "1"), "c": "x"}))
    (response,) = client.poll()
    assert (response.texts, response.removed) == ({"b": "2"}, ["c"])


def test_held_versions_count_on_a_first_request_that_carries_a_nonce_of_an_earlier_stream() -> None:
    client = client_of(View({"a": "1", "b": "2"}))
    versions = {"a": version("a", "1"), "c": "x"}
    client.send(DeltaRequest(TYPE, initial_resource_versions=versions, response_nonce="of another stream"))
    (response,) = client.poll()
    assert (response.texts, response.removed) == ({"b": "2"}, ["c"])


def test_a_type_the_proxy_is_not_served_leaves_what_it_claims_to_hold() -> None:
    client = DeltaClient(World({}))
    client.send(DeltaRequest(TYPE, initial_resource_versions={"a": "x"}))
    (response,) = client.poll()
    assert (response.texts, response.removed) == ({}, [])


def test_more_held_names_than_the_limit_are_a_violation() -> None:
    client = client_of(View())
    versions = {str(number): "x" for number in range(MAX_NAMES + 1)}
    with pytest.raises(ProtocolViolation, match=f"{MAX_NAMES} are the limit"):
        client.send(DeltaRequest(TYPE, initial_resource_versions=versions))


# What is certain in partial content.


def test_a_client_that_holds_another_version_of_what_is_final_is_told_at_once() -> None:
    view = View({"a": "1", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(a="2", b="2")
    view.state, view.final = "partial", {"a"}
    client.connect()
    client.subscribe(TYPE)
    client.ack_all()
    assert client.of(TYPE).texts == {"a": "2", "b": "1"}


def test_a_client_that_holds_what_is_finally_gone_is_told_at_once() -> None:
    view = View({"a": "1", "b": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(a=None, b=None)
    view.state, view.final = "partial", {"a"}
    client.connect()
    client.subscribe(TYPE)
    client.ack_all()
    assert client.of(TYPE).texts == {"b": "1"}


# Types of which a rejection refuses the whole response.


def test_what_a_rejection_does_not_name_is_sent_again_where_the_client_applied_none_of_it() -> None:
    view = View({"a": "1", "b": "1", "old": "1"})
    client = DeltaClient(World({SCOPED_ROUTE_TYPE: view}))
    client.subscribe(SCOPED_ROUTE_TYPE)
    client.ack()
    view.change({"a": "bad", "b": "2", "c": "1", "old": None})
    client.poll()
    client.nack("Error adding/updating scoped route(s) a: bad")
    client.ack_all()
    assert client.of(SCOPED_ROUTE_TYPE).texts == {"a": "1", "b": "2", "c": "1"}
    assert [answer.texts.get("a") for answer in client.all] == ["1", "bad", None]


# What must come again although it did not change.


JOINED = {"w": "joins s", "s": "admits healthy", "x": "1"}


def sent(client: DeltaClient) -> set[str]:
    return {name for response in client.all for name in response.texts}


def reconnected(client: DeltaClient) -> set[str]:
    """What is sent to the client upon a new stream."""
    client.connect()
    client.all.clear()
    client.subscribe(TYPE)
    client.ack_all()
    return sent(client)


def test_what_joins_a_resource_that_comes_back_is_sent_again() -> None:
    view = View(JOINED)
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(s=None)
    client.poll()
    client.ack()
    view.change(s="admits healthy")
    (response,) = client.poll()
    assert response.texts.keys() == {"s", "w"}


def test_a_client_that_does_not_name_what_came_back_is_sent_what_joins_it_as_well() -> None:
    view = View(JOINED)
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(s=None)
    client.poll()
    client.ack()
    client.session.close()
    view.change(s="admits healthy")
    assert reconnected(client) == {"s", "w"}


def test_a_client_that_names_what_it_joins_is_sent_nothing_again() -> None:
    client = client_of(View(JOINED))
    client.subscribe(TYPE)
    client.ack()
    assert reconnected(client) == set()


def test_a_client_that_holds_another_version_of_what_admits_all_is_sent_what_joins_it() -> None:
    view = View(JOINED)
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    client.session.close()
    view.change(s="admits all")
    assert reconnected(client) == {"s", "w"}


def test_a_client_that_holds_another_version_of_what_admits_no_more_is_sent_the_difference_alone() -> None:
    view = View(JOINED)
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    client.session.close()
    view.change(s="admits healthy; and more")
    assert reconnected(client) == {"s"}


def test_while_content_is_partial_nothing_that_the_client_names_with_what_it_joins_is_sent_again() -> None:
    view = View(JOINED)
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(s=None, w=None)  # the control plane starts anew, and reads what was there bit by bit
    view.state = "partial"
    assert reconnected(client) == set()
    for name in ("w", "s"):
        view.change({name: JOINED[name]})
        client.poll()
    view.state = "settled"
    client.poll()
    assert sent(client) == set()


@pytest.mark.parametrize(
    ("text", "final"), [("joins s", set()), ("joins s; changed", {"w"}), ("joins s; changed", set())]
)
def test_while_content_is_partial_what_joins_something_new_is_sent_unless_it_may_still_change(
    text: str, final: set[str]
) -> None:
    view = View({"w": "joins s", "x": "1"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(w=text, s="admits healthy")
    view.state, view.final = "partial", final
    client.session.close()
    assert reconnected(client) == ({"s"} if text != "joins s" and not final else {"s", "w"})
    view.state = "settled"
    client.poll()
    client.ack_all()
    assert sent(client) == {"s", "w"}


def test_where_an_answer_is_split_lower_ranks_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHUNK", 500)
    view = View({**many(20, "joins s"), "s": "admits healthy"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change({**many(20, "joins s; and more"), "s": "admits healthy; and more"})
    client.session.close()
    reconnected(client)
    assert len(client.all) > 2
    assert "s" in client.all[0].texts
    assert sent(client) == set(view.content)


def test_what_must_come_again_is_not_split_from_what_it_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHUNK", 500)
    view = View({**many(20, "joins s"), "s": "admits healthy"})
    client = client_of(view)
    client.subscribe(TYPE)
    client.ack()
    view.change(s="admits all")
    client.session.close()
    reconnected(client)
    assert [response.texts.keys() for response in client.all] == [view.content.keys()]
