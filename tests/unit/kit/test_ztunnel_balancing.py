"""Which endpoints may be chosen, with what weight and port."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.ztunnel import ZtunnelMachine
from tests.kit.ztunnel.balancing import Candidate, candidates
from tests.kit.ztunnel.messages import Resource, ports, response, service, workload
from tests.kit.ztunnel.records import NamespacedHostname

GATEWAY = {"network_gateway": {"address": {"network": "far", "address": "10.8.0.1"}, "hbone_mtls_port": 15008}}
CLIENT = workload(
    "client",
    network="n",
    cluster_id="c",
    node="node-1",
    addresses=["10.0.0.9"],
    locality={"region": "r", "zone": "z", "subzone": "s"},
)


def pod(uid: str, **fields: Any) -> Resource:
    given = {
        "addresses": ["10.0.0.1"],
        "network": "n",
        "cluster_id": "c",
        "node": "node-1",
        "locality": {"region": "r", "zone": "z", "subzone": "s"},
        "services": {"demo/echo": ports(p80=8080)},
    }
    return workload(uid, **{**given, **fields})


def found(echo: dict[str, Any], *pods: Resource, port: int = 80, waypoint: bool = False) -> tuple[Candidate, ...]:
    machine = ZtunnelMachine()
    given = {"ports": [{"service_port": 80, "target_port": 8000}], **echo}
    machine.receive(response(CLIENT, service("echo", **given), *pods))
    assert machine.received[0].error == ""
    held = machine.state.services.get(NamespacedHostname("demo", "echo"))
    assert held is not None
    return candidates(machine.state, machine.state.workloads.by_uid["client"], held, port, waypoint=waypoint)


def chosen(echo: dict[str, Any], *pods: Resource) -> list[str]:
    return [candidate.workload.uid for candidate in found(echo, *pods)]


def elsewhere(**locality: str) -> dict[str, Any]:
    return {"locality": {"region": "r", "zone": "z", "subzone": "s", **locality}}


def balancing(mode: str, *scopes: str) -> dict[str, Any]:
    return {"load_balancing": {"mode": mode, "routing_preference": list(scopes)}}


class TestWeightAndPort:
    def test_weight_is_the_capacity_and_one_without(self) -> None:
        weights = {candidate.workload.uid: candidate.weight for candidate in found({}, pod("a"), pod("b", capacity=7))}

        assert weights == {"a": 1, "b": 7}

    def test_order_is_by_uid(self) -> None:
        assert chosen({}, pod("b"), pod("a"), pod("c")) == ["a", "b", "c"]

    def test_port_of_the_endpoint_goes_before_that_of_the_service(self) -> None:
        listed = found({}, pod("a"), pod("b", services={"demo/echo": ports()}))

        assert [candidate.port for candidate in listed] == [8080, 8000]

    def test_port_unknown_to_the_service_has_no_candidates(self) -> None:
        assert found({}, pod("a", services={"demo/echo": ports(p81=8081)}), port=81) == ()

    def test_port_without_target_leaves_only_endpoints_that_map_it(self) -> None:
        listed = found({"ports": [{"service_port": 80}]}, pod("a"), pod("b", services={"demo/echo": ports(p81=8081)}))

        assert [(candidate.workload.uid, candidate.port) for candidate in listed] == [("a", 8080)]

    def test_removed_workload_that_left_an_endpoint_is_passed_over(self) -> None:
        machine = ZtunnelMachine()
        machine.receive(response(CLIENT, service("echo", ports=[{"service_port": 80, "target_port": 8000}])))
        machine.receive(response(pod("a"), removed=["a"]))
        held = machine.state.services.get(NamespacedHostname("demo", "echo"))
        assert held is not None and list(held.endpoints) == ["a"]

        assert candidates(machine.state, machine.state.workloads.by_uid["client"], held, 80) == ()


class TestReachability:
    def test_workload_without_address_is_of_use_behind_a_gateway_of_another_network_only(self) -> None:
        pods = [
            pod("far", addresses=[], network="far", **GATEWAY),
            pod("far-without-gateway", addresses=[], network="far"),
            pod("near", addresses=[], **GATEWAY),
        ]

        assert chosen({}, *pods) == ["far"]

    def test_hostname_is_as_good_as_an_address(self) -> None:
        assert chosen({}, pod("a", addresses=[], hostname="db.example")) == ["a"]


class TestScopes:
    def test_without_mode_locality_does_not_matter(self) -> None:
        assert chosen({}, pod("a"), pod("b", **elsewhere(region="other"))) == ["a", "b"]

    @pytest.mark.parametrize(
        ("scope", "other"),
        [
            ("REGION", elsewhere(region="x")),
            ("ZONE", elsewhere(zone="x")),
            ("SUBZONE", elsewhere(subzone="x")),
            ("NODE", {"node": "x"}),
            ("CLUSTER", {"cluster_id": "x"}),
            ("NETWORK", {"network": "x"}),
        ],
    )
    def test_failover_prefers_endpoints_that_share_the_scope(self, scope: str, other: dict[str, Any]) -> None:
        failover = balancing("FAILOVER", scope)

        assert chosen(failover, pod("a"), pod("b", **other)) == ["a"]
        assert chosen(failover, pod("b", **other)) == ["b"]

    def test_strict_takes_no_other(self) -> None:
        strict = balancing("STRICT", "REGION", "ZONE")

        assert chosen(strict, pod("a"), pod("b", **elsewhere(zone="x"))) == ["a"]
        assert chosen(strict, pod("b", **elsewhere(zone="x"))) == []

    def test_scopes_count_without_a_gap(self) -> None:
        failover = balancing("FAILOVER", "REGION", "ZONE", "SUBZONE")

        listed = found(failover, pod("gap", **elsewhere(region="x")), pod("near", **elsewhere(zone="x")))

        assert [(candidate.workload.uid, candidate.rank) for candidate in listed] == [("near", 1)]

    def test_network_in_first_place_beats_all_other_scopes(self) -> None:
        failover = balancing("FAILOVER", "NETWORK", "REGION", "ZONE")

        assert chosen(failover, pod("near", **elsewhere(region="x")), pod("far", network="x")) == ["near"]

    def test_behind_a_first_network_other_networks_are_ranked_by_the_rest(self) -> None:
        failover = balancing("FAILOVER", "NETWORK", "REGION")

        pods = [pod("here", network="x"), pod("there", network="x", **elsewhere(region="x"))]

        assert chosen(failover, *pods) == ["here"]

    def test_network_in_a_later_place_is_a_scope_like_others(self) -> None:
        failover = balancing("FAILOVER", "REGION", "NETWORK", "ZONE")

        listed = found(failover, pod("far", network="x"))

        assert [candidate.rank for candidate in listed] == [1]

    def test_strict_network_with_remote_endpoints_only_has_none(self) -> None:
        assert chosen(balancing("STRICT", "NETWORK"), pod("far", network="x")) == []

    def test_best_rank_without_capacity_is_not_replaced_by_the_next(self) -> None:
        listed = found(balancing("FAILOVER", "ZONE"), pod("a", capacity=0), pod("b", **elsewhere(zone="x")))

        assert [(candidate.workload.uid, candidate.weight) for candidate in listed] == [("a", 0)]


class TestWaypoints:
    def test_port_must_be_declared_unless_there_is_an_application_tunnel(self) -> None:
        pods = [
            pod("plain", services={"demo/echo": ports()}),
            pod("tunnel", services={"demo/echo": ports()}, application_tunnel={"protocol": "PROXY", "port": 15088}),
        ]

        listed = found({}, *pods, port=15008, waypoint=True)

        assert [(candidate.workload.uid, candidate.port) for candidate in listed] == [("tunnel", 15008)]
