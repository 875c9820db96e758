"""Assignments: endpoints as bytes, and their composition out of kept encodings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import golden
from xds import protos
from xds.encoded import Encoded
from xds.messages.addressing import Locality
from xds.messages.assignment import (
    DoubleTunnel,
    Endpoint,
    Group,
    SocketEndpoint,
    TunnelEndpoint,
    encode_assignment,
    encode_endpoint,
    socket_text,
)

proto = protos.envoy.config.endpoint.v3
HERE = encode_endpoint(SocketEndpoint("10.0.0.1", 8080))
THERE = encode_endpoint(SocketEndpoint("10.0.0.2", 8080, weight=3))


def shown(endpoint: Endpoint) -> dict[str, Any]:
    return golden.to_json(proto.LbEndpoint.FromString(encode_endpoint(endpoint).data))


def metadata(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = shown(endpoint)["metadata"]["filter_metadata"]
    return found


def assignment(*groups: Group, name: str = "c") -> protos.envoy.config.endpoint.v3.ClusterLoadAssignment:
    return proto.ClusterLoadAssignment.FromString(encode_assignment(name, groups).data)


@pytest.mark.parametrize(("address", "text"), [("10.0.0.1", "10.0.0.1:80"), ("fd00::1", "[fd00::1]:80")])
def test_an_address_with_a_port_as_text(address: str, text: str) -> None:
    assert socket_text(address, 80) == text


def test_an_endpoint_on_a_socket() -> None:
    assert shown(SocketEndpoint("10.0.0.1", 8080, weight=2)) == {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",
        "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 8080}}},
        "health_status": "HEALTHY",
        "load_balancing_weight": 2,
    }


def test_an_endpoint_behind_an_internal_listener_has_its_destination_as_id_and_in_its_metadata() -> None:
    endpoint = TunnelEndpoint("forward", "10.0.0.1:8080")
    assert shown(endpoint)["endpoint"]["address"] == {
        "envoy_internal_address": {"server_listener_name": "forward", "endpoint_id": "10.0.0.1:8080"}
    }
    assert metadata(endpoint) == {"envoy.filters.listener.original_dst": {"local": "10.0.0.1:8080"}}


def test_another_address_to_dial_stands_beside_the_destination() -> None:
    told = metadata(TunnelEndpoint("forward", "10.0.0.1:8080", dialled="10.0.0.1:15008"))
    assert told["envoy.filters.listener.original_dst"] == {"local": "10.0.0.1:8080", "waypoint": "10.0.0.1:15008"}


def test_identities_workload_and_socket_match_are_told() -> None:
    endpoint = TunnelEndpoint(
        "originate",
        "10.0.0.1:8080",
        identities=("spiffe://td/ns/a/sa/a", "spiffe://td/ns/a/sa/b"),
        workload="a;ns;a;;c",
        matched=(("tunnel", "http"),),
    )
    told = metadata(endpoint)
    assert told["istio"] == {"identities": "spiffe://td/ns/a/sa/a,spiffe://td/ns/a/sa/b", "workload": "a;ns;a;;c"}
    assert told["envoy.transport_socket_match"] == {"tunnel": "http"}


def test_the_kinds_of_clients_that_an_endpoint_is_for_are_told() -> None:
    told = metadata(TunnelEndpoint("forward", "10.0.0.1:8080", sources=("waypoint", "gateway")))
    assert told["envoy.lb"] == {"source": ["waypoint", "gateway"]}


def test_a_double_tunnel_tells_its_authority_and_who_may_answer_each_of_its_two() -> None:
    double = DoubleTunnel("cart.shop:80", ("spiffe://td/ns/shop/sa/cart",), ("spiffe://td/ns/edge/sa/gateway",))
    assert metadata(TunnelEndpoint("inner", "192.0.2.1:15008", double=double))["istio"] == {
        "double_hbone": {
            "hbone_target_address": "cart.shop:80",
            "inner": "spiffe://td/ns/shop/sa/cart",
            "outer": "spiffe://td/ns/edge/sa/gateway",
        }
    }


def test_where_nobody_may_answer_the_list_is_not_empty() -> None:
    """An Envoy takes an empty list for no demand at all, so that everybody of the trust domain could answer."""
    told = metadata(TunnelEndpoint("inner", "192.0.2.1:15008", double=DoubleTunnel("cart.shop:80", (), ())))
    names = told["istio"]["double_hbone"]
    assert (names["inner"], names["outer"]) == ("-", "-")


def test_an_assignment_without_endpoints_names_its_cluster() -> None:
    assert assignment() == proto.ClusterLoadAssignment(cluster_name="c")


def test_an_assignment_is_what_one_serialisation_would_make_of_it() -> None:
    groups = [
        Group((HERE,), 1, Locality("r1", "z1", "s1")),
        Group((THERE, HERE), 4, Locality("r2", "", ""), priority=1),
        Group((THERE,), 3),
    ]
    expected = proto.ClusterLoadAssignment(cluster_name="c")
    first = expected.endpoints.add()
    first.locality.region, first.locality.zone, first.locality.sub_zone = "r1", "z1", "s1"
    second = expected.endpoints.add(priority=1)
    second.locality.region = "r2"
    third = expected.endpoints.add()
    for place, weight, members in ((first, 1, (HERE,)), (second, 4, (THERE, HERE)), (third, 3, (THERE,))):
        place.load_balancing_weight.value = weight
        place.lb_endpoints.extend(proto.LbEndpoint.FromString(member.data) for member in members)
    assert assignment(*groups) == expected


def test_a_locality_that_is_given_is_told_even_if_it_is_empty() -> None:
    assert assignment(Group((HERE,), 1, Locality("", "", ""))).endpoints[0].HasField("locality")
    assert not assignment(Group((HERE,), 1)).endpoints[0].HasField("locality")


def test_the_digest_tells_every_part() -> None:
    made: list[Encoded] = [
        encode_assignment("c", [Group((HERE,), 1)]),
        encode_assignment("d", [Group((HERE,), 1)]),
        encode_assignment("c", [Group((THERE,), 1)]),
        encode_assignment("c", [Group((HERE,), 2)]),
        encode_assignment("c", [Group((HERE,), 1, priority=1)]),
        encode_assignment("c", [Group((HERE,), 1, Locality("r", "", ""))]),
        encode_assignment("c", [Group((HERE, THERE), 1)]),
        encode_assignment("c", [Group((THERE, HERE), 1)]),
        encode_assignment("c", [Group((HERE,), 1), Group((THERE,), 1)]),
        encode_assignment("c"),
    ]
    assert len({one.digest for one in made}) == len(made)
    assert encode_assignment("c", [Group((HERE,), 1)]) == made[0]


def test_composing_reads_no_endpoint() -> None:
    """What is kept is trusted: an assignment of thousands is a copy."""
    strange = Encoded(b"\xff\xff", b"0123456789abcdef")
    assert encode_assignment("c", [Group((strange,), 1)]).data.endswith(b"\x12\x02\xff\xff")
