"""How home reaches endpoints of other networks: gateways, capacity, health, networks that change."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.mesh.split_horizon import shares
from tests.kit import manifests as m
from tests.kit.world import World, changed_names

ORDERS = "shop/orders.shop.svc.cluster.local"
GATEWAY = m.east_west_gateway("istio-system/edge", "203.0.113.9", network="net-b")
REACH = f"net-b/SplitHorizonWorkload/istio-system/edge/203.0.113.9/{ORDERS}"


def pods(count: int, ready: int, account: str = "orders") -> list[m.Manifest]:
    """Pods of orders, the first `ready` of them ready."""
    return [
        m.pod(f"shop/orders-{n}", f"10.2.0.{n + 1}", labels={"app": "orders"}, account=account, ready=n < ready)
        for n in range(count)
    ]


def service(address: str, **fields: Any) -> m.Manifest:
    """The global service orders."""
    return m.service("shop/orders", address, selector={"app": "orders"}, is_global=True, **fields)


def world(*beta: m.Manifest, gateway: m.Manifest | None = GATEWAY, network: str = "net-b", **fields: Any) -> World:
    """Home alpha on net-a, and beta with a gateway and orders."""
    made = World()
    made.apply(
        "alpha", m.namespace("istio-system", network="net-a"), m.namespace("shop"), service("10.96.0.10", **fields)
    )
    made.apply(
        "beta",
        m.namespace("istio-system", network=network),
        m.namespace("shop"),
        service("10.97.0.20", **fields),
        *beta,
    )
    if gateway is not None:
        made.apply("beta", gateway)
    made.step()
    return made


def test_a_network_is_one_workload_whose_capacity_counts_ready_endpoints() -> None:
    made = world(*pods(3, ready=2))
    assert made.address(REACH) == {
        "uid": REACH,
        "name": REACH,
        "namespace": "shop",
        "network": "net-b",
        "tunnel_protocol": "HBONE",
        "network_gateway": {"address": {"network": "net-b", "address": "203.0.113.9"}, "hbone_mtls_port": 15008},
        "workload_type": "POD",
        "services": {ORDERS: {"ports": [{"service_port": 80, "target_port": 8080, "app_protocol": "HTTP11"}]}},
        "cluster_id": "beta",
        "capacity": 2,
    }
    assert made.address("NetworkGateway/net-b/203.0.113.9/0") == {
        "uid": "NetworkGateway/net-b/203.0.113.9/0",
        "name": "NetworkGateway/net-b/203.0.113.9/0",
        "namespace": "istio-system",
        "addresses": ["203.0.113.9"],
        "network": "net-b",
        "service_account": "edge",
    }
    assert not [name for name in made.addresses() if name.startswith("beta//Pod")]


def test_capacity_follows_readiness_down_to_withdrawal_and_back() -> None:
    made = world(*pods(4, ready=4))
    seen = []
    for ready in (4, 1, 0, 2):
        made.apply("beta", *pods(4, ready=ready))
        made.step()
        seen.append(made.address(REACH).get("capacity"))
    assert seen == [4, 1, None, 2]


def test_identities_outlive_an_unready_time() -> None:
    made = world(*pods(2, ready=2))
    before = made.address(ORDERS)["subject_alt_names"]
    made.apply("beta", *pods(2, ready=0))
    assert changed_names(made.step()) == {REACH}
    assert made.address(ORDERS)["subject_alt_names"] == before == ["spiffe://cluster.local/ns/shop/sa/orders"]


def test_a_service_that_takes_traffic_while_unready_keeps_its_network_as_unhealthy_with_full_capacity() -> None:
    made = world(*pods(3, ready=0), spec={"publishNotReadyAddresses": True})
    assert (made.address(REACH)["status"], made.address(REACH)["capacity"]) == ("UNHEALTHY", 3)


def test_all_gateways_of_a_network_share_its_capacity_and_a_share_of_none_is_not_told() -> None:
    made = world(*pods(3, ready=3))
    second = m.east_west_gateway("istio-system/edge-2", "203.0.113.4", "203.0.113.5", network="net-b")
    made.apply("beta", second)
    made.step()
    names = {
        "203.0.113.4": f"net-b/SplitHorizonWorkload/istio-system/edge-2/203.0.113.4/{ORDERS}",
        "203.0.113.5": f"net-b/SplitHorizonWorkload/istio-system/edge-2/203.0.113.5/{ORDERS}",
        "203.0.113.9": REACH,
    }
    assert [made.address(name).get("capacity") for name in names.values()] == [1, 1, 1]
    made.apply("beta", *pods(3, ready=2))
    made.step()
    assert [made.address(name).get("capacity") for name in names.values()] == [1, 1, None]


@pytest.mark.parametrize(("capacity", "gateways", "expected"), [(7, 3, [3, 2, 2]), (2, 3, [1, 1, 0]), (4, 1, [4])])
def test_shares_add_up(capacity: int, gateways: int, expected: list[int]) -> None:
    assert shares(capacity, gateways) == expected


def test_clusters_of_one_network_are_reached_together() -> None:
    made = world(*pods(2, ready=2))
    made.apply(
        "gamma",
        m.namespace("istio-system", network="net-b"),
        m.namespace("shop"),
        service("10.98.0.30"),
        m.pod("shop/other", "10.3.0.1", labels={"app": "orders"}, account="other"),
    )
    made.step()
    assert made.address(REACH)["capacity"] == 3
    assert len(made.address(ORDERS)["subject_alt_names"]) == 2


def test_another_cluster_on_homes_network_is_told_pod_by_pod() -> None:
    made = world(*pods(1, ready=1))
    made.apply(
        "gamma",
        m.namespace("istio-system", network="net-a"),
        m.namespace("shop"),
        service("10.98.0.30"),
        m.pod("shop/g1", "10.3.0.1", labels={"app": "orders"}, account="other"),
    )
    made.step()
    assert made.address("gamma//Pod/shop/g1")["cluster_id"] == "gamma"
    assert made.address(ORDERS)["subject_alt_names"] == ["spiffe://cluster.local/ns/shop/sa/orders"]


def test_without_any_network_label_all_clusters_are_one_flat_network() -> None:
    made = World()
    for name, number in (("alpha", 1), ("beta", 2)):
        made.apply(name, m.namespace("istio-system"), m.namespace("shop"), service(f"10.{number}0.0.1"))
        made.apply(name, m.pod("shop/orders-1", f"10.{number}.0.1", labels={"app": "orders"}))
    made.step()
    assert "network" not in made.address("beta//Pod/shop/orders-1")
    assert ORDERS in made.address("beta//Pod/shop/orders-1")["services"]


def test_an_unlabelled_cluster_is_withheld_while_home_has_a_network_and_joins_once_labelled() -> None:
    made = world(*pods(2, ready=2), network="")
    assert [one["network"] for one in made.address(ORDERS)["addresses"] if "network" in one] == ["net-a"]
    assert not made.address(REACH)
    assert not [name for name in made.addresses() if name.startswith("beta//Pod")]
    made.apply("beta", m.namespace("istio-system", network="net-b"))
    made.step()
    assert made.address(REACH)["capacity"] == 2


def test_a_cluster_that_changes_its_network_leaves_nothing_in_the_old_one() -> None:
    made = world(*pods(2, ready=2))
    made.apply("beta", m.namespace("istio-system", network="net-c"))
    made.apply("beta", m.east_west_gateway("istio-system/edge", "203.0.113.9", network="net-c"))
    made.step()
    assert not [name for name in made.addresses() if "net-b" in name]
    assert made.address(REACH.replace("net-b", "net-c"))["capacity"] == 2
    assert [one["network"] for one in made.address(ORDERS)["addresses"]] == ["net-a", "net-c"]


def test_a_pod_labelled_with_another_network_counts_there() -> None:
    made = world(*pods(2, ready=2))
    odd = m.pod("shop/odd", "10.2.0.9", labels={"app": "orders", "topology.istio.io/network": "net-f"})
    made.apply("beta", odd)
    made.apply(
        "fjord",
        m.namespace("istio-system", network="net-f"),
        m.east_west_gateway("istio-system/edge", "198.51.100.30", network="net-f"),
    )
    made.step()
    assert made.address(REACH)["capacity"] == 2
    assert made.address(f"net-f/SplitHorizonWorkload/istio-system/edge/198.51.100.30/{ORDERS}")["capacity"] == 1


def test_a_network_without_a_gateway_is_a_finding_until_it_has_one() -> None:
    made = world(*pods(2, ready=2), gateway=None)
    assert not made.address(REACH)
    (finding,) = made.findings()
    assert (finding.code, finding.object) == ("NetworkHasNoGateway", ("alpha", "Service", "shop", "orders"))
    made.apply("beta", GATEWAY)
    made.step()
    assert made.findings() == []
    assert made.address(REACH)["capacity"] == 2
    made.delete("beta", GATEWAY)
    made.step()
    assert not made.address(REACH)
    assert not made.address("NetworkGateway/net-b/203.0.113.9/0")


@pytest.mark.parametrize(
    "gateway",
    [
        m.gateway("istio-system/edge", "istio-east-west", m.listener(), addresses=["203.0.113.9"], network="net-b"),
        m.gateway(
            "istio-system/edge",
            "istio-east-west",
            m.listener(protocol="HTTPS", tls_mode="Terminate"),
            addresses=["203.0.113.9"],
            network="net-b",
        ),
        m.gateway("istio-system/edge", "istio-east-west", m.listener(tls_mode="Terminate"), addresses=["203.0.113.9"]),
        m.gateway(
            "istio-system/edge",
            "istio-waypoint",
            m.listener(tls_mode="Terminate"),
            addresses=["203.0.113.9"],
            network="net-b",
        ),
        m.east_west_gateway("istio-system/edge", network="net-b"),
        m.remote_gateway("istio-system/edge", "203.0.113.9", network="net-b"),
    ],
    ids=["no terminate", "not HBONE", "no network", "a waypoint", "no address", "a stand-in elsewhere"],
)
def test_what_is_no_gateway_of_a_remote_network(gateway: m.Manifest) -> None:
    made = world(*pods(1, ready=1), gateway=gateway)
    assert not [name for name in made.addresses() if name.startswith(("NetworkGateway", "net-b"))]


def test_a_stand_in_at_home_leads_to_the_network_it_is_labelled_with() -> None:
    listener = m.listener(port=15010)
    stand_in = m.gateway("istio-system/far", "istio-remote", listener, addresses=["198.51.100.4"], network="net-b")
    made = world(*pods(1, ready=1), gateway=None)
    made.apply("alpha", stand_in)
    made.step()
    assert made.address("NetworkGateway/net-b/198.51.100.4/15010")["service_account"] == "far-istio-remote"
    reach = made.address(f"net-b/SplitHorizonWorkload/istio-system/far/198.51.100.4:15010/{ORDERS}")
    assert (reach["network_gateway"]["hbone_mtls_port"], reach["cluster_id"]) == (15010, "alpha")


def test_a_gateway_listens_on_the_port_its_listener_names() -> None:
    gateway = m.gateway(
        "istio-system/edge",
        "istio-east-west",
        m.listener(port=15443, tls_mode="Terminate"),
        addresses=["203.0.113.9"],
        network="net-b",
    )
    made = world(*pods(1, ready=1), gateway=gateway)
    assert made.address("NetworkGateway/net-b/203.0.113.9/15443")
    reach = made.address(f"net-b/SplitHorizonWorkload/istio-system/edge/203.0.113.9:15443/{ORDERS}")
    assert reach["network_gateway"]["hbone_mtls_port"] == 15443


def test_a_gateways_account_may_be_named_by_annotation() -> None:
    gateway = m.east_west_gateway("istio-system/edge", "203.0.113.9", network="net-b")
    gateway["metadata"]["annotations"] = {"gateway.istio.io/service-account": "door"}
    made = world(*pods(1, ready=1), gateway=gateway)
    assert made.address("NetworkGateway/net-b/203.0.113.9/0")["service_account"] == "door"


def test_two_gateways_that_claim_one_address_are_settled_in_order_with_a_finding_for_the_loser() -> None:
    made = world(*pods(1, ready=1))
    made.apply("gamma", m.namespace("istio-system", network="net-b"))
    made.apply("gamma", m.east_west_gateway("istio-system/other", "203.0.113.9", network="net-b"))
    made.step()
    assert made.address("NetworkGateway/net-b/203.0.113.9/0")["service_account"] == "edge"
    (finding,) = made.findings()
    assert (finding.code, finding.object) == ("GatewayAddressTaken", ("gamma", "Gateway", "istio-system", "other"))
    made.delete("beta", GATEWAY)
    made.step()
    assert made.address("NetworkGateway/net-b/203.0.113.9/0")["service_account"] == "other"


def test_an_address_that_is_none_is_left_out_with_a_finding_and_the_others_are_used() -> None:
    gateway = m.east_west_gateway("istio-system/edge", "203.0.113.9", "no_name", network="net-b")
    made = world(*pods(1, ready=1), gateway=gateway)
    assert made.address(REACH)["capacity"] == 1
    assert [finding.code for finding in made.findings()] == ["GatewayAddressInvalid"]


def test_homes_own_east_west_gateway_is_not_a_way_to_itself() -> None:
    made = world(*pods(1, ready=1))
    made.apply("alpha", m.east_west_gateway("istio-system/own", "192.0.2.1", network="net-a"))
    assert not changed_names(made.step())


def test_a_cluster_that_leaves_takes_everything_of_it_along() -> None:
    made = world(*pods(2, ready=2))
    made.leave("beta")
    made.step()
    assert sorted(made.addresses()) == [ORDERS]
    assert [one["address"] for one in made.address(ORDERS)["addresses"]] == ["10.96.0.10"]


def runs(made: World, *collections: str) -> dict[str, int]:
    """How often functions were run since the start."""
    counts = {one.name: made.graph.evaluated_by[one.number] for one in made.graph.collections}
    return {name: counts[name] for name in collections}


def test_a_cluster_that_joins_is_no_news_to_the_ways_into_others() -> None:
    made = world(*pods(2, ready=2))
    for number in range(5):
        network = f"net-{number}"
        gateway = m.east_west_gateway("istio-system/edge", f"203.0.113.{20 + number}", network=network)
        made.apply(f"c{number}", m.namespace("istio-system", network=network), m.namespace("shop"), gateway)
        made.apply(f"c{number}", service(f"10.98.0.{number + 1}"), *pods(1, ready=1))
        before = runs(made, "split horizon", "services that take part")
        made.step()
        after = runs(made, "split horizon", "services that take part")
        assert {name: after[name] - before[name] for name in after} == {
            "split horizon": 1,
            "services that take part": 1,
        }
