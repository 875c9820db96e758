"""Where connections go, with which identities, and why they fail."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tests.kit.ztunnel import Reason, Refusal, Route, Tunnel, Ztunnel
from tests.kit.ztunnel.messages import (
    Resource,
    ports,
    recorded_world,
    recording,
    response,
    service,
    workload,
    world_responses,
)
from tests.kit.ztunnel.routes import certificate_error, split_socket_address

CLIENT = "c//Pod/demo/client"
HOST = "echo.demo.svc.cluster.local"
SAN = "spiffe://cluster.local/ns/demo/sa/echo"
HBONE = {"tunnel_protocol": "HBONE"}
PORT_80 = [{"service_port": 80, "target_port": 8080}]


def client(**fields: Any) -> Resource:
    return workload(CLIENT, **{"addresses": ["10.0.0.1"], "network": "n", "service_account": "client", **fields})


def pod(name: str, address: str, host: str = HOST, **fields: Any) -> Resource:
    given = {"addresses": [address], "network": "n", "service_account": name.partition("-")[0], **HBONE}
    return workload(f"c//Pod/demo/{name}", **{**given, "services": {f"demo/{host}": ports(p80=8080)}, **fields})


def echo(**fields: Any) -> Resource:
    vips = [{"network": "n", "address": "10.9.0.1"}]
    return service(HOST, **{"addresses": vips, "ports": PORT_80, **fields})


def ztunnel(*resources: Resource, network: str = "n") -> Ztunnel:
    made = Ztunnel(network)
    made.machine.receive(response(client(), *resources))
    assert [received.error for received in made.machine.received] == [""]
    return made


def route(made: Ztunnel, destination: str, source: str = CLIENT) -> Route:
    outcome = made.connect(source, destination)
    assert sum(share.probability for share in made.routes(source, destination)) == 1
    assert isinstance(outcome, Route), outcome
    return outcome


def refusal(made: Ztunnel, destination: str, source: str = CLIENT) -> Refusal:
    outcome = made.connect(source, destination)
    assert isinstance(outcome, Refusal), outcome
    if outcome.reason is not Reason.UNKNOWN_SOURCE:
        assert sum(share.probability for share in made.routes(source, destination)) == 1
    return outcome


def shares(made: Ztunnel, destination: str) -> dict[str, Fraction]:
    return {
        share.outcome.endpoint if isinstance(share.outcome, Route) else share.outcome.message: share.probability
        for share in made.routes(CLIENT, destination)
    }


class TestWithinANetwork:
    def test_address_nobody_knows_is_passed_through(self) -> None:
        made = ztunnel()

        assert route(made, "192.0.2.1:443") == Route(Tunnel.NONE, "192.0.2.1:443")

    def test_workload_without_tunnel_is_reached_by_tcp(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2", tunnel_protocol="NONE"), echo())

        assert route(made, "10.9.0.1:80") == Route(
            Tunnel.NONE,
            "10.0.0.2:8080",
            workload="c//Pod/demo/echo-1",
            endpoint="c//Pod/demo/echo-1",
            service=f"demo/{HOST}",
        )

    def test_workload_with_hbone_is_reached_by_a_tunnel_to_its_own_proxy(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo())

        assert route(made, "10.9.0.1:80") == Route(
            Tunnel.HBONE,
            "10.0.0.2:15008",
            authority="10.0.0.2:8080",
            identities=("spiffe://cluster.local/ns/demo/sa/echo",),
            source="spiffe://cluster.local/ns/demo/sa/client",
            workload="c//Pod/demo/echo-1",
            endpoint="c//Pod/demo/echo-1",
            service=f"demo/{HOST}",
            baggage="k8s.cluster.name=Kubernetes,k8s.namespace.name=demo",
            forwarded_host=HOST,
        )

    def test_names_of_the_service_are_accepted_beside_the_workloads_own(self) -> None:
        made = ztunnel(
            pod("echo-1", "10.0.0.2"), echo(subject_alt_names=["no identity", "spiffe://td/ns/other/sa/other"])
        )

        assert route(made, "10.9.0.1:80").identities == ("spiffe://td/ns/other/sa/other", SAN)

    def test_pod_by_its_own_address_keeps_the_port(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo())

        asked = route(made, "10.0.0.2:9999")

        assert (asked.address, asked.authority, asked.service) == ("10.0.0.2:15008", "10.0.0.2:9999", "")

    def test_address_in_another_network_is_another_host(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2", network="other"))

        assert route(made, "10.0.0.2:80").tunnel is Tunnel.NONE

    def test_virtual_address_of_another_network_is_passed_through(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(addresses=[{"network": "other", "address": "10.9.0.1"}]))

        assert route(made, "10.9.0.1:80") == Route(Tunnel.NONE, "10.9.0.1:80")

    def test_passthrough_service_goes_to_the_address_asked_for(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(load_balancing={"mode": "PASSTHROUGH"}))

        assert route(made, "10.9.0.1:80") == Route(Tunnel.NONE, "10.9.0.1:80")

    def test_pod_on_a_virtual_address_hides_that_services_waypoint_but_not_its_endpoints(self) -> None:
        waypoint = {"hostname": {"namespace": "demo", "hostname": "nowhere"}, "hbone_mtls_port": 15008}
        made = ztunnel(pod("echo-1", "10.0.0.2"), pod("odd", "10.9.0.1", services={}), echo(waypoint=waypoint))

        assert route(made, "10.9.0.1:80").endpoint == "c//Pod/demo/echo-1"

    def test_endpoint_that_is_reached_by_name_is_dialled_by_name(self) -> None:
        made = ztunnel(pod("echo-1", "", addresses=[], hostname="db.example", tunnel_protocol="NONE"), echo())

        assert route(made, "10.9.0.1:80").address == "db.example:8080"

    def test_unknown_source_is_refused(self) -> None:
        made = ztunnel()

        assert refusal(made, "10.9.0.1:80", source="c//Pod/demo/unknown").reason is Reason.UNKNOWN_SOURCE
        with pytest.raises(KeyError):
            made.routes("c//Pod/demo/unknown", "10.9.0.1:80")


class TestAddressFamilies:
    DUAL = ("10.0.0.2", "fd00::2")
    VIPS = ({"network": "n", "address": "10.9.0.1"}, {"network": "n", "address": "fd09::1"})

    def made(self, **fields: Any) -> Ztunnel:
        return ztunnel(pod("echo-1", "", addresses=list(self.DUAL)), echo(addresses=list(self.VIPS), **fields))

    @pytest.mark.parametrize(
        ("destination", "address"), [("10.9.0.1:80", "10.0.0.2:15008"), ("[fd09::1]:80", "[fd00::2]:15008")]
    )
    def test_family_asked_for_is_kept(self, destination: str, address: str) -> None:
        assert route(self.made(), destination).address == address

    def test_services_restriction_goes_first(self) -> None:
        assert route(self.made(ip_families="IPV4_ONLY"), "[fd09::1]:80").address == "10.0.0.2:15008"

    def test_workload_without_an_address_the_service_permits_fails(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(ip_families="IPV6_ONLY"))

        assert refusal(made, "10.9.0.1:80").reason is Reason.NO_VALID_DESTINATION

    def test_a_gateway_does_not_help_a_workload_of_the_own_network(self) -> None:
        gateway = {"address": {"network": "n", "address": "10.0.0.9"}, "hbone_mtls_port": 15008}
        made = ztunnel(pod("echo-1", "10.0.0.2", network_gateway=gateway), echo(ip_families="IPV6_ONLY"))

        assert refusal(made, "10.9.0.1:80").reason is Reason.NO_VALID_DESTINATION


class TestNames:
    def test_name_of_a_service_stands_for_its_address_in_the_clients_network(self) -> None:
        vips = [{"network": "other", "address": "10.9.0.9"}, {"network": "n", "address": "10.9.0.1"}]
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(addresses=vips))

        assert route(made, f"{HOST}:80") == route(made, "10.9.0.1:80")

    def test_service_without_address_here_has_no_address(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(addresses=[{"network": "other", "address": "10.9.0.9"}]))

        assert refusal(made, f"{HOST}:80").reason is Reason.UNKNOWN_HOSTNAME

    def test_headless_service_answers_with_its_endpoints(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(addresses=[]))

        assert route(made, f"{HOST}:8080").authority == "10.0.0.2:8080"

    def test_headless_name_outside_the_cluster_is_left_to_others(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2", host="echo.example"), service("echo.example", ports=PORT_80))

        assert refusal(made, "echo.example:80").reason is Reason.UNKNOWN_HOSTNAME

    def test_unknown_name_has_no_address(self) -> None:
        assert shares(ztunnel(), "nowhere.example:80") == {"no addresses for hostname: nowhere.example": Fraction(1)}

    @pytest.mark.parametrize("text", ["", "10.0.0.1", ":80", "host:http", "fd00::1:x"])
    def test_what_is_no_socket_address_raises(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            split_socket_address(text)


class TestShares:
    def test_endpoints_share_by_capacity(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2", capacity=3), pod("echo-2", "10.0.0.3"), echo())

        assert shares(made, "10.9.0.1:80") == {
            "c//Pod/demo/echo-1": Fraction(3, 4),
            "c//Pod/demo/echo-2": Fraction(1, 4),
        }

    def test_likeliest_comes_first_and_is_what_connect_returns(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), pod("echo-2", "10.0.0.3", capacity=2), echo())

        first = made.routes(CLIENT, "10.9.0.1:80")[0]

        assert first.probability == Fraction(2, 3)
        assert made.connect(CLIENT, "10.9.0.1:80") == first.outcome

    def test_endpoint_without_capacity_gets_nothing(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2", capacity=0), pod("echo-2", "10.0.0.3"), echo())

        assert shares(made, "10.9.0.1:80") == {"c//Pod/demo/echo-2": Fraction(1)}

    def test_gateways_of_a_network_share_by_capacity(self) -> None:
        split = [
            workload(
                f"far/SplitHorizonWorkload/{index}",
                network="far",
                capacity=capacity,
                network_gateway={"address": {"network": "far", "address": f"10.8.0.{index}"}, "hbone_mtls_port": 15008},
                services={f"demo/{HOST}": ports(p80=8080)},
            )
            for index, capacity in ((1, 2), (2, 6))
        ]
        gateways = [
            workload(f"NetworkGateway/far/10.8.0.{index}", network="far", addresses=[f"10.8.0.{index}"])
            for index in (1, 2)
        ]
        made = ztunnel(*split, *gateways, echo(subject_alt_names=[SAN]))

        found = {
            share.outcome.address: share.probability
            for share in made.routes(CLIENT, "10.9.0.1:80")
            if isinstance(share.outcome, Route)
        }

        assert found == {"10.8.0.2:15008": Fraction(3, 4), "10.8.0.1:15008": Fraction(1, 4)}


def way(hostname: str, port: int = 15008, namespace: str = "demo") -> dict[str, Any]:
    return {"hostname": {"namespace": namespace, "hostname": hostname}, "hbone_mtls_port": port}


def waypoint(name: str, address: str, **fields: Any) -> tuple[Resource, Resource]:
    """A waypoint's workload and its service, which declares port 15008."""
    pod_of = workload(
        f"c//Pod/demo/{name}",
        **{
            "addresses": [address],
            "network": "n",
            "service_account": name,
            "services": {f"demo/{name}.demo": ports(p15008=15008)},
            **fields,
        },
    )
    vips = [{"network": "n", "address": f"{address}0"}]
    return pod_of, service(f"{name}.demo", addresses=vips, ports=[{"service_port": 15008, "target_port": 15008}])


class TestServiceWaypoint:
    def test_request_asks_the_waypoint_for_the_original_address(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(waypoint=way("wp.demo")), *waypoint("wp", "10.0.0.5"))

        asked = route(made, "10.9.0.1:80")

        assert (asked.tunnel, asked.address, asked.authority) == (Tunnel.HBONE, "10.0.0.5:15008", "10.9.0.1:80")
        assert asked.identities == ("spiffe://cluster.local/ns/demo/sa/wp",)
        assert (asked.service, asked.workload, asked.waypoint) == (f"demo/{HOST}", "c//Pod/demo/wp", True)

    def test_waypoint_may_be_given_by_its_services_address(self) -> None:
        by_address = {"address": {"network": "n", "address": "10.0.0.50"}, "hbone_mtls_port": 15008}
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(waypoint=by_address), *waypoint("wp", "10.0.0.5"))

        assert route(made, "10.9.0.1:80").address == "10.0.0.5:15008"

    def test_waypoint_may_be_given_by_a_workloads_address(self) -> None:
        by_address = {"address": {"network": "n", "address": "10.0.0.5"}, "hbone_mtls_port": 15008}
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(waypoint=by_address), *waypoint("wp", "10.0.0.5"))

        assert route(made, "10.9.0.1:80").address == "10.0.0.5:15008"

    def test_waypoint_may_be_a_workload_known_by_hostname(self) -> None:
        named = workload("c//Pod/demo/wp", addresses=["10.0.0.5"], network="n", hostname="wp.example")
        made = ztunnel(echo(waypoint=way("wp.example")), named)

        assert route(made, "10.9.0.1:80").address == "10.0.0.5:15008"

    @pytest.mark.parametrize(
        "reference", [way("nope"), {"address": {"network": "n", "address": "10.7.0.1"}, "hbone_mtls_port": 15008}]
    )
    def test_unknown_waypoint_fails_the_connection(self, reference: dict[str, Any]) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(waypoint=reference))

        assert refusal(made, "10.9.0.1:80").reason is Reason.UNKNOWN_WAYPOINT

    def test_waypoint_without_endpoints_fails_the_connection(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(waypoint=way("wp.demo")), waypoint("wp", "10.0.0.5")[1])

        assert refusal(made, "10.9.0.1:80").reason is Reason.UNKNOWN_WAYPOINT

    def test_pod_by_its_own_address_does_not_pass_the_services_waypoint(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2"), echo(waypoint=way("wp.demo")), *waypoint("wp", "10.0.0.5"))

        assert route(made, "10.0.0.2:8080").address == "10.0.0.2:15008"

    def test_port_need_not_be_on_the_waypoints_service_with_an_application_tunnel(self) -> None:
        tunnel = {"application_tunnel": {"protocol": "PROXY", "port": 15088}}
        pod_of, _ = waypoint("wp", "10.0.0.5", services={"demo/wp.demo": {}}, **tunnel)
        made = ztunnel(echo(waypoint=way("wp.demo")), pod_of, service("wp.demo"))

        assert route(made, "10.9.0.1:80").address == "10.0.0.5:15008"

    def test_application_tunnel_without_port_does_not_make_up_for_it(self) -> None:
        pod_of, _ = waypoint("wp", "10.0.0.5", services={"demo/wp.demo": {}}, application_tunnel={"protocol": "PROXY"})
        made = ztunnel(echo(waypoint=way("wp.demo")), pod_of, service("wp.demo"))

        assert refusal(made, "10.9.0.1:80").reason is Reason.UNKNOWN_WAYPOINT

    def test_weighted_waypoints_override_the_single_one(self) -> None:
        weighted = [
            {"destination": way("wp.demo"), "weight": 3},
            {"destination": way("canary.demo"), "weight": 1},
            {"destination": way("idle.demo"), "weight": 0},
        ]
        made = ztunnel(
            echo(waypoint=way("nope"), weighted_waypoints=weighted),
            *waypoint("wp", "10.0.0.5"),
            *waypoint("canary", "10.0.0.6"),
        )

        assert shares(made, "10.9.0.1:80") == {"c//Pod/demo/wp": Fraction(3, 4), "c//Pod/demo/canary": Fraction(1, 4)}

    def test_weights_that_are_all_zero_fall_back_to_the_single_waypoint(self) -> None:
        weighted = [{"destination": way("canary.demo"), "weight": 0}]
        made = ztunnel(echo(waypoint=way("wp.demo"), weighted_waypoints=weighted), *waypoint("wp", "10.0.0.5"))

        assert shares(made, "10.9.0.1:80") == {"c//Pod/demo/wp": Fraction(1)}


class TestWorkloadWaypoint:
    def test_pod_by_its_own_address_passes_its_waypoint(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2", waypoint=way("wp.demo")), echo(), *waypoint("wp", "10.0.0.5"))

        asked = route(made, "10.0.0.2:8080")

        assert (asked.address, asked.authority, asked.waypoint) == ("10.0.0.5:15008", "10.0.0.2:8080", True)

    def test_service_traffic_does_not_pass_it(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2", waypoint=way("wp.demo")), echo(), *waypoint("wp", "10.0.0.5"))

        assert route(made, "10.9.0.1:80").address == "10.0.0.2:15008"

    @pytest.mark.parametrize(
        "reference",
        [way("wp.demo"), {"address": {"network": "n", "address": "10.0.0.5"}, "hbone_mtls_port": 15008}],
        ids=["by-service", "by-address"],
    )
    def test_the_waypoint_itself_does_not_pass_it(self, reference: dict[str, Any]) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2", waypoint=reference), echo(), *waypoint("wp", "10.0.0.5"))

        assert route(made, "10.0.0.2:8080", source="c//Pod/demo/wp").address == "10.0.0.2:15008"

    def test_unknown_waypoint_fails_the_connection(self) -> None:
        made = ztunnel(pod("echo-1", "10.0.0.2", waypoint=way("nope")))

        assert refusal(made, "10.0.0.2:8080").message == "unknown waypoint: waypoint nope not found"


RECORDED_CLIENT = "cluster-a//Pod/demo/client-1"
SPLIT = "net-b/SplitHorizonWorkload/istio-system/eastwest/demo/echo.demo.svc.cluster.local"
GATEWAY = "NetworkGateway/net-b/10.201.2.1"
VIP = "10.201.100.10:80"


def recorded(*changes: Resource, removed: tuple[str, ...] = ()) -> Ztunnel:
    """The client's side of the recorded connection over two networks, with some resources changed."""
    made = Ztunnel("net-a")
    for data in world_responses(recorded_world("a")):
        made.machine.receive(data)
    made.machine.receive(response(*changes, removed=removed))
    assert [received.error for received in made.machine.received] == ["", "", ""]
    return made


def changed(name: str, remove: tuple[str, ...] = (), **fields: Any) -> Resource:
    """A recorded resource with fields set anew and others taken out."""
    message = dict(recorded_world("a"))[name]
    inner = message.workload if message.WhichOneof("type") == "workload" else message.service
    for field in (*remove, *fields):
        inner.ClearField(field)
    other = workload(name, **fields) if message.WhichOneof("type") == "workload" else service("x", **fields)
    for field in fields:
        source = getattr(other[1], message.WhichOneof("type"))
        inner.MergeFrom(type(inner)(**{field: getattr(source, field)}))
    return name, message


class TestAcrossNetworks:
    def test_connection_goes_as_recorded(self) -> None:
        seen = recording("double_hbone_observed")
        outer, inner = seen["outer_connect_seen_by_gateway"], seen["inner_connect_seen_by_destination"]

        asked = route(recorded(), VIP, RECORDED_CLIENT)

        assert asked.tunnel is Tunnel.DOUBLE_HBONE
        assert asked.address == "10.201.2.1:15008"
        assert asked.authority == outer["authority"] == inner["authority"]
        assert asked.source == outer["peer_san"]
        assert asked.baggage == outer["baggage"] == inner["baggage"]
        assert asked.forwarded_network == inner["x-forwarded-network"]
        assert outer["forwarded"].endswith(f";host={asked.forwarded_host}")
        assert asked.identities == ("spiffe://cluster.local/ns/istio-system/sa/eastwest",)
        assert asked.inner_identities == (SAN,)
        assert (asked.workload, asked.endpoint, asked.waypoint) == (GATEWAY, SPLIT, False)

    def test_gateway_may_be_given_by_the_hostname_of_a_service(self) -> None:
        hostname = {"hostname": {"namespace": "istio-system", "hostname": "ew.example"}, "hbone_mtls_port": 15008}
        gateway = service(
            "ew.example",
            "istio-system",
            ports=[{"service_port": 15008, "target_port": 15443}],
            subject_alt_names=["spiffe://td/ns/gw/sa/gw"],
        )
        pod_of = changed(GATEWAY, services={"istio-system/ew.example": ports()})
        made = recorded(changed(SPLIT, network_gateway=hostname), gateway, pod_of)

        asked = route(made, VIP, RECORDED_CLIENT)

        assert asked.address == "10.201.2.1:15443"
        assert asked.identities == ("spiffe://td/ns/gw/sa/gw", "spiffe://cluster.local/ns/istio-system/sa/eastwest")

    def test_own_address_of_a_remote_workload_is_not_used(self) -> None:
        made = recorded(changed(SPLIT, addresses=["10.201.2.10"]))

        assert route(made, VIP, RECORDED_CLIENT).address == "10.201.2.1:15008"

    def test_workload_without_address_in_the_clients_own_network_is_skipped(self) -> None:
        local = workload(
            "cluster-a//Pod/demo/echo-9",
            addresses=["10.201.1.19"],
            network="net-a",
            services={f"demo/{HOST}": ports(p80=8080)},
        )
        made = recorded(changed(SPLIT, network="net-a"), local)

        shares_of = made.routes(RECORDED_CLIENT, VIP)

        assert [share.outcome.address for share in shares_of if isinstance(share.outcome, Route)] == [
            "10.201.1.19:8080"
        ]

    def test_remote_waypoint_is_reached_by_the_service_name_and_must_show_the_waypoints_names(self) -> None:
        split_waypoint = workload(
            "net-b/SplitHorizonWorkload/wp",
            network="net-b",
            network_gateway={"address": {"network": "net-b", "address": "10.201.2.1"}, "hbone_mtls_port": 15008},
            services={"demo/wp.demo": ports(p15008=15008)},
        )
        names = ["spiffe://cluster.local/ns/demo/sa/wp"]
        wp = service("wp.demo", ports=[{"service_port": 15008, "target_port": 15008}], subject_alt_names=names)
        made = recorded(changed(f"demo/{HOST}", waypoint=way("wp.demo")), split_waypoint, wp)

        asked = route(made, VIP, RECORDED_CLIENT)

        assert (asked.tunnel, asked.waypoint) == (Tunnel.DOUBLE_HBONE, True)
        assert asked.authority == f"{HOST}:80"
        assert asked.inner_identities == tuple(names)

    def test_remote_workload_found_without_a_service_has_no_way(self) -> None:
        hiding = workload("cluster-a//Pod/demo/hiding", addresses=["10.201.100.10"], network="net-a")

        made = recorded(hiding)

        assert refusal(made, VIP, RECORDED_CLIENT).reason is Reason.NO_SERVICE


def failure_of(made: Ztunnel, destination: str = VIP) -> str:
    return refusal(made, destination, RECORDED_CLIENT).message


def handshake_failure(made: Ztunnel, *, inner: str = SAN, outer: str = "") -> str:
    asked = route(made, VIP, RECORDED_CLIENT)
    if outer:
        return certificate_error(asked.identities, outer)
    return certificate_error(asked.inner_identities, inner)


EASTWEST = "spiffe://cluster.local/ns/istio-system/sa/eastwest"
SERVICE = f"demo/{HOST}"

FAILURES = {
    "service.subject_alt_names empty (remote endpoint)": lambda: handshake_failure(
        recorded(changed(SERVICE, subject_alt_names=[]))
    ),
    "service.subject_alt_names wrong": lambda: handshake_failure(
        recorded(changed(SERVICE, subject_alt_names=["spiffe://cluster.local/ns/demo/sa/other"]))
    ),
    "gateway workload has another service account than the gateway certificate": lambda: handshake_failure(
        recorded(changed(GATEWAY, service_account="nope")), outer=EASTWEST
    ),
    "gateway IP unknown as workload or VIP in its network": lambda: failure_of(recorded(removed=(GATEWAY,))),
    "remote workload: no address, no hostname, no gateway": lambda: failure_of(
        recorded(changed(SPLIT, remove=("network_gateway",)))
    ),
    "remote workload: address but no gateway": lambda: failure_of(
        recorded(changed(SPLIT, remove=("network_gateway",), addresses=["10.201.2.10"]))
    ),
    "address-less workload whose network equals the client's": lambda: failure_of(
        recorded(changed(SPLIT, network="net-a"))
    ),
    "capacity 0 on the only endpoint": lambda: failure_of(recorded(changed(SPLIT, capacity=0))),
    "status UNHEALTHY on the only endpoint": lambda: failure_of(recorded(changed(SPLIT, status="UNHEALTHY"))),
    "port missing on service": lambda: failure_of(
        recorded(changed(SERVICE, ports=[{"service_port": 81, "target_port": 8080}]))
    ),
    "waypoint hostname unknown": lambda: failure_of(recorded(changed(SERVICE, waypoint=way("nope")))),
    "LB STRICT on NETWORK with remote endpoints only": lambda: failure_of(
        recorded(changed(SERVICE, load_balancing={"mode": "STRICT", "routing_preference": ["NETWORK"]}))
    ),
}
OBSERVED = {entry["cause"]: entry["observed"] for entry in recording("errors_by_cause")}


@pytest.mark.parametrize("cause", FAILURES)
def test_failure_reads_as_observed(cause: str) -> None:
    message = FAILURES[cause]()

    fragments = OBSERVED[cause].replace("io error: ", "").replace("<vip>:<port>", "...").split("...")
    assert [fragment.strip() for fragment in fragments if fragment.strip() not in message] == []


def test_virtual_address_published_for_another_network_only_is_passed_through_as_observed() -> None:
    made = recorded(changed(SERVICE, addresses=[{"network": "net-b", "address": "10.201.100.10"}]))

    assert OBSERVED["VIP only published for another network"].startswith("treated as unknown address: plain TCP")
    assert route(made, VIP, RECORDED_CLIENT) == Route(Tunnel.NONE, VIP)


def test_certificate_with_an_accepted_name_passes() -> None:
    assert certificate_error((EASTWEST, SAN), SAN) == ""
