"""Whatever bytes a proxy sends, a request is read or refused in words, quickly, and claims stay small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
import pytest
from hypothesis import strategies as st

from tests.fuzz.requests import VARIANTS, discovery, hostile_requests, node, requests
from tests.kit.fuzzing import bounded, fuzz
from tests.kit.hostile import BYTES, LEAVES, damaged_message, field_bytes
from xds import protos
from xds.encoded import encode, wrap
from xds.server.dialogue import Variant, parse
from xds.server.proxies import LONGEST_METADATA_VALUE, Claims, claims_of
from xds.server.refusals import LONGEST_MESSAGE, Refusal
from xds.session.rejections import culprits
from xds.session.requests import KNOWN_METADATA, ProtocolViolation

pytestmark = pytest.mark.slow

MOST = 64 << 20
DOCUMENTED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def heard(variant: Variant, data: bytes) -> Claims | None:
    """The claims of a first request, or None where it is refused as the documentation says."""

    def read() -> Claims:
        return claims_of(parse(variant, data, MOST).node)

    try:
        return bounded(read, len(data))
    except ProtocolViolation as violation:
        assert str(violation)
    except Refusal as refusal:
        assert refusal.code in DOCUMENTED
        assert 0 < len(refusal.message) <= LONGEST_MESSAGE
    return None


def check(variant: Variant, data: bytes) -> None:
    claims = heard(variant, data)
    if claims is not None:
        assert 0 < len(claims.id) <= 1024
        assert len(claims.metadata) <= len(KNOWN_METADATA)
        assert all(len(value) <= LONGEST_METADATA_VALUE for _, value in claims.metadata)


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_first_request_is_read_or_refused(variant: Variant) -> None:
    fuzz(lambda data: check(variant, data), hostile_requests(variant, first=True), share=0.25)


@st.composite
def nodes(draw: Any) -> bytes:
    """Nodes whose metadata hold anything, under the names that are read and under others."""
    struct = protos.google.protobuf.Struct()
    values = st.recursive(
        st.sampled_from([leaf for leaf in LEAVES if not isinstance(leaf, str) or leaf.isascii()])
        | st.text(st.characters(codec="utf-8"))
        | st.floats(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
        max_leaves=12,
    )
    for key in draw(st.lists(st.sampled_from([*KNOWN_METADATA, "LABELS", "\0", ""]), max_size=6)):
        struct.update({key: draw(values)})
    made = node(draw(st.sampled_from(["", "x", "~~~", "a~b~c~d", "a~b~c.d.e~f", "~" * 2000]) | st.text(max_size=20)))
    made.metadata.CopyFrom(struct)
    data: bytes = made.SerializeToString(deterministic=True)
    return data


def test_any_node_metadata_are_read_or_refused() -> None:
    def one(data: bytes) -> None:
        for variant in VARIANTS:
            check(variant, field_bytes(1, 2, data))

    fuzz(one, nodes() | damaged_message(nodes()), share=0.25)


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_later_request_is_read_or_refused(variant: Variant) -> None:
    def one(data: bytes) -> None:
        try:
            bounded(lambda: parse(variant, data, MOST), len(data))
        except ProtocolViolation as violation:
            assert str(violation)

    fuzz(one, hostile_requests(variant, first=False) | requests(variant, first=False), share=0.125)


MEGABYTE = 1 << 20
MESSAGES: Mapping[Variant, Any] = {"delta": discovery.DeltaDiscoveryRequest, "sotw": discovery.DiscoveryRequest}


def request(variant: Variant, field: str, value: bytes) -> bytes:
    """A request that has this value in one of its fields, and the sound node of a ztunnel beside it."""
    numbers = MESSAGES[variant].DESCRIPTOR.fields_by_name
    given_node = field_bytes(1, BYTES, b"ztunnel~1~a.b~c") + (value if field == "node" else b"")
    return field_bytes(numbers["node"].number, BYTES, given_node) + (
        b"" if field == "node" else field_bytes(numbers[field].number, BYTES, value)
    )


def repeated(variant: Variant, field: str, value: bytes, size: int = MEGABYTE) -> bytes:
    """A request that has this value over and over, up to that size."""
    return request(variant, field, value) * (size // len(request(variant, field, value)))


def entries(count: int) -> bytes:
    """Entries of a map, each under another name."""
    return b"".join(field_bytes(1, BYTES, field_bytes(1, BYTES, b"%x" % number)) for number in range(count))


def metadata(key: bytes, list_size: int) -> bytes:
    """Metadata with a long list under a key."""
    elements = field_bytes(1, BYTES, b"") * (list_size // 2)
    value = field_bytes(2, BYTES, field_bytes(6, BYTES, elements))
    return field_bytes(3, BYTES, field_bytes(1, BYTES, field_bytes(1, BYTES, key) + value))


LARGE: Mapping[str, Callable[[Variant], bytes]] = {
    "names": lambda variant: repeated(
        variant, "resource_names" if variant == "sotw" else "resource_names_subscribe", b""
    ),
    "names to give up": lambda variant: repeated(
        variant, "resource_names" if variant == "sotw" else "resource_names_unsubscribe", b"a"
    ),
    "metadata": lambda variant: request(variant, "node", field_bytes(3, BYTES, entries(100_000))),
    "a list in metadata": lambda variant: request(variant, "node", metadata(b"LABELS", MEGABYTE)),
    "a list where text is read": lambda variant: request(variant, "node", metadata(b"NAME", MEGABYTE)),
    "extensions": lambda variant: request(variant, "node", field_bytes(9, BYTES, b"") * (MEGABYTE // 2)),
    "nodes": lambda variant: repeated(variant, "node", b""),
    "unknown fields": lambda _: field_bytes(1000, 0, b"\0") * (MEGABYTE // 3),
    "details of an error": lambda variant: request(
        variant, "error_detail", field_bytes(3, BYTES, b"") * (MEGABYTE // 2)
    ),
    "the text of an error": lambda variant: request(variant, "error_detail", field_bytes(2, BYTES, b"a: " * 350_000)),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("what", LARGE)
def test_a_megabyte_of_one_thing_is_read_or_refused_quickly(what: str, variant: Variant) -> None:
    heard(variant, LARGE[what](variant))


def test_a_megabyte_of_versions_is_read_or_refused_quickly() -> None:
    versions = b"".join(field_bytes(5, BYTES, field_bytes(1, BYTES, b"%x" % number)) for number in range(100_000))
    heard("delta", request("delta", "node", b"") + versions)


@pytest.mark.parametrize("text", ["; " * 500_000, "a: " * 300_000, "a: b; " * 170_000, "x" * MEGABYTE])
def test_a_megabyte_of_reasons_is_searched_quickly(text: str) -> None:
    among = {"a": wrap("type", "a", encode(protos.google.protobuf.Empty()))}
    bounded(lambda: culprits(text, among), len(text))
