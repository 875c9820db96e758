"""What the destination's ztunnel accepts, and with which status it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.ztunnel import Accepted, Answer, Route, Ztunnel
from tests.kit.ztunnel.messages import (
    Resource,
    authorization,
    ports,
    recorded_world,
    recording,
    service,
    workload,
    world_responses,
)

ECHO = "cluster-b//Pod/demo/echo-1"
HOST = "echo.demo.svc.cluster.local"
CLIENT = "spiffe://cluster.local/ns/demo/sa/client"
GATEWAY_IP = "10.201.2.1"
WAYPOINT = {"hostname": {"namespace": "demo", "hostname": "wp.demo"}, "hbone_mtls_port": 15008}
VIP = {"network": "net-b", "address": "10.201.100.30"}
OBSERVED = {entry["cause"]: entry["observed"] for entry in recording("errors_by_cause")}


def ztunnel(*changes: Resource, view: str = "b") -> Ztunnel:
    made = Ztunnel(f"net-{view}")
    for data in (*world_responses(recorded_world(view)), *world_responses(changes)):
        made.machine.receive(data)
    assert not any(received.error for received in made.machine.received)
    return made


def arrive(made: Ztunnel, authority: str, identity: str = CLIENT, **more: Any) -> Accepted | Answer:
    return made.accept(ECHO, authority=authority, identity=identity, source_ip=GATEWAY_IP, **more)


def accepted(made: Ztunnel, authority: str, **more: Any) -> Accepted:
    outcome = arrive(made, authority, **more)
    assert isinstance(outcome, Accepted), outcome
    return outcome


def refused(made: Ztunnel, authority: str, **more: Any) -> Answer:
    outcome = arrive(made, authority, **more)
    assert isinstance(outcome, Answer), outcome
    return outcome


class TestTarget:
    def test_connection_over_two_networks_arrives_at_the_port_of_the_endpoint(self) -> None:
        route = ztunnel(view="a").connect("cluster-a//Pod/demo/client-1", "10.201.100.10:80")
        assert isinstance(route, Route) and route.source is not None

        arrived = accepted(ztunnel(), route.authority, identity=route.source)

        assert (arrived.address, arrived.service) == ("10.201.2.10:8080", f"demo/{HOST}")

    def test_own_address_keeps_the_port(self) -> None:
        assert accepted(ztunnel(), "10.201.2.10:9000").address == "10.201.2.10:9000"

    def test_port_that_the_endpoint_does_not_map_is_that_of_the_service(self) -> None:
        two_ports = service(HOST, ports=[{"service_port": 81, "target_port": 8081}])

        assert accepted(ztunnel(two_ports), f"{HOST}:81").address == "10.201.2.10:8081"

    def test_unknown_hostname_is_answered_503(self) -> None:
        answer = refused(ztunnel(), "nowhere.demo:80")

        observed = OBSERVED["destination ztunnel does not know the service hostname"]
        assert answer.status == 503
        assert "503 Service Unavailable" in observed
        assert answer.message.startswith("no service or workload for hostname: ")
        assert "no service or workload for hostname: ..." in observed

    def test_port_unknown_to_the_service_is_answered_503(self) -> None:
        assert refused(ztunnel(), f"{HOST}:81").status == 503

    def test_service_of_the_workloads_own_namespace_is_meant(self) -> None:
        namesake = service(HOST, "other", canonical=True, ports=[{"service_port": 80, "target_port": 1}])

        assert accepted(ztunnel(namesake), f"{HOST}:80").address == "10.201.2.10:8080"

    @pytest.mark.parametrize("port", [15001, 15006, 15008, 15080])
    def test_port_of_the_proxy_itself_is_answered_503(self, port: int) -> None:
        assert refused(ztunnel(), f"10.201.2.10:{port}").status == 503

    def test_unknown_workload_is_answered_503(self) -> None:
        outcome = ztunnel().accept("unknown", authority=f"{HOST}:80", identity=CLIENT, source_ip=GATEWAY_IP)

        assert isinstance(outcome, Answer) and outcome.status == 503
        assert outcome.message.startswith(OBSERVED["own workload missing"].partition(": ")[0])

    def test_address_of_another_workload_is_answered_400(self) -> None:
        assert refused(ztunnel(), "10.201.2.11:8080").status == 400

    def test_client_of_another_trust_domain_gets_no_answer(self) -> None:
        assert refused(ztunnel(), f"{HOST}:80", identity="spiffe://other/ns/demo/sa/client").status == 0


class TestPolicies:
    def deny_client(self) -> Resource:
        rules = [{"matches": [{"principals": [{"exact": "cluster.local/ns/demo/sa/client"}]}]}]
        return authorization("deny-client", scope="NAMESPACE", action="DENY", groups=[{"rules": rules}])

    def test_denied_client_is_answered_401(self) -> None:
        answer = refused(ztunnel(self.deny_client()), f"{HOST}:80")

        assert answer.status == 401
        assert "401 Unauthorized" in OBSERVED["deny policy at destination"]
        assert answer.message in OBSERVED["deny policy at destination"]

    def test_allow_that_does_not_match_is_answered_401(self) -> None:
        allow = authorization(
            "allow", scope="NAMESPACE", groups=[{"rules": [{"matches": [{"destination_ports": [1]}]}]}]
        )

        answer = refused(ztunnel(allow), f"{HOST}:80")

        assert answer.status == 401
        assert answer.verdict is not None
        assert answer.verdict.reason in OBSERVED["ALLOW policy that does not match"]

    def test_port_judged_is_that_of_the_application(self) -> None:
        assert refused(ztunnel(), "10.201.2.10:9999").message.endswith("explicitly denied by: demo/deny-9999")

    def test_source_address_judged_is_the_gateways(self) -> None:
        source = {"source_ips": [{"address": GATEWAY_IP, "length": 32}]}
        deny = authorization("deny", scope="NAMESPACE", action="DENY", groups=[{"rules": [{"matches": [source]}]}])

        assert refused(ztunnel(deny), f"{HOST}:80").status == 401

    def test_plaintext_is_judged_without_identity(self) -> None:
        strict = authorization(
            "strict",
            scope="NAMESPACE",
            action="DENY",
            groups=[{"rules": [{"matches": [{"not_principals": [{"presence": {}}]}]}]}],
        )
        plain = {"source_ip": "10.201.2.50", "destination": "10.201.2.10:8080"}

        assert isinstance(ztunnel().accept_plaintext(ECHO, **plain), Accepted)
        answer = ztunnel(strict).accept_plaintext(ECHO, **plain)
        assert isinstance(answer, Answer) and answer.status == 0
        assert answer.message.endswith("explicitly denied by: demo/strict")

    def test_plaintext_to_the_proxys_own_port_is_refused(self) -> None:
        outcome = ztunnel().accept_plaintext(ECHO, source_ip="10.201.2.50", destination="10.201.2.10:15008")

        assert outcome == Answer(0, "attempted recursive call to ourselves")

    def test_plaintext_to_an_unknown_workload_is_refused(self) -> None:
        outcome = ztunnel().accept_plaintext("unknown", source_ip="10.201.2.50", destination="10.201.2.10:8080")

        assert isinstance(outcome, Answer) and outcome.message.startswith("failed to fetch information")


class TestWaypoint:
    def target(self, **fields: Any) -> Resource:
        return service("target.demo", addresses=[VIP], **{"waypoint": WAYPOINT, **fields})

    def waypoint(self, **fields: Any) -> tuple[Resource, Resource]:
        member = workload(
            ECHO,
            addresses=["10.201.2.10"],
            network="net-b",
            services={"demo/wp.demo": ports(p15008=15008)},
            **fields,
        )
        return member, service("wp.demo", addresses=[{"network": "net-b", "address": "10.201.100.31"}])

    def test_address_of_a_service_is_for_its_own_waypoint(self) -> None:
        made = ztunnel(self.target(), *self.waypoint())

        assert accepted(made, "10.201.100.30:80").address == "10.201.2.10:80"

    def test_waypoint_may_be_named_by_a_workloads_address(self) -> None:
        by_address = {"address": {"network": "net-b", "address": "10.201.2.10"}, "hbone_mtls_port": 15008}

        assert accepted(ztunnel(self.target(waypoint=by_address)), "10.201.100.30:80").address == "10.201.2.10:80"

    def test_address_of_a_service_with_another_waypoint_is_answered_400(self) -> None:
        made = ztunnel(self.target(), self.waypoint()[1])

        assert refused(made, "10.201.100.30:80").status == 400

    def test_address_of_a_service_without_waypoint_is_answered_400(self) -> None:
        made = ztunnel(service("target.demo", addresses=[VIP]), *self.waypoint())

        assert refused(made, "10.201.100.30:80").status == 400

    def test_application_tunnel_takes_any_address_on_loopback_with_the_target_announced(self) -> None:
        made = ztunnel(*self.waypoint(application_tunnel={"protocol": "PROXY", "port": 15088}))

        arrived = accepted(made, "10.201.100.30:80")

        assert (arrived.address, arrived.proxy_target) == ("127.0.0.1:15088", "10.201.100.30:80")

    def test_application_tunnel_is_announced_a_virtual_address_of_its_network_for_a_name(self) -> None:
        vips = [{"network": "far", "address": "10.1.0.1"}, {"network": "net-b", "address": "fd00::1"}, VIP]
        target = service("target.demo", addresses=vips, ports=[{"service_port": 80, "target_port": 8080}])
        made = ztunnel(target, *self.waypoint(application_tunnel={"protocol": "PROXY"}))

        arrived = accepted(made, "target.demo:80")

        assert (arrived.address, arrived.proxy_target) == ("127.0.0.1:8080", "10.201.100.30:80")

    def test_application_tunnel_without_a_virtual_address_to_announce_is_answered_503(self) -> None:
        target = service("target.demo", ports=[{"service_port": 80, "target_port": 8080}])
        made = ztunnel(target, *self.waypoint(application_tunnel={"protocol": "PROXY"}))

        assert refused(made, "target.demo:80").status == 503

    def test_application_tunnel_without_proxy_changes_the_port_only(self) -> None:
        made = ztunnel(*self.waypoint(application_tunnel={"protocol": "NONE", "port": 15088}))

        assert accepted(made, "10.201.2.10:80").address == "10.201.2.10:15088"
