"""The dump has the shape of the real one: same input, same output."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.ztunnel import Ztunnel
from tests.kit.ztunnel.messages import (
    Resource,
    authorization,
    ports,
    recorded_world,
    recording,
    response,
    service,
    workload,
    world_responses,
)


def dump(*resources: Resource) -> dict[str, Any]:
    made = Ztunnel()
    for data in world_responses(resources):
        made.machine.receive(data)
    assert [received.error for received in made.machine.received] == ["", ""]
    return made.config_dump()


@pytest.mark.parametrize(("view", "dumped"), [("a", "client_side"), ("b", "server_side")])
def test_recorded_world_gives_the_recorded_dump(view: str, dumped: str) -> None:
    world = dict(recorded_world(view))
    if view == "b":  # The world was written down before the second server moved to a node of its own.
        world["cluster-b//Pod/demo/echo-2"].workload.node = "node-b2"

    assert dump(*world.items()) == recording(f"config_dump_{dumped}")


def test_services_and_policies_of_the_file_mode_are_dumped_as_recorded() -> None:
    recorded = recording("config_dump_local_mode")
    port_80 = [{"service_port": 80, "target_port": 8080}]
    members = {"default/example.com": ports(p80=8080), "default/example2.com": ports(p80=8080)}

    made = dump(
        service(
            "example.com",
            "default",
            name="local",
            addresses=[{"network": "", "address": "127.10.0.1"}],
            ports=port_80,
            subject_alt_names=["spiffe://cluster.local/ns/default/sa/local"],
            canonical=True,
        ),
        service(
            "example2.com",
            "default",
            name="remote",
            addresses=[{"network": "remote", "address": "127.10.0.2"}],
            ports=port_80,
            canonical=True,
        ),
        workload("cluster1//v1/Pod/default/local", services=members),
        workload("cluster1//v1/Pod/default/local-tcp", services=members),
        authorization(
            "deny-9999",
            "default",
            scope="NAMESPACE",
            groups=[{"rules": [{"matches": [{"not_destination_ports": [9999]}]}]}],
        ),
    )

    assert made["services"] == recorded["services"]
    assert made["policies"] == recorded["policies"]


def test_endpoints_without_service_are_staged() -> None:
    made = dump(workload("c//Pod/demo/a", services={"demo/echo.demo": ports(p80=8080)}, status="UNHEALTHY"))

    assert made["stagedServices"] == {
        "demo/echo.demo": {
            "c//Pod/demo/a": {"workloadUid": "c//Pod/demo/a", "port": {"80": 8080}, "status": "Unhealthy"}
        }
    }


def test_workload_with_everything_set() -> None:
    (made,) = dump(
        workload(
            "c//Pod/demo/a",
            hostname="a.example",
            waypoint={"hostname": {"namespace": "demo", "hostname": "wp"}, "hbone_mtls_port": 15008},
            application_tunnel={"protocol": "PROXY"},
            authorization_policies=["demo/p"],
            network_mode="HOST_NETWORK",
            native_tunnel=True,
        )
    )["workloads"]

    assert made == {
        "applicationTunnel": {"port": None, "protocol": "PROXY"},
        "authorizationPolicies": ["demo/p"],
        "capacity": 1,
        "clusterId": "Kubernetes",
        "hostname": "a.example",
        "name": "a",
        "namespace": "demo",
        "nativeTunnel": True,
        "networkMode": "HostNetwork",
        "protocol": "TCP",
        "serviceAccount": "default",
        "status": "Healthy",
        "trustDomain": "cluster.local",
        "uid": "c//Pod/demo/a",
        "waypoint": {"destination": "demo/wp", "hboneMtlsPort": 15008},
        "workloadIps": [],
        "workloadType": "deployment",
    }


def test_service_with_everything_set() -> None:
    way = {"address": {"network": "n", "address": "10.0.0.5"}, "hbone_mtls_port": 15008}
    (made,) = dump(
        service(
            "x.test",
            addresses=[{"network": "n", "address": "10.9.0.0", "length": 16}, {"network": "n", "address": "fd00::1"}],
            weighted_waypoints=[{"destination": way, "weight": 3}],
            load_balancing={
                "mode": "FAILOVER",
                "routing_preference": ["NETWORK", "ZONE"],
                "health_policy": "ALLOW_ALL",
            },
            ip_families="DUAL",
            visibility="NAMESPACE",
        )
    )["services"]

    assert made == {
        "canonical": False,
        "cidrVips": [{"cidr": "10.9.0.0/16", "network": "n"}],
        "endpoints": {},
        "hostname": "x.test",
        "ipFamilies": "Dual",
        "loadBalancer": {"healthPolicy": "AllowAll", "mode": "Failover", "routingPreferences": ["Network", "Zone"]},
        "name": "x",
        "namespace": "demo",
        "ports": {},
        "subjectAltNames": [],
        "vips": ["n/fd00::1"],
        "visibility": "Namespace",
        "weightedWaypoints": [
            {"destination": {"destination": "n/10.0.0.5", "hboneMtlsPort": 15008}, "weight": 3},
        ],
    }


def test_policy_with_every_kind_of_condition() -> None:
    match = {
        "principals": [{"exact": "a"}, {"prefix": "b"}, {"suffix": "c"}, {"presence": {}}],
        "service_accounts": [{"namespace": "demo", "serviceAccount": "sa"}],
        "source_ips": [{"address": "10.0.0.1", "length": 8}],
        "destination_ports": [80],
    }
    (made,) = dump(authorization("p", action="DENY", dry_run=True, groups=[{"rules": [{"matches": [match]}]}]))[
        "policies"
    ]

    assert made == {
        "action": "Deny",
        "dryRun": True,
        "name": "p",
        "namespace": "demo",
        "rules": [
            [
                [
                    {
                        "principals": [{"Exact": "a"}, {"Prefix": "b"}, {"Suffix": "c"}, {"Presence": []}],
                        "serviceAccounts": [{"namespace": "demo", "serviceAccount": "sa"}],
                        "sourceIps": ["10.0.0.1/8"],
                        "destinationPorts": [80],
                    }
                ]
            ]
        ],
        "scope": "Global",
    }


def test_workloads_are_sorted_by_uid_and_services_by_hostname() -> None:
    made = dump(workload("b"), workload("a"), service("y.test"), service("x.test"))

    assert [held["uid"] for held in made["workloads"]] == ["a", "b"]
    assert [held["hostname"] for held in made["services"]] == ["x.test", "y.test"]


def test_later_update_replaces_what_was_dumped() -> None:
    made = Ztunnel()
    made.machine.receive(response(workload("a", node="1")))
    made.machine.receive(response(workload("a", node="2")))

    assert [held["node"] for held in made.config_dump()["workloads"]] == ["2"]
