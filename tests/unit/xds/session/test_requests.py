"""Requests off the wire: what a real ztunnel sent, and what nobody should send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from xds import protos
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE
from xds.session.requests import (
    MAX_ERROR,
    MAX_EXTENSIONS,
    MAX_NAMES,
    DeltaRequest,
    ProtocolViolation,
    parse_delta,
    parse_sotw,
)

discovery = protos.envoy.service.discovery.v3
RECORDED = json.loads(Path("tests/kit/fixtures/ztunnel/xds_requests.json").read_text())


def delta(**fields: Any) -> bytes:
    return discovery.DeltaDiscoveryRequest(**fields).SerializeToString()


def recorded(request: dict[str, Any]) -> DeltaRequest:
    fields = {name: value for name, value in request.items() if not name.startswith("__")}
    message = json_format.ParseDict(fields, discovery.DeltaDiscoveryRequest(), descriptor_pool=protos.POOL)
    return parse_delta(message.SerializeToString())


def test_the_first_requests_of_a_ztunnel_ask_for_both_types_with_the_node() -> None:
    stream = RECORDED["shared_mode_stream_in_order"]
    requests = [recorded(entry["req"]) for entry in stream if entry["kind"] == "request"]
    first, second = requests[:2]
    assert (first.type_url, second.type_url) == (ADDRESS_TYPE, AUTHORIZATION_TYPE)
    assert first.subscribe == first.unsubscribe == ()
    assert first.node is not None
    assert first.node == second.node
    assert first.node.id == "ztunnel~10.201.0.1~ztunnel-node-b.istio-system~istio-system.svc.cluster.local"
    assert first.node.metadata["NODE_NAME"] == "node-b"


def test_the_answers_of_a_ztunnel_carry_a_nonce_and_neither_node_nor_names() -> None:
    stream = RECORDED["dedicated_client_stream_in_order"]
    last = recorded([entry for entry in stream if entry["kind"] == "request"][-1]["req"])
    assert last == DeltaRequest(AUTHORIZATION_TYPE, response_nonce="n2")


def test_a_ztunnel_that_reconnects_names_what_it_holds() -> None:
    request = recorded(RECORDED["reconnect_initial_requests"][0])
    assert request.initial_resource_versions["demo/echo.demo.svc.cluster.local"] == "85e1638eb154"
    assert len(request.initial_resource_versions) == 4


def test_a_ztunnel_on_demand_subscribes_to_nothing_and_then_to_names() -> None:
    first = recorded(RECORDED["on_demand_initial_address_request"])
    assert (first.subscribe, first.unsubscribe) == (("*",), ("*",))
    assert recorded(RECORDED["on_demand_lookup_request"][0]).subscribe == ("net-b/10.201.100.20",)


def test_a_rejection_is_told_by_its_error() -> None:
    request = recorded(RECORDED["nack_example"][1])
    assert (request.response_nonce, request.error) == ("n39", "nores: XDS payload without resource")


def test_an_error_without_text_is_still_a_rejection() -> None:
    assert parse_delta(delta(error_detail=protos.google.rpc.Status())).error == ""
    assert parse_delta(delta()).error is None


def test_of_metadata_only_what_is_read_is_taken_and_only_as_text() -> None:
    metadata = {"NAME": "a", "NODE_NAME": 1.5, "NAMESPACE": None, "CLUSTER_ID": ["a"], "LABELS": {"b": 2.0}, "X": "y"}
    node = json_format.ParseDict({"metadata": metadata}, protos.envoy.config.core.v3.Node())
    parsed = parse_delta(delta(node=node)).node
    assert parsed is not None
    assert parsed.metadata == {"NAME": "a", "NODE_NAME": None, "NAMESPACE": None, "CLUSTER_ID": None}


@pytest.mark.parametrize(
    ("field", "made"),
    [
        ("resource_names_subscribe", ["a"] * (MAX_NAMES + 1)),
        ("resource_names_unsubscribe", ["a"] * (MAX_NAMES + 1)),
        ("initial_resource_versions", dict.fromkeys(map(str, range(MAX_NAMES + 1)), "")),
        ("node", {"extensions": [{}] * (MAX_EXTENSIONS + 1)}),
    ],
)
def test_a_request_with_too_many_of_something_is_a_violation_that_names_the_limit(field: str, made: Any) -> None:
    with pytest.raises(ProtocolViolation, match=r"in one request; \d+ are the limit"):
        parse_delta(delta(**{field: made}))


def test_too_many_names_of_a_state_of_the_world_are_a_violation() -> None:
    with pytest.raises(ProtocolViolation, match="are the limit"):
        parse_sotw(discovery.DiscoveryRequest(resource_names=["a"] * (MAX_NAMES + 1)).SerializeToString())


def test_of_a_reason_only_the_beginning_is_read() -> None:
    status = protos.google.rpc.Status(message="x" * (MAX_ERROR + 1))
    assert parse_delta(delta(error_detail=status)).error == "x" * MAX_ERROR


def test_unknown_fields_are_ignored() -> None:
    assert parse_delta(delta(type_url="t") + b"\xfa\x3e\x01x") == DeltaRequest("t")


def test_a_state_of_the_world_request() -> None:
    message = discovery.DiscoveryRequest(version_info="v", resource_names=["a", "b"], type_url="t", response_nonce="n")
    message.node.id = "proxy"
    message.node.cluster = "c"
    message.error_detail.message = "no"
    request = parse_sotw(message.SerializeToString())
    assert (request.type_url, request.names, request.version_info) == ("t", ("a", "b"), "v")
    assert (request.response_nonce, request.error) == ("n", "no")
    assert request.node is not None
    assert (request.node.id, request.node.cluster, request.node.metadata) == ("proxy", "c", {})


@pytest.mark.parametrize("parse", [parse_delta, parse_sotw])
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"\x22\x02\xff\xfe"], ids=["tag", "length", "utf-8"])
def test_bytes_that_are_no_request_are_a_violation_that_says_so(parse: Any, data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match=rf"a message of {len(data)} bytes is no (Delta)?DiscoveryRequest"):
        parse(data)


def test_metadata_nested_without_end_is_a_violation_and_no_crash() -> None:
    message = discovery.DeltaDiscoveryRequest()
    inner = message.node.metadata.fields["a"]
    for _ in range(200):
        inner = inner.struct_value.fields["a"]
    with pytest.raises(ProtocolViolation):
        parse_delta(message.SerializeToString())
