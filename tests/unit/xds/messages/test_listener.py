"""Listeners as bytes, and the matchers that pick their chains."""

from __future__ import annotations

from typing import Any

from tests.kit import golden
from xds import protos
from xds.messages.filters import AccessLog, http_inspector, original_destination, stdout_log, tcp_proxy
from xds.messages.hbone import RAW
from xds.messages.listener import FilterChain, Listener, ListenerFilter, SocketAddress, encode_listener
from xds.messages.matcher import (
    DESTINATION_PORT,
    AddressMatch,
    AddressRange,
    ExactMatch,
    Match,
    encode_matcher,
    filter_state_input,
)

PROXY = tcp_proxy("c", "c")


def shown(listener: Listener) -> dict[str, Any]:
    message = protos.envoy.config.listener.v3.Listener.FromString(encode_listener(listener).data)
    return golden.to_json(message)


def matcher(match: Match) -> dict[str, Any]:
    return golden.to_json(protos.xds.type.matcher.v3.Matcher.FromString(encode_matcher(match)))


def picked(name: str) -> dict[str, Any]:
    value = {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": name}
    return {"action": {"name": name, "typed_config": value}}


def test_a_listener_without_an_address_is_internal() -> None:
    told = shown(Listener("l", (FilterChain((PROXY,)),)))
    assert told["internal_listener"] == {}
    assert "address" not in told


def test_a_listener_on_a_socket() -> None:
    told = shown(Listener("l", (FilterChain((PROXY,)),), address=SocketAddress("::", 15008)))
    assert told["address"] == {"socket_address": {"address": "::", "port_value": 15008}}
    assert "internal_listener" not in told


def test_chains_hold_their_filters_in_order_and_their_socket() -> None:
    other = tcp_proxy("d", "d")
    (chain,) = shown(Listener("l", (FilterChain((other, PROXY), "n", transport_socket=RAW),)))["filter_chains"]
    assert [one["typed_config"]["cluster"] for one in chain["filters"]] == ["d", "c"]
    assert (chain["name"], chain["transport_socket"]["name"]) == ("n", "raw_buffer")


def test_a_listener_filter_can_be_off_for_ports() -> None:
    filters = (
        ListenerFilter(original_destination()),
        ListenerFilter(http_inspector(), disabled_on=(80,)),
        ListenerFilter(http_inspector(), disabled_on=(80, 8080)),
    )
    told = shown(Listener("l", (FilterChain((PROXY,)),), listener_filters=filters))["listener_filters"]
    first, second = ({"destination_port_range": {"start": port, "end": port + 1}} for port in (80, 8080))
    assert [one.get("filter_disabled") for one in told] == [None, first, {"or_match": {"rules": [first, second]}}]


def test_what_is_left_out_is_not_said() -> None:
    told = shown(Listener("l", (FilterChain((PROXY,)),)))
    assert set(told) == {"@type", "name", "internal_listener", "filter_chains"}


def test_what_is_given_is_said() -> None:
    log = AccessLog(stdout_log({"a": "%B%"}), failures=True)
    listener = Listener(
        "l", (FilterChain((PROXY,)),), access_logs=(log,), inbound=True, balanced=True, use_original_dst=False
    )
    told = shown(listener)
    assert told["traffic_direction"] == "INBOUND"
    assert told["connection_balance_config"] == {"exact_balance": {}}
    assert told["use_original_dst"] is False
    (access_log,) = told["access_log"]
    assert access_log["filter"] == {"response_flag_filter": {"flags": ["UF"]}}
    assert access_log["typed_config"]["log_format"] == {"json_format": {"a": "%B%"}}


def test_a_proxy_asks_for_endpoints_for_one_kind_of_client_if_told_so() -> None:
    asking = tcp_proxy("c", "c", source="waypoint")
    (proxy, other) = shown(Listener("x", (FilterChain((asking, PROXY)),)))["filter_chains"][0]["filters"]
    asked = {"filter_metadata": {"envoy.lb": {"source": "waypoint"}}}
    assert proxy["typed_config"]["metadata_match"] == asked
    assert "metadata_match" not in other["typed_config"]


def test_a_matcher_is_part_of_the_listener() -> None:
    match = ExactMatch(DESTINATION_PORT, (("80", "n"),))
    told = shown(Listener("l", (FilterChain((PROXY,), "n"),), matcher=encode_matcher(match)))
    assert told["filter_chain_matcher"] == {key: value for key, value in matcher(match).items() if key != "@type"}


def test_exact_values_pick_names_or_go_on() -> None:
    inner = ExactMatch(DESTINATION_PORT, (("80", "b"),))
    told = matcher(ExactMatch(filter_state_input("authority", "key"), (("a:1", "a"), ("b:1", inner)), otherwise="c"))
    tree = told["matcher_tree"]
    assert tree["input"]["name"] == "authority"
    assert tree["input"]["typed_config"]["key"] == "key"
    assert tree["exact_match_map"]["map"]["a:1"] == picked("a")
    nested = tree["exact_match_map"]["map"]["b:1"]["matcher"]["matcher_tree"]
    assert nested["exact_match_map"]["map"] == {"80": picked("b")}
    assert told["on_no_match"] == picked("c")


def test_an_exact_match_without_values_is_a_map_all_the_same() -> None:
    assert matcher(ExactMatch(DESTINATION_PORT, ()))["matcher_tree"]["exact_match_map"] == {}


def test_addresses_pick_by_range() -> None:
    ranges = (AddressRange("10.0.0.1", 32), AddressRange("fd00::", 64))
    told = matcher(AddressMatch(((ranges, "a"),), otherwise="b"))
    tree = told["matcher_tree"]
    assert tree["input"]["typed_config"]["@type"].endswith("DestinationIPInput")
    assert tree["custom_match"]["typed_config"]["range_matchers"] == [
        {
            "ranges": [
                {"address_prefix": "10.0.0.1", "prefix_len": 32},
                {"address_prefix": "fd00::", "prefix_len": 64},
            ],
            "on_match": picked("a"),
        }
    ]
    assert told["on_no_match"] == picked("b")
