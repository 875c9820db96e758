"""Framing by hand against protobuf's own encoder, and what the digests promise."""

from __future__ import annotations

import pytest

from xds import protos
from xds.encoded import (
    DIGEST_SIZE,
    Encoded,
    concatenate,
    delta_response,
    discovery_response,
    encode,
    varint,
    with_aliases,
    wrap,
)

TYPE = "type.googleapis.com/istio.workload.Address"
discovery = protos.envoy.service.discovery.v3


def address(name: str, **services: int) -> protos.istio.workload.Address:
    message = protos.istio.workload.Address()
    message.workload.name = name
    for service, port in services.items():
        message.workload.services[service].ports.add(service_port=port)
    return message


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**32 - 1, 2**63])
def test_a_varint_is_what_protobuf_writes(number: int) -> None:
    message = protos.google.protobuf.UInt64Value(value=number)
    expected = message.SerializeToString()
    assert (b"\x08" + varint(number) if number else b"") == expected


def test_map_entries_are_encoded_in_one_order_whatever_order_they_came_in() -> None:
    forward, backward = address("a", x=1, y=2, z=3), address("a", z=3, y=2, x=1)
    assert encode(forward) == encode(backward)


def test_a_digest_has_16_bytes_and_follows_the_content() -> None:
    first, other = encode(address("a")), encode(address("b"))
    assert len(first.digest) == DIGEST_SIZE
    assert first.digest != other.digest
    assert encode(address("a")).digest == first.digest


def test_content_with_equal_digests_but_other_bytes_is_not_equal() -> None:
    digest = bytes(DIGEST_SIZE)
    assert Encoded(b"a", digest) != Encoded(b"b", digest)


def test_the_version_is_the_digest_in_fixed_width_hexadecimal() -> None:
    resource = wrap(TYPE, "a", Encoded(b"", b"\x00" * 15 + b"\x07"))
    assert resource.version == "0" * 31 + "7"


@pytest.mark.parametrize("aliases", [(), ("net/10.0.0.1",), ("net/10.0.0.1", "net/10.0.0.2")])
@pytest.mark.parametrize("size", [0, 1, 90, 200, 20_000])
def test_a_frame_is_byte_for_byte_what_protobuf_makes_of_the_same_response(size: int, aliases: tuple[str, ...]) -> None:
    encoded = encode(address("x" * size))
    expected = discovery.DeltaDiscoveryResponse()
    expected.resources.add(
        name="shop/cart-é",
        version=encoded.digest.hex(),
        aliases=aliases,
        resource=protos.google.protobuf.Any(type_url=TYPE, value=encoded.data),
    )
    assert wrap(TYPE, "shop/cart-é", encoded, aliases).frame == expected.SerializeToString(deterministic=True)


@pytest.mark.parametrize("size", [0, 1, 90, 200, 20_000])
def test_any_and_body_are_views_into_the_frame(size: int) -> None:
    encoded = encode(address("x" * size))
    resource = wrap(TYPE, "a", encoded, ("alias",))
    assert protos.google.protobuf.Any.FromString(resource.any.tobytes()).value == encoded.data
    assert resource.body == encoded.data
    assert resource.any.obj is resource.body.obj is resource.frame


def test_an_empty_message_has_an_empty_body() -> None:
    empty = wrap(TYPE, "a", encode(protos.istio.workload.Address()))
    assert not empty.body
    assert protos.google.protobuf.Any.FromString(empty.any.tobytes()).type_url == TYPE


def test_resources_differ_by_name_content_and_aliases() -> None:
    encoded, other = encode(address("a")), encode(address("b"))
    resource = wrap(TYPE, "a", encoded)
    assert resource == wrap(TYPE, "a", encoded)
    assert resource != wrap(TYPE, "b", encoded)
    assert resource != wrap(TYPE, "a", other)
    assert resource != wrap(TYPE, "a", encoded, ("alias",))


def test_a_delta_response_is_byte_for_byte_protobufs() -> None:
    encoded = [encode(address(name)) for name in ("a", "b")]
    expected = discovery.DeltaDiscoveryResponse(
        system_version_info="7", type_url=TYPE, nonce="n1", removed_resources=["gone", "lost"]
    )
    for name, content in zip("ab", encoded, strict=True):
        expected.resources.add(
            name=name,
            version=content.digest.hex(),
            resource=protos.google.protobuf.Any(type_url=TYPE, value=content.data),
        )
    resources = [wrap(TYPE, name, content) for name, content in zip("ab", encoded, strict=True)]
    response = delta_response(TYPE, "n1", resources, ("gone", "lost"), "7")
    assert response == expected.SerializeToString(deterministic=True)


def test_a_state_of_the_world_response_is_byte_for_byte_protobufs() -> None:
    encoded = [encode(address(name)) for name in ("", "a", "b" * 300)]
    expected = discovery.DiscoveryResponse(version_info="v", type_url=TYPE, nonce="n1")
    for content in encoded:
        expected.resources.add(type_url=TYPE, value=content.data)
    resources = [wrap(TYPE, f"name-{n}", content, ("alias",)) for n, content in enumerate(encoded)]
    assert discovery_response(TYPE, "n1", "v", resources) == expected.SerializeToString(deterministic=True)


def test_an_empty_response_still_has_type_and_nonce() -> None:
    response = discovery.DeltaDiscoveryResponse.FromString(delta_response(TYPE, "n1", (), (), ""))
    assert (response.type_url, response.nonce) == (TYPE, "n1")
    assert not response.resources


def test_concatenated_children_are_the_parents_repeated_field() -> None:
    ports = [protos.istio.workload.Port(service_port=number) for number in (80, 81, 70_000)]
    head = protos.istio.workload.Service(name="cart")
    joined = concatenate(head.SerializeToString(), [(5, encode(port)) for port in ports])
    assert protos.istio.workload.Service.FromString(joined.data) == protos.istio.workload.Service(
        name="cart", ports=ports
    )


def test_the_digest_of_a_concatenation_follows_head_children_their_order_and_fields() -> None:
    one, two = Encoded(b"1", b"1" * 16), Encoded(b"2", b"2" * 16)
    made = [
        concatenate(b"", [(5, one), (5, two)]),
        concatenate(b"", [(5, two), (5, one)]),
        concatenate(b"", [(6, one), (5, two)]),
        concatenate(b"h", [(5, one), (5, two)]),
        concatenate(b"", [(5, one)]),
        concatenate(b"", []),
    ]
    assert len({encoded.digest for encoded in made}) == len(made)
    assert concatenate(b"", [(5, one), (5, two)]) == made[0]


def test_records_are_not_tracked_by_the_garbage_collector() -> None:
    import gc

    encoded = encode(address("a"))
    assert not gc.is_tracked(encoded)
    assert not gc.is_tracked(wrap(TYPE, "a", encoded))


def test_neither_shows_its_bytes_which_may_hold_a_key() -> None:
    encoded = Encoded(b"treasure", bytes(16))
    resource = wrap("type", "name", encoded)
    for shown in (repr(encoded), str(resource), str([*encoded.__rich_repr__(), *resource.__rich_repr__()])):
        assert "treasure" not in shown
        assert bytes(16).hex() in shown


def test_further_names_are_added_to_what_was_wrapped_without() -> None:
    encoded = encode(address("a", x=1))
    added = with_aliases(wrap(TYPE, "a", encoded), ("net/10.0.0.1", "net/10.0.0.2"))
    assert added == wrap(TYPE, "a", encoded, ("net/10.0.0.1", "net/10.0.0.2"))
