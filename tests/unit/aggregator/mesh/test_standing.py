"""What becomes of the endpoints of a cluster that cannot be read: nothing, unless an operator has set a limit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests as m
from tests.kit.world import World, changed_names

ORDERS = "shop/orders.shop.svc.cluster.local"
REACH = "net-b/SplitHorizonWorkload/istio-system/{}/{}/" + ORDERS
BETA, GAMMA = REACH.format("edge", "203.0.113.9"), REACH.format("other", "203.0.113.10")
POLICY: dict[str, Any] = {"stale_after": 60.0, "stale_ttl": 300.0}


def pod(number: int, address: str, **fields: Any) -> m.Manifest:
    return m.pod(f"shop/orders-{number}", address, labels={"app": "orders"}, **fields)


def shop(network: str, address: str) -> list[m.Manifest]:
    return [
        m.namespace("istio-system", network=network),
        m.namespace("shop"),
        m.service("shop/orders", address, selector={"app": "orders"}, is_global=True),
    ]


def world(pods: int = 3, **settings: Any) -> World:
    """Home alpha, and beta behind a gateway."""
    made = World(**settings)
    made.apply("alpha", *shop("net-a", "10.96.0.10"), pod(0, "10.1.0.1"))
    made.apply("beta", *shop("net-b", "10.97.0.10"))
    made.apply("beta", *(pod(number, f"10.2.0.{number + 1}") for number in range(pods)))
    made.apply("beta", m.east_west_gateway("istio-system/edge", "203.0.113.9", network="net-b"))
    made.step()
    return made


def shared(**settings: Any) -> World:
    """As `world`, and gamma in beta's network, with a gateway of its own."""
    made = world(**settings)
    made.apply("gamma", *shop("net-b", "10.98.0.10"), *(pod(number, f"10.3.0.{number + 1}") for number in range(2)))
    made.apply("gamma", m.east_west_gateway("istio-system/other", "203.0.113.10", network="net-b"))
    made.step()
    return made


def capacities(made: World) -> dict[str, int]:
    return {name: made.address(name)["capacity"] for name in made.addresses() if "/SplitHorizonWorkload/" in name}


def codes(made: World) -> list[tuple[str, str]]:
    return [(found.object[0], found.code) for found in made.findings()]


@pytest.mark.parametrize("state", ["stale", "denied"])
def test_without_a_limit_a_lost_cluster_is_served_unchanged_and_reported(state: str) -> None:
    made = world()
    held = made.resources
    made.lose("beta", state)
    assert (changed_names(made.step()), codes(made)) == (set(), [])
    assert (changed_names(made.wait(59.9)), codes(made)) == (set(), [])
    assert (changed_names(made.wait(0.1)), codes(made)) == (set(), [("beta", "ClusterUnconfirmed")])
    assert changed_names(made.wait(30 * 86400)) == set()
    assert made.resources == held
    made.cluster("beta")
    assert (changed_names(made.step()), codes(made)) == (set(), [])


@pytest.mark.parametrize("state", ["stale", "denied"])
def test_with_a_limit_a_lost_cluster_counts_half_and_is_withdrawn_at_last(state: str) -> None:
    made = world(**POLICY)
    made.lose("beta", state)
    made.step()
    assert (changed_names(made.wait(59.9)), codes(made)) == (set(), [])
    assert changed_names(made.wait(0.1)) == {BETA}
    assert (capacities(made), codes(made)) == ({BETA: 2}, [("beta", "ClusterReduced")])
    assert changed_names(made.wait(239.9)) == set()
    assert BETA in changed_names(made.wait(0.1))
    assert (capacities(made), codes(made)) == ({}, [("beta", "ClusterWithdrawn")])


def test_all_is_back_at_once_when_the_cluster_can_be_read_again() -> None:
    made = world(**POLICY)
    held = dict(made.resources)
    made.lose("beta")
    made.wait(1000)
    assert made.resources != held
    made.cluster("beta")
    made.step()
    assert (made.resources, codes(made)) == (held, [])


def test_a_cluster_that_is_lost_for_less_than_the_limit_changes_nothing() -> None:
    made = world(**POLICY)
    made.lose("beta")
    pushed = changed_names(made.step()) | changed_names(made.wait(59))
    made.cluster("beta")
    assert pushed | changed_names(made.step()) | changed_names(made.wait(3600)) == set()


def test_a_limit_below_that_of_the_report_withdraws_without_a_step_between() -> None:
    made = world(stale_after=60.0, stale_ttl=10.0)
    made.lose("beta")
    made.step()
    assert changed_names(made.wait(9.9)) == set()
    made.wait(0.1)
    assert (capacities(made), codes(made)) == ({}, [("beta", "ClusterWithdrawn")])


def test_a_cluster_that_was_never_read_has_no_limit() -> None:
    made = world(**POLICY)
    made.cluster("gamma", "connecting")
    made.wait(1000)
    assert codes(made) == []


def test_home_is_reported_and_never_withdrawn() -> None:
    made = world(**POLICY)
    made.lose("alpha")
    assert changed_names(made.step()) | changed_names(made.wait(1000)) == set()
    assert codes(made) == [("alpha", "ClusterUnconfirmed")]


def test_one_endpoint_still_counts_one_by_half() -> None:
    made = world(pods=1, **POLICY)
    made.lose("beta")
    made.wait(60)
    assert capacities(made) == {BETA: 1}


def test_of_a_shared_network_only_the_lost_cluster_counts_less() -> None:
    made = shared(pods=3, **POLICY)
    assert sum(capacities(made).values()) == 5
    made.lose("beta")
    made.wait(60)
    assert sum(capacities(made).values()) == 4


def test_half_is_rounded_up_for_each_cluster() -> None:
    made = shared(pods=3, **POLICY)
    made.lose("beta")
    made.lose("gamma")
    made.wait(60)
    assert sum(capacities(made).values()) == 2 + 1


def test_a_shared_network_is_reached_by_the_gateways_of_the_others() -> None:
    made = shared(**POLICY)
    made.lose("beta")
    made.wait(300)
    assert capacities(made) == {GAMMA: 2}
    assert made.address("NetworkGateway/net-b/203.0.113.9/0") == {}


def test_the_only_gateway_of_a_shared_network_stays_when_its_cluster_goes() -> None:
    made = shared(**POLICY)
    made.delete("gamma", m.east_west_gateway("istio-system/other", "203.0.113.10", network="net-b"))
    made.lose("beta")
    made.wait(300)
    assert capacities(made) == {BETA: 2}


def test_pods_of_a_lost_cluster_in_homes_network_are_withdrawn_one_by_one() -> None:
    made = world(**POLICY)
    made.apply("flat", *shop("net-a", "10.99.0.10"), pod(0, "10.1.9.1"))
    made.apply("flat", m.slice_("shop/orders-x", m.endpoint("192.0.2.7"), service="orders"))
    made.step()
    flat = "flat//Pod/shop/orders-0"
    assert flat in made.addresses()
    made.lose("flat")
    assert flat not in changed_names(made.wait(60))
    assert flat in changed_names(made.wait(240))
    assert flat not in made.addresses()
    made.cluster("flat")
    made.step()
    assert flat in made.addresses()


def test_endpoints_of_slices_go_with_their_cluster() -> None:
    made = world(pods=0, **POLICY)
    made.apply("alpha", m.service("shop/bank", "10.96.0.11", selector=None, is_global=True))
    made.apply(
        "beta",
        m.service("shop/bank", "10.97.0.11", selector=None, is_global=True),
        m.slice_("shop/bank-x", m.endpoint("10.2.0.8"), m.endpoint("10.2.0.9"), service="bank"),
    )
    made.step()
    assert list(capacities(made).values()) == [2]
    made.lose("beta")
    made.wait(60)
    assert list(capacities(made).values()) == [1]
    made.wait(240)
    assert capacities(made) == {}


def test_the_graph_wakes_by_itself_at_every_step() -> None:
    made = world(**POLICY)
    lost = made.now
    made.lose("beta")
    moments = []
    made.step()
    while (moment := made.graph.next_moment()) is not None and moment < lost + 10_000:
        moments.append(moment - lost)
        made.now = moment
        made.step()
    assert moments == [60.0, 300.0]


def test_a_pod_reads_nothing_more_for_it() -> None:
    made = world(pods=50, **POLICY)
    before = made.step()
    made.lose("beta")
    assert made.step().evaluated - before.evaluated < 10
