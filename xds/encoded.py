"""Content as bytes: a message and its digest, a resource wrapped for the wire once, responses joined from resources.

Between those who make messages (xds.messages) and the sessions that send them. A message is serialised once, wrapped
once, and the same bytes object goes to every stream; a response is its resources' frames joined, so that its cost does
not depend on what is in them. The digest of the content is the xDS version of the resource: equal on every replica and
after every restart. Nothing here parses messages or knows one type from another; framing is done by hand because
building a response of 4,000 resources out of message objects costs forty times as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct
from xxhash import xxh3_128_digest

from xds.metrics import WORK

DIGEST_SIZE: Final = 16
"""Bytes of a digest (xxh3-128). It resists accidents, not attackers: who compares content of different owners compares
the bytes as well, as `==` of the classes here does."""

# Tags of length-delimited fields, by message.
_RESPONSE_VERSION: Final = b"\x0a"  # field 1 of both responses: system_version_info, version_info
_RESPONSE_RESOURCES: Final = b"\x12"  # field 2 of both: Resource in DeltaDiscoveryResponse, Any in DiscoveryResponse
_RESPONSE_TYPE_URL: Final = b"\x22"  # field 4 of both
_RESPONSE_NONCE: Final = b"\x2a"  # field 5 of both
_RESPONSE_REMOVED: Final = b"\x32"  # field 6 of DeltaDiscoveryResponse: removed_resources
_RESOURCE_ANY: Final = b"\x12"  # Resource.resource = 2
_RESOURCE_NAME: Final = b"\x1a"  # Resource.name = 3
_RESOURCE_ALIASES: Final = b"\x22"  # Resource.aliases = 4
_ANY_TYPE_URL: Final = b"\x0a"  # Any.type_url = 1
_ANY_VALUE: Final = b"\x12"  # Any.value = 2

_VERSION_HEAD: Final = bytes((0x0A, 2 * DIGEST_SIZE))  # Resource.version = 1, a digest in hexadecimal
_VERSION_FIELD_SIZE: Final = len(_VERSION_HEAD) + 2 * DIGEST_SIZE


class Message(Protocol):
    """What is needed of a protobuf message."""

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes:  # noqa: N802 - protobuf's name
        """The bytes of the message; with `deterministic`, map entries in the order of their keys."""


class Encoded(Struct, frozen=True, gc=False):
    """The bytes of a message and a digest of its content (16 bytes). Equal when both are.

    One content made in two ways, by `encode` and by `concatenate`, may have two digests: a message type is always
    made in the same way.
    """

    data: bytes
    digest: bytes

    def __repr__(self) -> str:
        """Without the bytes: they may hold a key."""
        return f"Encoded({len(self.data)} bytes, {self.digest.hex()})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same."""
        return [("digest", self.digest.hex())]


ADMITS_NOTHING: Final = 0
ADMITS_HEALTHY: Final = 1
ADMITS_ALL: Final = 2


class Ties(Struct, frozen=True, gc=False):
    """What a client settles between resources when one of them arrives, and at no other time. Follows from the bytes.

    A ztunnel enters a workload with the services it names, if they admit it, at the moment the workload arrives (or the
    service, the first time). A service that goes takes its entries with it, and a workload that was not admitted is
    forgotten there: when the service comes back, or admits more, the workload must arrive once more, though its bytes
    are the same.

    `joins` are the names of the resources it is entered with, `admits` is what it takes in itself. Where an answer has
    to be split, lower ranks go first: what names others has a higher one than those, and what may not be admitted a
    higher one than what might admit it. One object for all resources of which the same is true.
    """

    joins: tuple[str, ...] = ()
    admits: int = ADMITS_NOTHING
    rank: int = 0


NO_TIES: Final = Ties()


class Resource(Struct, frozen=True, gc=False):
    """A named message as it goes over the wire. Equal when name, digest and all bytes are.

    `frame` is the complete field `resources` of a DeltaDiscoveryResponse: tag, length, and the
    envoy.service.discovery.v3.Resource with name, version, the message as Any, and aliases. `ties` stay here.
    """

    name: str
    digest: bytes
    frame: bytes
    ties: Ties = NO_TIES

    def __repr__(self) -> str:
        """Without the bytes: they may hold a key."""
        return f"Resource({self.name!r}, {len(self.frame)} bytes, {self.version})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same."""
        return [("name", self.name), ("version", self.version)]

    @property
    def version(self) -> str:
        """The version as proxies are told it and name it when they reconnect: the digest in hexadecimal."""
        return self.digest.hex()

    @property
    def any(self) -> memoryview:
        """The google.protobuf.Any with the message, a view into the frame."""
        field = self._any_field()
        _, start = varint_at(field, 1)
        return field[start:]

    @property
    def body(self) -> memoryview:
        """The bytes of the message itself, a view into the frame."""
        inside = self.any
        length, start = varint_at(inside, 1)
        value = start + length
        if value == len(inside):  # an empty message: proto3 leaves its field out
            return inside[value:]
        _, start = varint_at(inside, value + 1)
        return inside[start:]

    def admits_more(self, before: Resource | None) -> bool:
        """Whether what joins it must arrive once more at a client that held `before` (None: nothing) of this name."""
        admitted = ADMITS_NOTHING if before is None else before.ties.admits
        return self.ties.admits > admitted

    def _any_field(self) -> memoryview:
        """The field `resource` with tag and length.

        Since its number is that of `resources` in a DiscoveryResponse, it is at the same time the complete field of a
        state-of-the-world response.
        """
        frame = self.frame
        _, start = varint_at(frame, 1)
        start += _VERSION_FIELD_SIZE
        length, value = varint_at(frame, start + 1)
        return memoryview(frame)[start : value + length]


def encode(message: Message) -> Encoded:
    """The message as bytes, the same for equal content in every process."""
    data = message.SerializeToString(deterministic=True)
    WORK.encoded += 1
    WORK.hashed += len(data)
    return Encoded(data, xxh3_128_digest(data))


def concatenate(head: bytes, children: Iterable[tuple[int, Encoded]]) -> Encoded:
    """`head` (fields already encoded, or nothing) followed by each child as length-delimited field of that number.

    Makes a message out of parts that are kept: a parent with one changed child is a copy and not a serialisation. The
    digest is made of the head and of the children's field numbers and digests, so it reads no child's bytes.
    """
    data = [head]
    digests = [xxh3_128_digest(head)]
    for field, child in children:
        data += (varint(field << 3 | 2), varint(len(child.data)), child.data)
        digests += (field.to_bytes(4, "big"), child.digest)
    digested = b"".join(digests)
    WORK.composed += 1
    WORK.hashed += len(head) + len(digested)
    return Encoded(b"".join(data), xxh3_128_digest(digested))


def merge(parts: Iterable[Encoded]) -> Encoded:
    """The message whose fields are those of all `parts`, which are messages of its type, one after the other.

    Where a message has thousands of children, parts hold some of them each: one changed child costs its part, and one
    copy of all. As with `concatenate`, the digest reads no bytes but digests.
    """
    parts = tuple(parts)
    digested = b"".join([part.digest for part in parts])
    WORK.composed += 1
    WORK.hashed += len(digested)
    digest = xxh3_128_digest(digested)
    return Encoded(b"".join([part.data for part in parts]), digest)


def wrap(
    type_url: str, name: str, encoded: Encoded, aliases: Sequence[str] = (), ties: Ties = NO_TIES
) -> Resource:
    """The resource `name` of type `type_url`. Done once for all streams it goes to, and for all its life."""
    WORK.wrapped += 1
    data, digest = encoded.data, encoded.digest
    content = _text(_ANY_TYPE_URL, type_url)
    if data:
        content += _ANY_VALUE + varint(len(data))
    length = len(content) + len(data)
    before = _VERSION_HEAD + digest.hex().encode() + _RESOURCE_ANY + varint(length) + content
    behind = _text(_RESOURCE_NAME, name) if name else b""
    for alias in aliases:
        behind += _text(_RESOURCE_ALIASES, alias)
    length = len(before) + len(data) + len(behind)
    # In one go, as the data may be some megabytes.
    return Resource(name, digest, b"".join((_RESPONSE_RESOURCES, varint(length), before, data, behind)), ties)


def with_aliases(resource: Resource, aliases: Iterable[str]) -> Resource:
    """The same under further names, for a client that may have asked by one of them."""
    frame = resource.frame
    _, start = varint_at(frame, 1)
    inside = frame[start:] + b"".join([_text(_RESOURCE_ALIASES, alias) for alias in aliases])
    frame = _RESPONSE_RESOURCES + varint(len(inside)) + inside
    return Resource(resource.name, resource.digest, frame, resource.ties)


def delta_response(
    type_url: str, nonce: str, resources: Iterable[Resource], removed: Iterable[str], system_version: str
) -> bytes:
    """An envoy.service.discovery.v3.DeltaDiscoveryResponse; `system_version` is for people who debug."""
    parts: list[bytes] = []
    if system_version:
        parts.append(_text(_RESPONSE_VERSION, system_version))
    parts.extend([resource.frame for resource in resources])
    if type_url:
        parts.append(_text(_RESPONSE_TYPE_URL, type_url))
    if nonce:
        parts.append(_text(_RESPONSE_NONCE, nonce))
    parts.extend([_text(_RESPONSE_REMOVED, name) for name in removed])
    return b"".join(parts)


def discovery_response(type_url: str, nonce: str, version: str, resources: Iterable[Resource]) -> bytes:
    """An envoy.service.discovery.v3.DiscoveryResponse: the state-of-the-world form, where resources are bare Anys."""
    parts: list[bytes | memoryview] = []
    if version:
        parts.append(_text(_RESPONSE_VERSION, version))
    parts.extend([resource._any_field() for resource in resources])
    if type_url:
        parts.append(_text(_RESPONSE_TYPE_URL, type_url))
    if nonce:
        parts.append(_text(_RESPONSE_NONCE, nonce))
    return b"".join(parts)


def varint(number: int) -> bytes:
    """A number that is not negative in protobuf's variable-length form: groups of seven bits, the lowest first."""
    if number < 0x80:
        return _SINGLE[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


_SINGLE: Final = tuple(bytes((number,)) for number in range(0x80))


def _text(tag: bytes, text: str) -> bytes:
    data = text.encode()
    return tag + varint(len(data)) + data


def varint_at(view: bytes | memoryview, position: int) -> tuple[int, int]:
    """The number at a position in the form that `varint` writes, and where it ends."""
    number = view[position]
    if number < 0x80:
        return number, position + 1
    second = view[position + 1]
    if second < 0x80:
        return number & 0x7F | second << 7, position + 2
    number = shift = 0
    while True:
        byte = view[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
