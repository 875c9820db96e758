"""What is rejected and with which words, what is accepted in silence: replayed against recorded replies of ztunnel."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from tests.kit.ztunnel import ADDRESS_TYPE, AUTHORIZATION_TYPE, Trait, ZtunnelMachine
from tests.kit.ztunnel.messages import Resource, authorization, ports, recording, request, response, service, workload
from xds import protos

THREE_BYTES = "base64:AQID"
UID = "t//Pod/demo/x"
HOST = "s.demo.svc.cluster.local"
VIP = {"network": "n", "address": "10.9.0.1"}


def pod(**fields: Any) -> Resource:
    return workload(UID, **{"addresses": ["10.0.0.1"], **fields})


def named_service(**fields: Any) -> Resource:
    return service(HOST, xds_name="demo/s", **fields)


def raw(name: str, data: bytes | None) -> bytes:
    message = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse(type_url=ADDRESS_TYPE)
    resource = message.resources.add(name=name)
    if data is not None:
        resource.resource.type_url = ADDRESS_TYPE
        resource.resource.value = data
    return bytes(message.SerializeToString())


def empty_address() -> bytes:
    return response(("empty", protos.istio.workload.Address()))


# Every recorded case, rebuilt from what its name says; where the name leaves a value open (which bytes are garbage,
# which range is bad, which names are removed) the value is ours. None is left out: the first test below.
CASES: dict[str, bytes] = {
    "garbage bytes": raw("bad", b"\xff\xff\xff"),
    "resource field missing": raw("nores", None),
    "empty Address (no oneof)": empty_address(),
    "workload address 3 bytes": response(pod(addresses=[THREE_BYTES])),
    "workload address empty bytes": response(pod(addresses=["base64:"])),
    "workload no uid": response(workload("", xds_name=UID, name="x", namespace="demo", addresses=["10.0.0.1"])),
    "workload no address, no hostname, no gateway": response(pod(addresses=[])),
    "workload tunnel_protocol 2 (legacy)": response(pod(tunnel_protocol=2)),
    "workload tunnel_protocol 9": response(pod(tunnel_protocol=9)),
    "workload status 7": response(pod(status=7)),
    "workload workload_type 9": response(pod(workload_type=9)),
    "workload network_mode 9": response(pod(network_mode=9)),
    "workload application_tunnel.protocol 9": response(pod(application_tunnel={"protocol": 9})),
    "workload services key without slash": response(pod(services={HOST: ports(p80=8080)})),
    "network_gateway without destination": response(pod(network_gateway={"hbone_mtls_port": 15008})),
    "waypoint without destination": response(pod(waypoint={"hbone_mtls_port": 15008})),
    "gateway port 0": response(pod(network_gateway={"address": VIP})),
    "gateway port 70000": response(pod(network_gateway={"address": VIP, "hbone_mtls_port": 70000})),
    "service address bad length": response(named_service(addresses=[{"network": "n", "address": THREE_BYTES}])),
    "service cidr length 40 on v4": response(named_service(addresses=[{**VIP, "length": 40}])),
    "service ip_families 9": response(named_service(ip_families=9)),
    "service lb mode 9": response(named_service(load_balancing={"mode": 9})),
    "service lb scope UNSPECIFIED": response(named_service(load_balancing={"routing_preference": [0]})),
    "service lb health 9": response(named_service(load_balancing={"health_policy": 9})),
    "service visibility 9": response(named_service(visibility=9)),
    "service weighted waypoint without destination": response(named_service(weighted_waypoints=[{"weight": 1}])),
    "service empty hostname": response(service("", xds_name="demo/s", name="s")),
    "service port 80 app_protocol 99": response(named_service(ports=[{"service_port": 80, "app_protocol": 99}])),
    "service invalid SAN string": response(named_service(subject_alt_names=["no identity"])),
    "same name twice in one response": response(pod(), pod(addresses=["10.0.0.2"])),
    "upsert and remove of same name in one response": response(pod(), removed=[UID]),
    "one good one bad": response(
        workload("t//Pod/demo/good", addresses=["10.0.0.3"]), workload("t//Pod/demo/bad", tunnel_protocol=9)
    ),
    "xds name differs from uid": response(workload(UID, xds_name="t//Pod/demo/other", addresses=["10.0.0.4"])),
    "remove by xds name": response(removed=["t//Pod/demo/other"]),
    "remove unknown": response(removed=["t//Pod/demo/never-seen"]),
    "unknown type url": response(type_url="type.googleapis.com/foo.Bar"),
    "workload type url (not subscribed)": response(type_url="type.googleapis.com/istio.workload.Workload"),
    "authz scope 9": response(authorization("p", scope=9)),
    "authz action 9": response(authorization("p", action=9)),
    "authz bad ip": response(
        authorization("p", groups=[{"rules": [{"matches": [{"source_ips": [{"address": THREE_BYTES}]}]}]}])
    ),
    "authz remove": response(removed=["demo/p"], type_url=AUTHORIZATION_TYPE),
    "two workloads same (network, ip)": response(
        workload("t//Pod/demo/a", addresses=["10.0.0.5"]), workload("t//Pod/demo/b", addresses=["10.0.0.5"])
    ),
    "two services same ns same VIP": response(service("a.demo", addresses=[VIP]), service("b.demo", addresses=[VIP])),
    "remove one of them": response(removed=["demo/a.demo"]),
}

SILENT = {
    "workload no uid": Trait.EMPTY_UID,
    "workload no address, no hostname, no gateway": Trait.UNREACHABLE,
    "workload workload_type 9": Trait.UNKNOWN_ENUM,
    "gateway port 0": Trait.PORT_OUT_OF_RANGE,
    "gateway port 70000": Trait.PORT_OUT_OF_RANGE,
    "service visibility 9": Trait.UNKNOWN_ENUM,
    "service empty hostname": Trait.EMPTY_HOSTNAME,
    "service port 80 app_protocol 99": Trait.UNKNOWN_ENUM,
    "service invalid SAN string": Trait.INVALID_SAN,
    "same name twice in one response": Trait.NAME_TWICE,
    "upsert and remove of same name in one response": Trait.UPSERT_AND_REMOVAL,
    "xds name differs from uid": Trait.NAME_IS_NOT_KEY,
    "authz bad ip": Trait.CONDITION_DROPPED,
    "two workloads same (network, ip)": Trait.SHARED_ADDRESS,
    "two services same ns same VIP": Trait.SHARED_VIP,
}


def with_nonce(data: bytes, nonce: str) -> bytes:
    message = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse.FromString(data)
    message.nonce = nonce
    return bytes(message.SerializeToString())


def reply_as_recorded(data: bytes) -> dict[str, Any]:
    return MessageToDict(request(data), preserving_proto_field_name=True)


def test_every_recorded_case_is_replayed() -> None:
    assert [case["case"] for case in recording("nack_cases")] == list(CASES)


@pytest.mark.parametrize("case", recording("nack_cases"), ids=lambda case: case["case"])
def test_reply_is_the_recorded_one(case: dict[str, Any]) -> None:
    nonce = case["reply"][0]["response_nonce"]

    answer = ZtunnelMachine().receive(with_nonce(CASES[case["case"]], nonce))

    assert [reply_as_recorded(answer)] == case["reply"]


@pytest.mark.parametrize(("case", "trait"), SILENT.items(), ids=SILENT)
def test_what_is_accepted_in_silence_is_noted(case: str, trait: Trait) -> None:
    machine = ZtunnelMachine()

    machine.receive(CASES[case])

    assert trait in [oddity.trait for oddity in machine.oddities]


def test_a_good_resource_beside_a_bad_one_is_applied() -> None:
    machine = ZtunnelMachine()

    machine.receive(CASES["one good one bad"])

    assert list(machine.state.workloads.by_uid) == ["t//Pod/demo/good"]


def test_all_rejections_are_in_one_message_with_undecodable_ones_last() -> None:
    bad = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse.FromString(CASES["garbage bytes"])
    bad.MergeFromString(response(pod(status=7), named_service(ip_families=9)))

    answer = request(ZtunnelMachine().receive(bad.SerializeToString()))

    assert answer.error_detail.message == (
        "t//Pod/demo/x: decode error: unknown enumeration value 7; "
        "demo/s: decode error: unknown enumeration value 9; "
        "bad: decode: failed to decode Protobuf message: invalid varint"
    )


def rejection(resource: Resource) -> str:
    return str(request(ZtunnelMachine().receive(response(resource))).error_detail.message)


def test_first_fault_of_a_workload_is_the_one_reported() -> None:
    assert rejection(pod(waypoint={}, addresses=[THREE_BYTES], status=7)) == (
        f"{UID}: nonempty gateway address is missing address"
    )
    assert rejection(pod(addresses=[THREE_BYTES], status=7)) == f"{UID}: failed to parse address, had 3 bytes"


@pytest.mark.parametrize("field", ["waypoint", "network_gateway"])
def test_gateway_address_of_wrong_length_is_rejected(field: str) -> None:
    gateway = {field: {"address": {"network": "n", "address": THREE_BYTES}, "hbone_mtls_port": 15008}}

    assert rejection(pod(**gateway)) == f"{UID}: failed to parse address, had 3 bytes"


def test_unknown_routing_scope_is_rejected() -> None:
    assert rejection(named_service(load_balancing={"routing_preference": [7]})) == (
        "demo/s: decode error: unknown enumeration value 7"
    )


def test_prefix_length_is_read_as_eight_bits() -> None:
    assert rejection(named_service(addresses=[{**VIP, "length": 256 + 8}])) == ""


def test_full_prefix_length_is_an_address() -> None:
    machine = ZtunnelMachine()

    machine.receive(response(named_service(addresses=[{**VIP, "length": 32}])))

    (held,) = machine.state.services
    assert [str(vip) for vip in held.vips] == ["n/10.9.0.1"]
    assert held.vip_prefixes == ()


def test_defaults_are_filled_in() -> None:
    machine = ZtunnelMachine()

    machine.receive(response(pod()))

    held = machine.state.workloads.by_uid[UID]
    assert str(held.identity) == "spiffe://cluster.local/ns/demo/sa/default"
    assert (held.cluster_id, held.capacity, held.workload_type) == ("Kubernetes", 1, "deployment")


def test_capacity_zero_is_not_the_default() -> None:
    machine = ZtunnelMachine()

    machine.receive(response(pod(capacity=0)))

    assert machine.state.workloads.by_uid[UID].capacity == 0


def test_ports_are_truncated_to_sixteen_bits() -> None:
    machine = ZtunnelMachine()

    machine.receive(response(named_service(ports=[{"service_port": 65536 + 80, "target_port": 65536 + 8080}])))

    (held,) = machine.state.services
    assert held.ports == {80: 8080}


@pytest.mark.parametrize(
    ("resource", "trait"),
    [
        (named_service(subject_alt_names=["spiffe://t/ns/b/sa/b", "spiffe://t/ns/a/sa/a"]), Trait.UNSORTED_SANS),
        (authorization("p", groups=[{"rules": [{"matches": [{}]}]}]), Trait.EMPTY_MATCH),
        (authorization("p", groups=[{"rules": [{"matches": [{"principals": [{}]}]}]}]), Trait.CONDITION_DROPPED),
        (authorization("p", xds_name="demo/q"), Trait.NAME_IS_NOT_KEY),
    ],
    ids=["unsorted-sans", "empty-match", "string-match-without-type", "policy-under-another-name"],
)
def test_further_oddities_are_noted(resource: Resource, trait: Trait) -> None:
    machine = ZtunnelMachine()

    machine.receive(response(resource))

    assert trait in [oddity.trait for oddity in machine.oddities]


def test_every_app_protocol_of_the_proto_is_known() -> None:
    numbers = protos.istio.workload.AppProtocol.values()
    machine = ZtunnelMachine()

    machine.receive(response(named_service(ports=[{"service_port": n, "app_protocol": n} for n in numbers])))
    machine.receive(response(named_service(ports=[{"app_protocol": max(numbers) + 1}])))

    notes = [oddity.detail for oddity in machine.oddities if oddity.trait is Trait.UNKNOWN_ENUM]
    assert notes == [f"ports: app_protocol {max(numbers) + 1}"]


def test_type_inside_a_resource_is_not_looked_at_but_noted() -> None:
    message = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse.FromString(response(pod()))
    message.resources[0].resource.type_url = "type.googleapis.com/istio.workload.Workload"
    machine = ZtunnelMachine()

    machine.receive(message.SerializeToString())

    assert list(machine.state.workloads.by_uid) == [UID]
    assert [oddity.trait for oddity in machine.oddities] == [Trait.OTHER_TYPE_INSIDE]


def test_unknown_fields_are_noted() -> None:
    machine = ZtunnelMachine()

    machine.receive(raw("x", b"\x1a\x00" + pod()[1].SerializeToString()))

    assert [(oddity.trait, oddity.detail) for oddity in machine.oddities if oddity.trait is Trait.UNKNOWN_FIELD] == [
        (Trait.UNKNOWN_FIELD, "istio.workload.Address#3")
    ]


def test_a_sound_world_has_no_oddities() -> None:
    machine = ZtunnelMachine()

    machine.receive(
        response(
            pod(services={f"demo/{HOST}": ports(p80=8080)}),
            service(HOST, addresses=[VIP], ports=[{"service_port": 80, "target_port": 8080}]),
        )
    )

    assert machine.oddities == []
