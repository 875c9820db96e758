"""The decoder is as strict as ztunnel's, with its words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.ztunnel.messages import recorded_world
from tests.kit.ztunnel.wire import Malformed, unknown_fields
from xds import protos

WORKLOAD = protos.istio.workload.Workload.DESCRIPTOR


def tag(number: int, wire_type: int) -> bytes:
    key = number << 3 | wire_type
    return bytes([key]) if key < 0x80 else bytes([key & 0x7F | 0x80, key >> 7])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff", "invalid varint"),
        (b"\xff" * 11, "invalid varint"),
        (b"\xff" * 9 + b"\x02", "invalid varint"),
        (b"\x00\x01", "invalid tag value: 0"),
        (tag(1, 6), "invalid wire type value: 6"),
        (b"\xff\xff\xff\xff\x7f", f"invalid key value: {0x7FFFFFFFF}"),
        (tag(1, 2) + b"\x05abc", "buffer underflow"),
        (tag(1, 0) + b"\x01", "invalid wire type: Varint (expected LengthDelimited)"),
        (tag(5, 2) + b"\x01\x01", "invalid wire type: LengthDelimited (expected Varint)"),
        (tag(1, 2) + b"\x01\xff", "invalid string value: data is not UTF-8 encoded"),
        (tag(1, 4), "unexpected end group tag"),
        (tag(200, 3) + tag(201, 4), "unexpected end group tag"),
        (tag(200, 3), "buffer underflow"),
        (tag(200, 1) + b"1234567", "buffer underflow"),
        (tag(24, 2) + b"\x02" + tag(1, 2) + b"\x09", "buffer underflow"),
    ],
)
def test_malformed_bytes_are_refused_with_the_decoders_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed) as refused:
        unknown_fields(data, WORKLOAD)

    assert str(refused.value) == reason


def test_unknown_fields_are_named_at_any_depth() -> None:
    data = (
        tag(200, 0) + b"\x01"
        + tag(201, 1) + b"12345678"
        + tag(202, 5) + b"1234"
        + tag(203, 3) + tag(1, 0) + b"\x01" + tag(203, 4)
        + tag(24, 2) + b"\x03" + tag(9, 2) + b"\x01x"
    )  # fmt: skip

    assert unknown_fields(data, WORKLOAD) == (
        "istio.workload.Workload#200",
        "istio.workload.Workload#201",
        "istio.workload.Workload#202",
        "istio.workload.Workload#203",
        "istio.workload.Locality#9",
    )


def test_repeated_numbers_may_be_packed_or_not() -> None:
    match = protos.istio.security.Match.DESCRIPTOR

    assert unknown_fields(tag(9, 2) + b"\x02\x50\x51" + tag(9, 0) + b"\x52", match) == ()


@pytest.mark.parametrize("view", ["a", "b"])
def test_a_sound_message_has_no_unknown_fields(view: str) -> None:
    for _, message in recorded_world(view):
        assert unknown_fields(message.SerializeToString(), message.DESCRIPTOR) == ()


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_what_passes_the_walk_is_read_by_the_parser(data: bytes) -> None:
    try:
        unknown_fields(data, WORKLOAD)
    except Malformed:
        return
    protos.istio.workload.Workload.FromString(data)
