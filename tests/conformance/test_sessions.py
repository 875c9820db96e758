"""The xDS protocol, rule by rule, over both session machines.

Rules carry the titles of the sections of the protocol's description ("xDS REST and gRPC protocol") and are numbered in
its order. A rule that holds for one variant only says so; where the variants differ in form, the client of the tests
kit hides it.
"""

from __future__ import annotations

import pytest

from tests.unit.xds.session.model import Client, DeltaClient, SotwClient, View, World, version
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.session.actions import Accepted, Rejected
from xds.session.requests import DeltaRequest, SotwRequest

OTHER_TYPE = "type.googleapis.com/istio.workload.Workload"

both = pytest.mark.parametrize("variant", [DeltaClient, SotwClient], ids=["delta", "sotw"])


def client_of(variant: type[Client], view: View, **others: View) -> Client:
    return variant(World({OTHER_TYPE: view, **{f"type.googleapis.com/{name}": view for name, view in others.items()}}))


def texts(client: Client, type_url: str = OTHER_TYPE) -> dict[str, str]:
    return client.of(type_url).texts


class Test1BasicProtocol:
    """Basic Protocol Overview."""

    @both
    def test_1_1_a_request_is_answered_with_what_it_asks_for(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "1", "b": "2"}))
        (response,) = client.subscribe(OTHER_TYPE)
        assert response.texts == {"a": "1", "b": "2"}

    @both
    def test_1_2_every_response_has_a_nonce_of_its_own(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        client.ack()
        view.change(a="2")
        client.poll()
        nonces = [response.nonce for response in client.all]
        assert len(set(nonces)) == len(nonces) == 2
        assert all(nonces)

    @both
    def test_1_3_a_nonce_does_not_survive_its_stream(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        (old,) = client.subscribe(OTHER_TYPE)
        client.connect()
        client.subscribe(OTHER_TYPE)
        client.send(client.request(OTHER_TYPE, nonce=old.nonce))
        client.poll()
        assert client.heard == []

    @both
    def test_1_4_types_of_one_stream_do_not_wait_for_each_others_answers(self, variant: type[Client]) -> None:
        one, two = View({"a": "1"}), View({"b": "1"})
        client = client_of(variant, one, two=two)
        client.subscribe(OTHER_TYPE)
        (response,) = client.subscribe("type.googleapis.com/two")
        assert response.texts == {"b": "1"}

    @both
    def test_1_5_a_type_the_proxy_is_not_served_gets_one_empty_answer(self, variant: type[Client]) -> None:
        client = variant(World({}))
        (response,) = client.subscribe(OTHER_TYPE)
        assert (response.texts, response.removed) == ({}, [])
        assert client.ack() == []
        assert client.poll() == []

    @both
    def test_1_6_nothing_is_answered_before_the_content_is_known(self, variant: type[Client]) -> None:
        view = View({"a": "1"}, state="unknown")
        client = client_of(variant, view)
        assert client.subscribe(OTHER_TYPE) == []
        view.state = "partial"
        (response,) = client.poll()
        assert response.texts == {"a": "1"}


class Test2Answers:
    """ACK/NACK and resource type instance version."""

    @both
    def test_2_1_an_ack_is_not_answered(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "1"}))
        client.subscribe(OTHER_TYPE)
        assert client.ack() == []

    @both
    def test_2_2_an_accepted_response_is_reported_with_the_revision_it_completes(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        (first,) = client.subscribe(OTHER_TYPE)
        client.ack()
        view.change(a="2")
        (second,) = client.poll()
        client.ack()
        assert client.heard == [Accepted(OTHER_TYPE, first.nonce, 1), Accepted(OTHER_TYPE, second.nonce, 2)]
        assert client.session.acknowledged == {OTHER_TYPE: 2}

    @both
    def test_2_3_a_nack_is_known_by_its_error_and_is_not_answered_with_the_same(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        client.ack()
        view.change(a="bad")
        client.poll()
        assert client.nack("a: bad text", bad=["a"]) == []
        assert client.poll() == []
        assert client.heard[-1] == Rejected(OTHER_TYPE, "a", version("a", "bad"), "bad text", client.all[-1].nonce)
        assert texts(client) == {"a": "1"}

    @both
    def test_2_4_an_error_with_an_empty_message_is_a_nack_as_well(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        client.nack("")
        assert client.session.rejected[OTHER_TYPE, "a"].message == ""

    @both
    def test_2_5_after_a_nack_an_update_may_succeed_at_a_new_version(self, variant: type[Client]) -> None:
        view = View({"a": "bad"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        client.nack("a: bad text", bad=["a"])
        client.ack_all()
        view.change(a="good")
        (response,) = client.poll()
        assert response.texts == {"a": "good"}
        client.ack()
        assert client.session.rejected == {}

    @both
    def test_2_6_after_a_rejected_first_answer_one_follows_that_can_be_accepted(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "bad"}))
        client.subscribe(OTHER_TYPE)
        (amends,) = client.nack("a: bad text", bad=["a"])
        assert amends.texts == {}
        assert client.ack() == []

    @both
    def test_2_7_an_empty_response_that_is_rejected_is_not_sent_for_ever(self, variant: type[Client]) -> None:
        client = client_of(variant, View())
        client.subscribe(OTHER_TYPE)
        assert client.nack("I do not like it") == []
        assert client.poll() == []

    @both
    def test_2_8_the_good_resources_of_a_rejected_response_are_held_in_the_end(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "1", "b": "bad", "c": "3"}))
        client.subscribe(OTHER_TYPE)
        client.nack("b: bad text", bad=["b"])
        client.ack_all()
        assert texts(client) == {"a": "1", "c": "3"}
        assert client.session.rejected.keys() == {(OTHER_TYPE, "b")}

    @both
    def test_2_9_without_a_name_in_the_error_the_culprit_is_found_and_the_others_get_through(
        self, variant: type[Client]
    ) -> None:
        names = [f"r{number}" for number in range(16)]
        client = client_of(variant, View({name: "bad" if name == "r11" else "good" for name in names}))
        client.subscribe(OTHER_TYPE)
        while client.inbox:
            (response,) = client.inbox
            if "bad" in response.texts.values():
                client.nack("some resource is bad")
            else:
                client.ack()
        assert texts(client).keys() == set(names) - {"r11"}
        assert client.session.rejected.keys() == {(OTHER_TYPE, "r11")}
        assert len(client.all) <= 10

    @both
    def test_2_10_a_rejection_on_one_stream_says_nothing_about_another(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        picky, other = client_of(variant, view), client_of(variant, view)
        picky.subscribe(OTHER_TYPE)
        picky.nack("a: bad text", bad=["a"])
        (response,) = other.subscribe(OTHER_TYPE)
        assert response.texts == {"a": "1"}


class Test3Updates:
    """When to send an update."""

    @both
    def test_3_1_only_a_change_is_sent(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        client.ack()
        assert client.poll() == []
        view.change(a="1")
        assert client.poll() == []

    @both
    def test_3_2_one_response_is_under_way_and_the_newest_content_replaces_what_waits(
        self, variant: type[Client]
    ) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        (first,) = client.subscribe(OTHER_TYPE)
        for text in ("2", "3", "4"):
            view.change(a=text)
            assert client.poll() == []
        (second,) = client.ack(first)
        assert second.texts == {"a": "4"}
        assert client.ack() == []

    @both
    def test_3_3_content_is_not_taken_while_a_response_is_under_way(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        takes = view.readings[0].takes
        view.change(a="2")
        client.poll()
        assert view.readings[0].takes == takes

    @both
    def test_3_4_causes_travel_with_the_response_they_led_to(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        view.change({"a": "2"}, cause="first")
        view.change({"a": "3"}, cause="second")
        (response,) = client.ack()
        assert response.action.causes == ("first", "second")
        view.change({"a": "4"}, cause="third")
        (response,) = client.ack()
        assert response.action.causes == ("third",)

    @both
    def test_3_5_a_stale_nonce_is_no_acknowledgement(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        (first,) = client.subscribe(OTHER_TYPE)
        client.ack()
        view.change(a="2")
        client.poll()
        client.send(client.request(OTHER_TYPE, nonce=first.nonce, error="too late"))
        view.change(a="3")
        assert client.poll() == []
        assert client.session.rejected == {}

    @both
    def test_3_6_an_unknown_nonce_is_no_acknowledgement(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        client.send(client.request(OTHER_TYPE, nonce="made up"))
        view.change(a="2")
        assert client.poll() == []
        assert client.heard == []


class Test4Subscriptions:
    """How the client specifies what resources to return."""

    @both
    def test_4_1_a_client_that_names_nothing_is_given_everything(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "1"}))
        (response,) = client.subscribe(OTHER_TYPE)
        assert response.texts == {"a": "1"}

    @both
    def test_4_2_a_star_asks_for_everything(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "1"}))
        (response,) = client.subscribe(OTHER_TYPE, "*")
        assert response.texts == {"a": "1"}

    @both
    def test_4_3_with_nothing_there_the_first_answer_is_empty(self, variant: type[Client]) -> None:
        client = client_of(variant, View())
        (response,) = client.subscribe(OTHER_TYPE)
        assert (response.texts, response.removed) == ({}, [])

    @both
    def test_4_4_named_resources_are_sent_and_no_others(self, variant: type[Client]) -> None:
        view = View({"a": "1", "b": "2"})
        client = client_of(variant, view)
        (response,) = client.subscribe(OTHER_TYPE, "a")
        assert response.texts == {"a": "1"}
        client.ack()
        view.change(b="3")
        assert client.poll() == []

    @both
    def test_4_5_newly_named_resources_are_sent_even_if_they_were_sent_before(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "1", "b": "2"}))
        client.subscribe(OTHER_TYPE, "a", "b")
        client.ack()
        client.unsubscribe(OTHER_TYPE, "b")
        (response,) = client.subscribe(OTHER_TYPE, "b")
        assert response.texts == {"b": "2"}

    def test_4_6_sotw_an_empty_list_is_everything_only_until_something_was_named(self) -> None:
        client = SotwClient(World({OTHER_TYPE: View({"a": "1", "b": "2"})}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        client.named[OTHER_TYPE] = ["*", "a"]
        client.subscribe(OTHER_TYPE)
        client.ack_all()
        client.unsubscribe(OTHER_TYPE, "*")
        client.ack_all()
        client.world.views[OTHER_TYPE].change(b="3")
        assert client.poll() == []
        client.unsubscribe(OTHER_TYPE, "a")
        client.world.views[OTHER_TYPE].change(a="4", b="4")
        assert client.poll() == []

    def test_4_7_delta_a_wildcard_stays_beside_names_until_it_is_given_up(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = DeltaClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        (response,) = client.subscribe(OTHER_TYPE, "a")
        assert response.texts == {"a": "1"}
        client.ack()
        client.unsubscribe(OTHER_TYPE, "*")
        view.change(a="3", b="3")
        (response,) = client.poll()
        assert response.texts == {"a": "3"}
        client.ack()
        client.unsubscribe(OTHER_TYPE, "a")
        view.change(a="4", b="4")
        assert client.poll() == []

    def test_4_8_delta_a_star_subscribed_and_unsubscribed_at_once_is_a_subscription_to_nothing(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = DeltaClient(World({OTHER_TYPE: view}))
        client.send(DeltaRequest(OTHER_TYPE, ("*",), ("*",)))
        assert client.poll() == []
        (response,) = client.subscribe(OTHER_TYPE, "a")
        assert response.texts == {"a": "1"}


class Test5Grouping:
    """Grouping Resources into Responses; Deleting Resources; Knowing When a Requested Resource Does Not Exist."""

    def test_5_1_delta_only_what_changed_is_in_a_response(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = DeltaClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        view.change(b="3")
        (response,) = client.poll()
        assert response.texts == {"b": "3"}

    def test_5_2_sotw_under_a_wildcard_every_response_is_complete(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = SotwClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        view.change(b="3")
        (response,) = client.poll()
        assert response.texts == {"a": "1", "b": "3"}

    def test_5_3_sotw_for_names_only_what_changed_is_in_a_response(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = SotwClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE, "a", "b")
        client.ack()
        view.change(b="3")
        (response,) = client.poll()
        assert response.texts == {"b": "3"}

    @both
    def test_5_4_a_deleted_resource_is_removed_from_the_client(self, variant: type[Client]) -> None:
        view = View({"a": "1", "b": "2"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        client.ack()
        view.change(a=None)
        (response,) = client.poll()
        assert response.removed == ["a"]
        client.ack()
        assert texts(client) == {"b": "2"}

    @both
    def test_5_5_a_rejected_resource_that_is_deleted_is_removed_from_the_client(self, variant: type[Client]) -> None:
        view = View({"a": "1"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE)
        client.ack()
        view.change(a="bad")
        client.poll()
        client.nack("a: bad text", bad=["a"])
        view.change(a=None)
        client.poll()
        client.ack_all()
        assert texts(client) == {}
        assert client.session.rejected == {}

    def test_5_6_delta_a_name_that_does_not_exist_is_said_to_be_removed_at_once(self) -> None:
        client = DeltaClient(World({OTHER_TYPE: View({"a": "1"}, state="partial")}))
        (response,) = client.subscribe(OTHER_TYPE, "a", "nobody")
        assert (response.texts, response.removed) == ({"a": "1"}, ["nobody"])

    @both
    def test_5_7_a_name_that_does_not_exist_is_remembered_and_sent_when_it_does(self, variant: type[Client]) -> None:
        view = View()
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE, "a")
        client.ack()
        view.change(a="1")
        (response,) = client.poll()
        assert response.texts == {"a": "1"}

    def test_5_8_delta_a_name_that_exists_but_has_no_resource_yet_is_answered_when_it_has(self) -> None:
        view = View()
        view.latent.add("a")
        client = DeltaClient(World({OTHER_TYPE: view}))
        assert client.subscribe(OTHER_TYPE, "a") == []
        view.change(a="1")
        (response,) = client.poll()
        assert response.texts == {"a": "1"}

    @both
    @pytest.mark.parametrize("present", [["a"], []])
    def test_5_9_a_subscription_to_names_of_which_some_do_not_exist_is_answered_at_once(
        self, variant: type[Client], present: list[str]
    ) -> None:
        client = client_of(variant, View({"a": "1"}))
        (response,) = client.subscribe(OTHER_TYPE, *present, "nobody")
        assert response.texts == dict.fromkeys(present, "1")
        client.ack()
        assert client.poll() == []


class Test6Unsubscribing:
    """Unsubscribing From Resources."""

    @both
    def test_6_1_unsubscribing_is_not_answered_and_ends_updates(self, variant: type[Client]) -> None:
        view = View({"a": "1", "b": "2"})
        client = client_of(variant, view)
        client.subscribe(OTHER_TYPE, "a", "b")
        client.ack()
        assert client.unsubscribe(OTHER_TYPE, "a") == []
        view.change(a="3")
        assert client.poll() == []

    def test_6_2_delta_under_a_wildcard_a_name_given_up_is_stated_again_if_the_wildcard_covers_it(self) -> None:
        client = DeltaClient(World({OTHER_TYPE: View({"a": "1", "b": "2"})}))
        client.subscribe(OTHER_TYPE, "*", "a")
        client.ack()
        (response,) = client.unsubscribe(OTHER_TYPE, "a")
        assert (response.texts, response.removed) == ({"a": "1"}, [])

    def test_6_3_delta_under_a_wildcard_a_name_given_up_is_said_to_be_removed_if_it_is_not_covered(self) -> None:
        client = DeltaClient(World({OTHER_TYPE: View({"b": "2"})}))
        client.subscribe(OTHER_TYPE, "*", "a")
        client.ack()
        (response,) = client.unsubscribe(OTHER_TYPE, "a")
        assert (response.texts, response.removed) == ({}, ["a"])

    def test_6_4_delta_giving_up_a_name_that_was_never_asked_for_is_ignored(self) -> None:
        client = DeltaClient(World({OTHER_TYPE: View({"a": "1"})}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        assert client.unsubscribe(OTHER_TYPE, "a", "nobody") == []

    @both
    def test_6_5_giving_up_a_rejected_name_ends_the_rejection(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "bad", "b": "2"}))
        client.subscribe(OTHER_TYPE, "a", "b")
        client.nack("a: bad text", bad=["a"])
        client.ack_all()
        client.unsubscribe(OTHER_TYPE, "a")
        assert client.session.rejected == {}

    def test_6_6_delta_a_rejected_version_that_is_asked_for_anew_is_as_good_as_absent(self) -> None:
        view = View({"a": "bad"})
        client = DeltaClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE, "a")
        (response,) = client.nack("a: bad text", bad=["a"])
        assert (response.texts, response.removed) == ({}, ["a"])  # it waits for an answer that it can use
        client.ack()
        client.unsubscribe(OTHER_TYPE, "a")
        (response,) = client.subscribe(OTHER_TYPE, "a")
        assert (response.texts, response.removed) == ({}, ["a"])


class Test7ResourceUpdates:
    """Resource updates: interest may change with any request."""

    def test_7_1_delta_a_subscription_in_a_request_with_a_stale_nonce_counts(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = DeltaClient(World({OTHER_TYPE: view}))
        (first,) = client.subscribe(OTHER_TYPE, "a")
        client.ack()
        (response,) = client.subscribe(OTHER_TYPE, "b", nonce="stale")
        assert response.texts == {"b": "2"}
        client.unsubscribe(OTHER_TYPE, "a", nonce=first.nonce)
        client.ack()
        view.change(a="3")
        assert client.poll() == []

    def test_7_2_sotw_names_in_a_request_with_a_stale_nonce_count(self) -> None:
        client = SotwClient(World({OTHER_TYPE: View({"a": "1", "b": "2"})}))
        client.subscribe(OTHER_TYPE, "a")
        client.ack()
        client.send(SotwRequest(OTHER_TYPE, ("a", "b"), response_nonce="stale"))
        (response,) = client.poll()
        assert response.texts == {"b": "2"}

    @both
    def test_7_3_an_acknowledgement_may_change_the_subscription(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "1", "b": "2"}))
        (first,) = client.subscribe(OTHER_TYPE, "a")
        client.named[OTHER_TYPE] = ["a", "b"]
        request: DeltaRequest | SotwRequest
        if variant is DeltaClient:
            request = DeltaRequest(OTHER_TYPE, ("b",), response_nonce=first.nonce)
        else:
            request = SotwRequest(OTHER_TYPE, ("a", "b"), first.version, first.nonce)
        client.inbox.clear()
        client.send(request)
        (response,) = client.poll()
        assert response.texts == {"b": "2"}
        assert client.heard == [Accepted(OTHER_TYPE, first.nonce, 1)]

    @both
    def test_7_4_names_asked_for_while_a_response_is_under_way_are_answered_after_it(
        self, variant: type[Client]
    ) -> None:
        client = client_of(variant, View({"a": "1", "b": "2"}))
        client.subscribe(OTHER_TYPE, "a")
        assert client.subscribe(OTHER_TYPE, "b") == []
        (response,) = client.ack()
        assert response.texts == {"b": "2"}


class Test8Order:
    """Eventual consistency considerations: make before break."""

    @both
    def test_8_1_the_first_addresses_wait_for_the_first_policies(self, variant: type[Client]) -> None:
        client = variant(World({ADDRESS_TYPE: View({"a": "p"}), AUTHORIZATION_TYPE: View({"p": "1"})}))
        assert client.subscribe(ADDRESS_TYPE) == []
        sent = client.subscribe(AUTHORIZATION_TYPE)
        assert [response.type_url for response in sent] == [AUTHORIZATION_TYPE, ADDRESS_TYPE]

    @both
    def test_8_2_but_a_tenth_of_a_second_at_most_if_nobody_asks_for_policies(self, variant: type[Client]) -> None:
        client = variant(World({ADDRESS_TYPE: View({"a": "p"}), AUTHORIZATION_TYPE: View({"p": "1"})}))
        client.subscribe(ADDRESS_TYPE)
        assert client.session.next_moment == pytest.approx(0.1)
        assert client.poll(advance=0.09) == []
        (response,) = client.poll(advance=0.02)
        assert response.type_url == ADDRESS_TYPE
        assert client.session.next_moment is None

    @both
    def test_8_3_without_end_if_policies_were_asked_for_and_are_not_known(self, variant: type[Client]) -> None:
        policies = View({"p": "1"}, state="unknown")
        client = variant(World({ADDRESS_TYPE: View({"a": "p"}), AUTHORIZATION_TYPE: policies}))
        client.subscribe(ADDRESS_TYPE)
        client.subscribe(AUTHORIZATION_TYPE)
        assert client.poll(advance=60.0) == []
        policies.state = "settled"
        assert len(client.poll()) == 2

    @both
    def test_8_4_an_update_goes_out_after_those_of_the_types_it_may_refer_to(self, variant: type[Client]) -> None:
        addresses, policies = View({"a": ""}), View()
        client = variant(World({ADDRESS_TYPE: addresses, AUTHORIZATION_TYPE: policies}))
        client.subscribe(AUTHORIZATION_TYPE)
        client.subscribe(ADDRESS_TYPE)
        client.ack_all()
        policies.change(p="1")
        client.poll()
        policies.change(q="1")
        addresses.change(a="q")
        assert client.poll() == [], "policy q waits for the answer to p, and the address for q"
        sent = client.ack()
        assert [response.type_url for response in sent] == [AUTHORIZATION_TYPE, ADDRESS_TYPE]

    @both
    def test_8_5_a_removal_waits_until_what_referred_to_it_is_answered(self, variant: type[Client]) -> None:
        addresses, policies = View({"a": "p"}), View({"p": "1"})
        client = variant(World({ADDRESS_TYPE: addresses, AUTHORIZATION_TYPE: policies}))
        client.subscribe(AUTHORIZATION_TYPE)
        client.subscribe(ADDRESS_TYPE)
        client.ack_all()
        policies.change(p=None)
        addresses.change(a="")
        (update,) = client.poll()
        assert update.type_url == ADDRESS_TYPE
        (removal,) = client.ack()
        assert (removal.type_url, removal.removed) == (AUTHORIZATION_TYPE, ["p"])

    @both
    def test_8_6_a_rejected_dependent_does_not_hold_a_removal_up_for_ever(self, variant: type[Client]) -> None:
        addresses, policies = View({"a": "p"}), View({"p": "1"})
        client = variant(World({ADDRESS_TYPE: addresses, AUTHORIZATION_TYPE: policies}))
        client.subscribe(AUTHORIZATION_TYPE)
        client.subscribe(ADDRESS_TYPE)
        client.ack_all()
        policies.change(p=None)
        addresses.change(a="bad")
        client.poll()
        (removal,) = client.nack("a: bad", bad=["a"])
        assert removal.removed == ["p"]

    @both
    def test_8_7_a_removal_goes_at_once_when_nothing_else_is_changing(self, variant: type[Client]) -> None:
        policies = View({"p": "1"})
        client = variant(World({ADDRESS_TYPE: View(), AUTHORIZATION_TYPE: policies}))
        client.subscribe(AUTHORIZATION_TYPE)
        client.subscribe(ADDRESS_TYPE)
        client.ack_all()
        policies.change(p=None)
        (removal,) = client.poll()
        assert removal.removed == ["p"]

    @both
    def test_8_8_a_held_removal_is_forgotten_if_the_resource_returns(self, variant: type[Client]) -> None:
        addresses, policies = View({"a": "p"}), View({"p": "1"})
        client = variant(World({ADDRESS_TYPE: addresses, AUTHORIZATION_TYPE: policies}))
        client.subscribe(AUTHORIZATION_TYPE)
        client.subscribe(ADDRESS_TYPE)
        client.ack_all()
        policies.change(p=None)
        addresses.change(a="")
        client.poll()
        policies.change(p="2")
        client.ack_all()
        client.poll()
        client.ack_all()
        assert texts(client, AUTHORIZATION_TYPE) == {"p": "2"}
        assert all(response.removed == [] for response in client.all)


class Test9Reconnecting:
    """Incremental xDS: reconnection; and what a version means across streams."""

    @both
    def test_9_1_a_client_that_holds_the_present_state_is_sent_no_resource(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "1", "b": "2"}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        client.connect()
        assert all(not response.texts for response in client.subscribe(OTHER_TYPE))

    def test_9_2_delta_a_client_that_holds_more_and_older_is_sent_the_difference(self) -> None:
        view = View({"a": "1", "b": "2", "c": "3"})
        client = DeltaClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        client.connect()
        view.change(b=None, c="4", d="5")
        (response,) = client.subscribe(OTHER_TYPE)
        assert (response.texts, response.removed) == ({"c": "4", "d": "5"}, ["b"])

    def test_9_3_sotw_a_client_with_another_version_is_sent_everything(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = SotwClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        client.connect()
        view.change(a=None)
        (response,) = client.subscribe(OTHER_TYPE)
        assert (response.texts, response.removed) == ({"b": "2"}, ["a"])

    def test_9_4_delta_while_content_is_partial_the_client_keeps_what_it_claims_to_hold(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = DeltaClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        client.connect()
        view.change(a=None, b="3", c="4")
        view.state = "partial"
        (response,) = client.subscribe(OTHER_TYPE)
        assert (response.texts, response.removed) == ({"c": "4"}, [])
        client.ack()
        view.change(b="5")
        assert client.poll() == []
        view.state = "settled"
        (response,) = client.poll()
        assert (response.texts, response.removed) == ({"b": "5"}, ["a"])

    def test_9_5_delta_a_deletion_that_was_seen_goes_out_even_while_content_is_partial(self) -> None:
        view = View({"a": "1", "b": "2"}, state="partial")
        client = DeltaClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        client.connect()
        client.subscribe(OTHER_TYPE)
        client.ack()
        view.change(b=None)
        (response,) = client.poll()
        assert response.removed == ["b"]

    def test_9_6_sotw_while_content_is_partial_a_client_that_holds_a_version_is_not_answered(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = SotwClient(World({OTHER_TYPE: view}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        client.connect()
        view.change(a=None)
        view.state = "partial"
        assert client.subscribe(OTHER_TYPE) == []
        view.state = "settled"
        (response,) = client.poll()
        assert response.removed == ["a"]

    def test_9_7_delta_held_names_are_subscriptions_where_there_is_no_wildcard(self) -> None:
        view = View({"a": "1", "b": "2"})
        client = DeltaClient(World({OTHER_TYPE: view}))
        client.send(DeltaRequest(OTHER_TYPE, ("*",), ("*",), {"a": version("a", "1"), "gone": "x", "asked": ""}))
        (response,) = client.poll()
        assert (response.texts, sorted(response.removed)) == ({}, ["asked", "gone"])
        client.ack()
        view.change(a="3", b="3")
        (response,) = client.poll()
        assert response.texts == {"a": "3"}

    def test_9_8_delta_a_claim_that_equals_content_rejected_elsewhere_is_left_alone(self) -> None:
        view = View({"a": "1"})
        picky, keeper = DeltaClient(World({OTHER_TYPE: view})), DeltaClient(World({OTHER_TYPE: view}))
        keeper.subscribe(OTHER_TYPE)
        keeper.ack()
        picky.subscribe(OTHER_TYPE)
        picky.nack("a: bad", bad=["a"])
        keeper.connect()
        (response,) = keeper.subscribe(OTHER_TYPE)
        assert (response.texts, response.removed) == ({}, [])

    @both
    def test_9_9_a_subscription_made_anew_on_the_same_stream_is_answered_in_full(self, variant: type[Client]) -> None:
        client = client_of(variant, View({"a": "1"}))
        client.subscribe(OTHER_TYPE, "*")
        client.ack()
        if variant is DeltaClient:
            client.send(DeltaRequest(OTHER_TYPE, ("*",)))
        else:
            client.send(SotwRequest(OTHER_TYPE, ("*",)))
        (response,) = client.poll()
        assert response.texts == {"a": "1"}

    def test_9_10_delta_a_request_that_says_nothing_changes_nothing(self) -> None:
        client = DeltaClient(World({OTHER_TYPE: View({"a": "1"})}))
        client.subscribe(OTHER_TYPE)
        client.ack()
        client.send(DeltaRequest(OTHER_TYPE))
        assert client.poll() == []

    def test_9_11_delta_names_the_server_believes_the_client_holds_are_sent_when_asked_for_again(self) -> None:
        client = DeltaClient(World({OTHER_TYPE: View({"a": "1"})}))
        client.subscribe(OTHER_TYPE, "a")
        client.ack()
        (response,) = client.subscribe(OTHER_TYPE, "a")
        assert response.texts == {"a": "1"}
