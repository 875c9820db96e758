"""Inputs of people who mean harm: sound ones with something done to them, at every level of their structure.

`damaged` knows nothing of what the bytes mean, `damaged_message` takes a protobuf message apart at its fields, and
`damaged_der` takes DER apart at its elements; both also go into what is nested and usually put right the lengths around
it, so that the damage reaches the code behind the parser. `damaged_value` does the same to JSON-like values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

TEXTS: Sequence[bytes] = (
    b"",
    b"\0",
    b"a\0b",
    b"\xff\xfe",
    b"\xed\xa0\x80",  # Half of a surrogate pair.
    b"\xc0\xaf",
    b"\xf4\x90\x80\x80",
    b"\r\nx: y",
    b"%00%0a%2e%2e/",
    b"../../etc/passwd",
    b"*",
    b"x" * 2000,
    b"\xf0\x9f\x92\xa9" * 300,
)
"""Texts that are none, or are more than a reader expects."""

_INTERESTING = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff" * 9 + b"\x01", b"\xff" * 12, b"\x80\x00", b"\x0b")


@st.composite
def damaged(draw: Draw, seeds: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of `seeds` that were cut, spliced, repeated or overwritten up to four times."""
    data: bytes = draw(seeds)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(("cut", "drop", "insert", "repeat", "overwrite", "splice"))):
            case "cut":
                data = data[:place]
            case "drop":
                data = data[:place] + data[place + draw(st.integers(1, 16)) :]
            case "insert":
                data = data[:place] + draw(st.binary(max_size=24) | st.sampled_from(TEXTS)) + data[place:]
            case "repeat":
                data = data[:place] + data[place : place + draw(st.integers(1, 64))] * draw(st.integers(1, 20))
            case "overwrite":
                instead = draw(st.sampled_from(_INTERESTING) | st.binary(min_size=1, max_size=4))
                data = data[:place] + instead + data[place + len(instead) :]
            case "splice":
                other: bytes = draw(seeds)
                data = data[:place] + other[draw(st.integers(0, len(other))) :]
    return data


# Protobuf

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
Field = tuple[int, int, bytes]
"""Number, wire type, and the value: that of BYTES without its length."""


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def fields_of(data: bytes) -> list[Field] | None:
    """The fields of a message; None if that is none."""
    fields = []
    place = 0

    def read() -> int | None:
        nonlocal place
        number = shift = 0
        while place < len(data) and shift < 70:
            byte = data[place]
            place += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        return None

    while place < len(data):
        tag = read()
        if tag is None or tag >> 3 == 0:
            return None
        begin = place
        match tag & 7:
            case 0:
                if read() is None:
                    return None
            case 1:
                place += 8
            case 5:
                place += 4
            case 2:
                length = read()
                if length is None:
                    return None
                begin, place = place, place + length
            case _:
                return None
        if place > len(data):
            return None
        fields.append((tag >> 3, tag & 7, data[begin:place]))
    return fields


def field_bytes(number: int, wire: int, value: bytes) -> bytes:
    """A field on the wire."""
    return varint(number << 3 | wire) + (varint(len(value)) if wire == BYTES else b"") + value


_VARINTS = st.sampled_from([0, 1, 2**31, 2**32, 2**63, 2**64 - 1]).map(varint) | st.sampled_from(
    [b"\xff" * 9 + b"\x7f", b"\x80" * 9 + b"\x01", b"\xff" * 11, b"\x80\x80\x00"]
)


@st.composite
def _stray_field(draw: Draw) -> bytes:
    """A field out of nowhere, not always a whole one."""
    number = draw(st.integers(1, 20) | st.sampled_from([0, 1000, 19_000, 2**29 - 1, 2**29]))
    match draw(st.integers(0, 5)):
        case 0:
            return field_bytes(number, VARINT, draw(_VARINTS))
        case 1:
            return field_bytes(number, BYTES, draw(st.sampled_from(TEXTS) | st.binary(max_size=40)))
        case 2:
            return field_bytes(number, FIXED64, draw(st.binary(max_size=9)))
        case 3:
            return field_bytes(number, FIXED32, draw(st.binary(max_size=5)))
        case 4:
            depth, closed = int(draw(st.sampled_from([1, 99, 101, 5000]))), draw(st.booleans())
            return varint(number << 3 | GROUP) * depth + varint(number << 3 | END_GROUP) * (depth if closed else 0)
        case _:
            return varint(number << 3 | draw(st.sampled_from([END_GROUP, 6, 7])))


def _nested(path: Sequence[int], value: bytes, depth: int) -> bytes:
    """A value below `depth` fields of the numbers of `path`, over and over."""
    for step in range(depth):
        value = field_bytes(path[step % len(path)], BYTES, value)
    return value


@st.composite
def damaged_message(draw: Draw, seeds: st.SearchStrategy[bytes]) -> bytes:
    """Messages of `seeds` of which fields were damaged, at any depth, up to four times."""
    data: bytes = draw(seeds)
    for _ in range(draw(st.integers(1, 4))):
        data = _damage_message(draw, data, 8)
    return data


def _damage_message(draw: Draw, data: bytes, depth: int) -> bytes:
    fields = fields_of(data)
    if not fields:
        stray: bytes = draw(_stray_field())
        return stray
    chosen = draw(st.integers(0, len(fields) - 1))
    number, wire, value = fields[chosen]
    before = b"".join(field_bytes(*field) for field in fields[:chosen])
    after = b"".join(field_bytes(*field) for field in fields[chosen + 1 :])
    inner = fields_of(value) if wire == BYTES and depth else None
    if inner and draw(st.integers(0, 3)):
        return before + field_bytes(number, BYTES, _damage_message(draw, value, depth - 1)) + after
    match draw(st.integers(0, 8)):
        case 0:
            made = b""
        case 1:
            made = field_bytes(number, wire, value) * draw(st.sampled_from([2, 3, 50, 2000]))
        case 2:
            made = field_bytes(draw(st.integers(1, 20)), wire, value)
        case 3:
            made = varint(number << 3 | draw(st.integers(0, 7))) + value
        case 4:
            lie = draw(st.sampled_from([0, len(value) - 1, len(value) + 1, 2**31 - 1, 2**32 - 1, 2**63]))
            made = varint(number << 3 | BYTES) + varint(max(0, lie)) + value
        case 5:
            made = field_bytes(number, BYTES, draw(st.sampled_from(TEXTS) | st.binary(max_size=40)))
        case 6:
            made = field_bytes(number, VARINT, draw(_VARINTS))
        case 7:
            path = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
            made = field_bytes(number, BYTES, _nested(path, value, draw(st.sampled_from([5, 49, 98, 105, 1000]))))
        case _:
            made = field_bytes(number, wire, value) + draw(_stray_field())
    return before + made + after


# DER

Element = tuple[int, bytes]
"""Tag (of one byte) and content."""

_CONSTRUCTED = 0x20
_BIT_STRING, _OCTET_STRING = 0x03, 0x04


def der(tag: int, *contents: bytes) -> bytes:
    """An element."""
    content = b"".join(contents)
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + content


def elements_of(data: bytes) -> list[Element] | None:
    """The elements that stand one after the other; None if that is no DER."""
    elements = []
    place = 0
    while place < len(data):
        if place + 2 > len(data) or data[place] & 0x1F == 0x1F:
            return None
        tag, length = data[place], data[place + 1]
        place += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[place : place + size], "big")
            place += size
            if not size or size > 4:
                return None
        if place + length > len(data):
            return None
        elements.append((tag, data[place : place + length]))
        place += length
    return elements


OIDS = [
    bytes.fromhex(text)
    for text in (
        "551d11",  # subjectAltName
        "551d13",  # basicConstraints
        "551d0f",  # keyUsage
        "551d1e",  # nameConstraints
        "551d25",  # extendedKeyUsage
        "551d20",  # certificatePolicies
        "551d1f",  # cRLDistributionPoints
        "2b06010505070101",  # authorityInfoAccess
        "2b06010401d679020402",  # signed certificate timestamps
        "2a864886f70d010101",  # rsaEncryption
        "2a864886f70d01010a",  # rsassaPss
        "2a8648ce3d0201",  # ecPublicKey
        "2a8648ce3d030107",  # P-256
        "2b81040022",  # P-384
        "2b6570",  # Ed25519
        "2b656e",  # X25519
        "2a8648ce380401",  # DSA
        "2a864886f70d01090e",  # extensionRequest
        "2a864886f70d010907",  # challengePassword
    )
]
"""Object identifiers that readers of certificates and requests know."""

_TAGS = st.sampled_from(
    tuple(bytes.fromhex("01020304 05060a0c 13141617 181c1e30 31808182 84868788 a0a1a3a4 bfff"))
)


@st.composite
def damaged_der(draw: Draw, seeds: st.SearchStrategy[bytes]) -> bytes:
    """DER of `seeds` of which elements were damaged, at any depth, up to four times."""
    data: bytes = draw(seeds)
    for _ in range(draw(st.integers(1, 4))):
        data = _damage_der(draw, data, 12)
    return data


def _damage_der(draw: Draw, data: bytes, depth: int) -> bytes:
    elements = elements_of(data)
    if not elements:
        anything: bytes = draw(st.binary(max_size=30))
        return anything
    chosen = draw(st.integers(0, len(elements) - 1))
    tag, content = elements[chosen]
    before = b"".join(der(*element) for element in elements[:chosen])
    after = b"".join(der(*element) for element in elements[chosen + 1 :])
    if depth and content and draw(st.integers(0, 4)):
        if tag & _CONSTRUCTED or (tag == _OCTET_STRING and elements_of(content)):
            return before + der(tag, _damage_der(draw, content, depth - 1)) + after
        if tag == _BIT_STRING and elements_of(content[1:]):
            return before + der(tag, content[:1], _damage_der(draw, content[1:], depth - 1)) + after
    match draw(st.integers(0, 8)):
        case 0:
            made = b""
        case 1:
            made = der(tag, content) * draw(st.sampled_from([2, 3, 100]))
        case 2:
            made = der(draw(_TAGS), content)
        case 3:
            made = der(tag, draw(st.sampled_from(TEXTS) | st.binary(max_size=40)))
        case 4:
            made = der(0x06, draw(st.sampled_from(OIDS)))
        case 5:
            made = der(0x02, draw(st.sampled_from([b"", b"\0", b"\1", b"\x80", b"\xff" * 40, b"\x7f" * 3000])))
        case 6:
            made = bytes((tag,)) + draw(st.sampled_from([b"\x80", b"\x84\xff\xff\xff\xff", b"\x82\x00\x01"])) + content
        case 7:
            made = content
            for _ in range(draw(st.sampled_from([1, 3, 200]))):
                made = der(draw(st.sampled_from([0x30, 0x31, 0xA0])), made)
        case _:
            made = der(tag, content) + der(draw(_TAGS), draw(st.binary(max_size=20)))
    return before + made + after


# Values

LEAVES: Sequence[Any] = (
    None,
    True,
    False,
    0,
    -1,
    65_536,
    2**31,
    2**63,
    -(2**64),
    10**300,
    1e308,
    float("inf"),
    float("nan"),
    "",
    " ",
    "\0",
    "a\0b",
    "a\nb: c",
    "\ud800",
    "../../etc/passwd",
    "/etc/passwd",
    "%2e%2e",
    "*",
    "true",
    "0x10",
    "x" * 5000,
    "ä" * 300,
    [],
    {},
    [None],
    [[[[[[]]]]]],
    {"": ""},
    {"a": {"b": {"c": None}}},
)
"""Values that stand where others are expected."""


def nested_lists(depth: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def places_in(value: Any, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where in a value there are others, the deepest included."""
    found = [place]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, one in inner:
        found += places_in(one, (*place, step))
    return found


@st.composite
def damaged_value(draw: Draw, seeds: st.SearchStrategy[Any], words: Sequence[str] = ()) -> Any:
    """Values of `seeds` where up to four places were given something else; `words` are keys that may turn up."""
    value = deepcopy(draw(seeds))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.sampled_from(places_in(value)))
        if not place:
            continue
        holder = value
        for step in place[:-1]:
            holder = holder[step]
        step = place[-1]
        match draw(st.integers(0, 6)):
            case 0 if isinstance(holder, dict):
                del holder[step]
            case 1 if isinstance(holder, dict):
                holder[draw(st.sampled_from([*words, "", "\0", "x" * 300]))] = deepcopy(draw(st.sampled_from(LEAVES)))
            case 2 if isinstance(holder, list):
                holder.extend(deepcopy(holder[step]) for _ in range(draw(st.sampled_from([1, 2, 300]))))
            case 3:
                holder[step] = nested_lists(draw(st.sampled_from([3, 90, 120])))
            case 4:
                holder[step] = draw(st.text(max_size=40) | st.integers() | st.floats())
            case 5:
                holder[step] = [deepcopy(holder[step])]
            case _:
                holder[step] = deepcopy(draw(st.sampled_from(LEAVES)))
    return value
