"""Clusters as bytes: where endpoints come from, and how connections to them are made."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import golden
from xds import protos
from xds.messages.cluster import (
    NO_LIMIT,
    Cluster,
    Discovered,
    InternalListener,
    Nothing,
    OriginalDestination,
    ServiceMetadata,
    SocketMatch,
    Source,
    encode_cluster,
)
from xds.messages.extension import Extension, extension
from xds.messages.hbone import RAW, connect_options, internal_upstream

proto = protos.envoy.config.cluster.v3.Cluster


def shown(source: Source, **fields: Any) -> dict[str, Any]:
    return golden.to_json(proto.FromString(encode_cluster(Cluster("c", source, **fields)).data))


def test_discovered_endpoints_come_over_the_same_stream_under_the_clusters_name_and_are_waited_for() -> None:
    told = shown(Discovered())
    assert (told["type"], told["lb_policy"]) == ("EDS", "LEAST_REQUEST")
    source = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
    assert told["eds_cluster_config"] == {"eds_config": source}
    assert shown(Discovered(named=True))["eds_cluster_config"] == {"eds_config": source, "service_name": "c"}
    assert told["common_lb_config"] == {"healthy_panic_threshold": {}}


def test_clusters_that_differ_in_their_names_alone_are_as_if_made_one_by_one() -> None:
    def made(name: str, timeout: int) -> Any:
        cluster = Cluster(name, Discovered(), transport_socket=RAW, connect_timeout=timeout)
        return proto.FromString(encode_cluster(cluster).data)

    first, second, other = made("a", 1), made("b" * 200, 1), made("a", 2)
    assert (first.name, second.name, other.name) == ("a", "b" * 200, "a")
    second.name = "a"
    assert first == second
    other.connect_timeout.seconds = 1
    assert first == other


def test_an_internal_listener_is_the_one_endpoint() -> None:
    told = shown(InternalListener("next"))
    assert told["type"] == "STATIC"
    (locality,) = told["load_assignment"]["endpoints"]
    assert locality["lb_endpoints"] == [
        {"endpoint": {"address": {"envoy_internal_address": {"server_listener_name": "next"}}}}
    ]


@pytest.mark.parametrize(
    ("source", "config"),
    [
        (OriginalDestination(), None),
        (
            OriginalDestination(dialled=True),
            {"metadata_key": {"key": "envoy.filters.listener.original_dst", "path": [{"key": "waypoint"}]}},
        ),
        (OriginalDestination(port=15008), {"upstream_port_override": 15008}),
    ],
)
def test_the_original_destination_or_what_the_metadata_says_is_dialled(
    source: OriginalDestination, config: dict[str, Any] | None
) -> None:
    told = shown(source)
    assert (told["type"], told["lb_policy"]) == ("ORIGINAL_DST", "CLUSTER_PROVIDED")
    assert told.get("original_dst_lb_config") == config


def test_a_cluster_of_nothing_has_no_endpoints() -> None:
    assert shown(Nothing()) == {
        "@type": f"type.googleapis.com/{proto.DESCRIPTOR.full_name}",
        "name": "c",
        "type": "STATIC",
    }


@pytest.mark.parametrize("source", [Discovered(), InternalListener("next"), OriginalDestination()])
def test_nothing_is_limited(source: Source) -> None:
    (thresholds,) = shown(source)["circuit_breakers"]["thresholds"]
    assert set(thresholds.values()) == {NO_LIMIT}
    assert len(thresholds) == 4


def test_sockets_options_and_names_are_told() -> None:
    match = SocketMatch("tunnel", (("tunnel", "http"),), internal_upstream())
    options = connect_options()
    told = shown(
        Discovered(),
        transport_socket=RAW,
        socket_matches=(match,),
        http_options=options,
        connect_timeout=10,
        stat_name="c;",
    )
    assert told["transport_socket"]["name"] == "raw_buffer"
    (matched,) = told["transport_socket_matches"]
    assert (matched["name"], matched["match"]) == ("tunnel", {"tunnel": "http"})
    assert matched["transport_socket"]["name"] == "internal_upstream"
    assert list(told["typed_extension_protocol_options"]) == [options.name]
    assert (told["connect_timeout"], told["alt_stat_name"]) == ("10s", "c;")


def test_a_service_is_told_as_metadata() -> None:
    told = shown(Discovered(), service=ServiceMetadata("cart.shop", "shop", "cart", "tcp"))
    service = {"host": "cart.shop", "name": "cart", "namespace": "shop"}
    assert told["metadata"]["filter_metadata"] == {"istio": {"services": [service], "subset": "tcp"}}


def test_a_cluster_parted_by_source_gives_nobody_the_endpoints_of_others() -> None:
    told = shown(Discovered(), by_source=True)
    # NO_FALLBACK is the default, which the form of the records leaves out.
    assert told["lb_subset_config"] == {"list_as_any": True, "subset_selectors": [{"keys": ["source"]}]}
    assert "lb_subset_config" not in shown(Discovered())


def test_an_extension_has_the_type_of_its_configuration() -> None:
    made = extension("x", protos.google.protobuf.StringValue(value="y"))
    assert made == Extension("x", "type.googleapis.com/google.protobuf.StringValue", b"\x0a\x01y")
