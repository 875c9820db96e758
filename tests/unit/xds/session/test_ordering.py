"""The order that proxies are told things in: what an Envoy is to use is there before it is named, and longer."""

from __future__ import annotations

import pytest

from tests.unit.xds.session.model import Client, DeltaClient, SotwClient, View, World
from xds import protos
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.listener import LISTENER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import WORKLOAD_TYPE
from xds.session.ordering import MAKE_BEFORE_BREAK

MAKING = (CLUSTER_TYPE, ASSIGNMENT_TYPE, LISTENER_TYPE, SCOPED_ROUTE_TYPE)
EVERYTHING = (*MAKING, SECRET_TYPE)
both = pytest.mark.parametrize("variant", [DeltaClient, SotwClient], ids=["delta", "sotw"])


def up_to_date(variant: type[Client], *types: str) -> tuple[Client, dict[str, View]]:
    """An Envoy that holds one resource of each type."""
    views = {type_url: View({"a": "1"}) for type_url in types}
    client = variant(World(views))
    for type_url in types:
        client.subscribe(type_url)
    client.ack_all()
    client.poll(advance=1.0)
    client.all.clear()
    return client, views


@both
def test_what_an_envoy_is_to_use_is_sent_in_the_order_of_use(variant: type[Client]) -> None:
    client, views = up_to_date(variant, *reversed(MAKING))
    for view in views.values():
        view.change(a="2")
    assert [response.type_url for response in client.poll()] == list(MAKING)


@both
@pytest.mark.parametrize("first", range(1, len(MAKING) - 1))
def test_what_names_others_waits_until_those_are_all_sent(variant: type[Client], first: int) -> None:
    earlier, later = MAKING[first], MAKING[first + 1]
    client, views = up_to_date(variant, earlier, later)
    views[earlier].change(a="2")
    client.poll()
    views[earlier].change(a="3")
    views[later].change(a="2")
    assert client.poll() == []  # the newer one waits behind the one under way, and what names it behind that
    assert [response.type_url for response in client.ack()] == [earlier, later]


@both
def test_endpoints_do_not_wait_for_clusters_that_wait_for_an_answer(variant: type[Client]) -> None:
    # An Envoy answers for a cluster when it has its endpoints: were they to wait for the next one, nothing went on.
    client, views = up_to_date(variant, CLUSTER_TYPE, ASSIGNMENT_TYPE)
    views[CLUSTER_TYPE].change(a="2")
    client.poll()
    views[CLUSTER_TYPE].change(a="3")
    views[ASSIGNMENT_TYPE].change(a="2")
    assert [response.type_url for response in client.poll()] == [ASSIGNMENT_TYPE]
    client.ack_all()
    client.poll()
    assert [response.type_url for response in client.all][-1] == CLUSTER_TYPE


@both
def test_endpoints_wait_for_clusters_that_can_be_sent(variant: type[Client]) -> None:
    client, views = up_to_date(variant, CLUSTER_TYPE, ASSIGNMENT_TYPE)
    views[ASSIGNMENT_TYPE].change(a="2")
    views[CLUSTER_TYPE].change(a="2")
    assert [response.type_url for response in client.poll()] == [CLUSTER_TYPE, ASSIGNMENT_TYPE]


@both
@pytest.mark.parametrize("other", MAKING)
def test_secrets_wait_for_nothing(variant: type[Client], other: str) -> None:
    client, views = up_to_date(variant, other, SECRET_TYPE)
    views[other].change(a="2")
    client.poll()
    views[other].change(a="3")
    views[SECRET_TYPE].change(a="2")
    assert [response.type_url for response in client.poll()] == [SECRET_TYPE]


@both
@pytest.mark.parametrize(
    ("used", "user"),
    [
        (CLUSTER_TYPE, LISTENER_TYPE),
        (CLUSTER_TYPE, SCOPED_ROUTE_TYPE),
        (ASSIGNMENT_TYPE, CLUSTER_TYPE),
        (SECRET_TYPE, CLUSTER_TYPE),
        (SECRET_TYPE, LISTENER_TYPE),
    ],
)
def test_what_is_used_goes_when_its_user_has_let_go_of_it(variant: type[Client], used: str, user: str) -> None:
    client, views = up_to_date(variant, used, user)
    views[used].change(a=None)
    views[user].change(a="2")
    (update,) = client.poll()
    assert update.type_url == user
    (removal,) = client.ack(update)
    assert (removal.type_url, removal.removed) == (used, ["a"])


@both
def test_what_changes_together_ends_the_same_whatever_the_order(variant: type[Client]) -> None:
    client, views = up_to_date(variant, *EVERYTHING)
    for view in views.values():
        view.change(a=None, b="1")
    client.poll()
    client.ack_all()
    assert {type_url: client.of(type_url).texts for type_url in EVERYTHING} == {one: {"b": "1"} for one in EVERYTHING}


def test_every_type_in_the_order_is_that_of_a_message() -> None:
    order = MAKE_BEFORE_BREAK
    named = {*order.ranks, *order.first_after, *order.dependents, *sum(order.dependents.values(), ())}
    assert named >= {*EVERYTHING}
    for type_url in named:
        prefix, _, name = type_url.partition("/")
        assert prefix == "type.googleapis.com"
        assert protos.message_class(name)


@both
def test_a_policy_goes_when_whoever_reads_bare_workloads_has_let_go_of_it(variant: type[Client]) -> None:
    client, views = up_to_date(variant, AUTHORIZATION_TYPE, WORKLOAD_TYPE)
    views[AUTHORIZATION_TYPE].change(a=None)
    views[WORKLOAD_TYPE].change(a="2")
    (update,) = client.poll()
    assert update.type_url == WORKLOAD_TYPE
    (removal,) = client.ack(update)
    assert (removal.type_url, removal.removed) == (AUTHORIZATION_TYPE, ["a"])
