"""Reads protobuf bytes as strictly as ztunnel's decoder does, which is stricter than Python's.

Python's decoder takes a known field of the wrong wire type for an unknown one and says of broken bytes only that they
are corrupt. `unknown_fields` walks a message along its descriptor, raises `Malformed` with the reason ztunnel would
put into its rejection, and returns the fields that neither side knows, so that hand-framed messages cannot hide a
mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

VARINT, FIXED64, DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)
_NAMES = ("Varint", "SixtyFourBit", "LengthDelimited", "StartGroup", "EndGroup", "ThirtyTwoBit")

_WIRE_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: FIXED64,
    FieldDescriptor.TYPE_FIXED64: FIXED64,
    FieldDescriptor.TYPE_SFIXED64: FIXED64,
    FieldDescriptor.TYPE_FLOAT: FIXED32,
    FieldDescriptor.TYPE_FIXED32: FIXED32,
    FieldDescriptor.TYPE_SFIXED32: FIXED32,
    FieldDescriptor.TYPE_STRING: DELIMITED,
    FieldDescriptor.TYPE_BYTES: DELIMITED,
    FieldDescriptor.TYPE_MESSAGE: DELIMITED,
}
"""Wire type of each field type; those not listed are varints."""


class Malformed(Exception):
    """Bytes that ztunnel's decoder refuses; the text is the decoder's own description."""


def unknown_fields(data: bytes, descriptor: Any) -> tuple[str, ...]:
    """Fields of the message in `data`, at any depth, that `descriptor` does not declare, as `<message>#<number>`.

    Raises Malformed if ztunnel's decoder would not read `data`.
    """
    return tuple(_walk(memoryview(data), descriptor))


def _walk(data: memoryview, descriptor: Any) -> Iterator[str]:
    position = 0
    while position < len(data):
        number, wire_type, position = _key(data, position)
        if wire_type == END_GROUP:
            raise Malformed("unexpected end group tag")
        field = descriptor.fields_by_number.get(number)
        start, position = _extent(data, position, number, wire_type)
        if field is None:
            yield f"{descriptor.full_name}#{number}"
            continue
        _check_wire_type(field, wire_type)
        value = data[start:position]
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from _walk(value, field.message_type)
        elif field.type == FieldDescriptor.TYPE_STRING:
            try:
                bytes(value).decode("utf-8")
            except UnicodeDecodeError:
                raise Malformed("invalid string value: data is not UTF-8 encoded") from None


def _check_wire_type(field: Any, wire_type: int) -> None:
    expected = _WIRE_TYPES.get(field.type, VARINT)
    packed = field.is_repeated and expected != DELIMITED and wire_type == DELIMITED
    if wire_type != expected and not packed:
        raise Malformed(f"invalid wire type: {_NAMES[wire_type]} (expected {_NAMES[expected]})")


def _key(data: memoryview, position: int) -> tuple[int, int, int]:
    key, position = _varint(data, position)
    if key > 0xFFFF_FFFF:
        raise Malformed(f"invalid key value: {key}")
    number, wire_type = key >> 3, key & 7
    if wire_type > FIXED32:
        raise Malformed(f"invalid wire type value: {wire_type}")
    if number == 0:
        raise Malformed("invalid tag value: 0")
    return number, wire_type, position


def _extent(data: memoryview, position: int, number: int, wire_type: int) -> tuple[int, int]:
    """Where the value of a field starts and where it ends."""
    match wire_type:
        case 0:
            return position, _varint(data, position)[1]
        case 1:
            end = position + 8
        case 5:
            end = position + 4
        case 2:
            length, position = _varint(data, position)
            end = position + length
        case _:
            return position, _group(data, position, number)
    if end > len(data):
        raise Malformed("buffer underflow")
    return position, end


def _group(data: memoryview, position: int, number: int) -> int:
    """Where the group that was opened as field `number` ends, behind its closing tag."""
    while position < len(data):
        inner, wire_type, position = _key(data, position)
        if wire_type == END_GROUP:
            if inner != number:
                raise Malformed("unexpected end group tag")
            return position
        _, position = _extent(data, position, inner, wire_type)
    raise Malformed("buffer underflow")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(10):
        if position + index >= len(data):
            break
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if index == 9 and byte > 1:
                break
            return value, position + index + 1
    raise Malformed("invalid varint")
