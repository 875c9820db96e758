"""Whatever the content, framing by hand means what protobuf's own encoder means."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from xds import protos
from xds.encoded import Encoded, concatenate, delta_response, discovery_response, encode, varint, wrap

discovery = protos.envoy.service.discovery.v3

texts = st.text(st.characters(codec="utf-8"), max_size=40)
data = st.one_of(st.binary(max_size=64), st.integers(100, 40_000).map(bytes))
digests = st.binary(min_size=16, max_size=16)
contents = st.builds(Encoded, data, digests)
wrapped = st.tuples(texts, contents, st.lists(texts, max_size=3))


@settings(max_examples=300)
@given(st.integers(0, 2**64 - 1))
def test_varints_are_read_back_by_protobuf(number: int) -> None:
    assert protos.google.protobuf.UInt64Value.FromString(b"\x08" + varint(number)).value == number


@settings(max_examples=150)
@given(texts, texts, texts, st.lists(wrapped, max_size=4), st.lists(texts, max_size=3))
def test_delta_responses_equal_protobufs(
    type_url: str, nonce: str, version: str, resources: list[tuple[str, Encoded, list[str]]], removed: list[str]
) -> None:
    expected = discovery.DeltaDiscoveryResponse(
        system_version_info=version, type_url=type_url, nonce=nonce, removed_resources=removed
    )
    for name, encoded, aliases in resources:
        content = protos.google.protobuf.Any(type_url=type_url, value=encoded.data)
        expected.resources.add(name=name, version=encoded.digest.hex(), resource=content, aliases=aliases)
    made = [wrap(type_url, name, encoded, aliases) for name, encoded, aliases in resources]
    response = delta_response(type_url, nonce, made, removed, version)
    assert discovery.DeltaDiscoveryResponse.FromString(response) == expected
    assert all(resource.body == encoded.data for resource, (_, encoded, _) in zip(made, resources, strict=True))
    if type_url:  # protobuf leaves out what is empty, and an Any without type is nothing a product makes
        assert response == expected.SerializeToString(deterministic=True)


@settings(max_examples=150)
@given(texts, texts, texts, st.lists(wrapped, max_size=4))
def test_state_of_the_world_responses_equal_protobufs(
    type_url: str, nonce: str, version: str, resources: list[tuple[str, Encoded, list[str]]]
) -> None:
    expected = discovery.DiscoveryResponse(version_info=version, type_url=type_url, nonce=nonce)
    for _, encoded, _ in resources:
        expected.resources.add(type_url=type_url, value=encoded.data)
    made = [wrap(type_url, name, encoded, aliases) for name, encoded, aliases in resources]
    response = discovery_response(type_url, nonce, version, made)
    assert discovery.DiscoveryResponse.FromString(response) == expected


ports = st.builds(
    protos.istio.workload.Port, service_port=st.integers(0, 2**32 - 1), target_port=st.integers(0, 2**32 - 1)
)


@settings(max_examples=100)
@given(texts, st.lists(ports, max_size=5))
def test_a_message_joined_from_its_children_equals_the_message(
    name: str, children: list[protos.istio.workload.Port]
) -> None:
    head = protos.istio.workload.Service(name=name)
    joined = concatenate(head.SerializeToString(), [(5, encode(port)) for port in children])
    assert joined.data == protos.istio.workload.Service(name=name, ports=children).SerializeToString(deterministic=True)


@settings(max_examples=200)
@given(st.lists(contents, max_size=3), st.lists(contents, max_size=3), data, data)
def test_joined_digests_are_equal_only_for_equal_parts(
    some: list[Encoded], others: list[Encoded], head: bytes, other_head: bytes
) -> None:
    first = concatenate(head, [(1, child) for child in some])
    second = concatenate(other_head, [(1, child) for child in others])
    same_parts = head == other_head and [child.digest for child in some] == [child.digest for child in others]
    assert (first.digest == second.digest) == same_parts
