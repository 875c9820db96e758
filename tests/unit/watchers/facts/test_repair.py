"""Lists and events in which one object is nested too deeply or is no UTF-8."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchers.facts.kinds import kind_of
from watchers.facts.repair import DEEPEST, repaired
from watchers.kubernetes.events import EventReader

POD = kind_of("v1", "Pod")
DEEP = b'{"metadata":{"name":"deep","namespace":"shop","resourceVersion":"7","managedFields":[{"fieldsV1":%s}]}}'
DEEP %= b'{"f:a":' * 5000 + b"{}" + b"}" * 5000
TEXT = b'{"metadata":{"name":"text","namespace":"shop","resourceVersion":"7","labels":{"app":"\xff\xfe"}}}'
GOOD = b'{"metadata":{"name":"good","namespace":"shop","resourceVersion":"6"}}'
VALUES = st.recursive(
    st.none() | st.integers() | st.text('a\\"[]{}\u20ac', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k"{]', max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES)
@settings(max_examples=100)
def test_what_can_be_read_stays_as_it_is(value: Any) -> None:
    data = json.dumps(value).encode()
    assert repaired(data) == data


@given(st.integers(0, 2 * DEEPEST), VALUES)
@settings(max_examples=100)
def test_what_is_too_deep_is_null_and_its_neighbours_stay(depth: int, value: Any) -> None:
    data = json.dumps([value, 1]).encode().join((b'{"a":' * depth, b"}" * depth))
    read = json.loads(repaired(b'{"before":1,"deep":%s,"after":[2]}' % data))
    assert (read["before"], read["after"]) == (1, [2])
    inner, steps = read["deep"], 0
    while isinstance(inner, dict) and "a" in inner and steps < depth:
        inner, steps = inner["a"], steps + 1
    assert steps == depth or (inner is None and steps == DEEPEST - 1)


@given(st.binary(max_size=60))
@settings(max_examples=200)
def test_any_bytes_are_taken_and_repaired_once_for_all(data: bytes) -> None:
    assert repaired(repaired(data)) == repaired(data)


def test_what_no_api_server_could_read_is_left_as_it_is() -> None:
    data = b"[" * 20_000 + b"]" * 20_000
    assert repaired(data) == data


def test_an_endless_string_takes_no_longer_than_it_is_long() -> None:
    data = b"[" + b'"' + b"x" * 1_000_000
    assert repaired(data) == data


@pytest.mark.parametrize("bad", [DEEP, TEXT], ids=["deep", "text"])
@pytest.mark.parametrize("more", [b"", b',{"metadata":7}'], ids=["alone", "beside another fault"])
def test_one_object_does_not_spoil_its_list(bad: bytes, more: bytes) -> None:
    assert POD
    items = b",".join((GOOD, bad)) + more
    page = POD.decode_page(b'{"items":[%s],"metadata":{"resourceVersion":"9"}}' % items, "west", "istio-system")
    assert page.resource_version == "9"
    assert "good" in {key[3] for key, _ in page.facts}
    told = {key[3] for key, _ in page.facts} | {error.key[3] for error in page.invalid if error.key}
    assert told == {"good", "deep" if bad is DEEP else "text"}


@pytest.mark.parametrize("change", ["ADDED", "DELETED"])
@pytest.mark.parametrize("space", [b"", b" "], ids=["as servers write it", "otherwise"])
@pytest.mark.parametrize("bad", [DEEP, TEXT], ids=["deep", "text"])
def test_one_object_does_not_break_its_watch(change: str, space: bytes, bad: bytes) -> None:
    assert POD
    lines = [
        b'{"type":"%s",%s"object":%s}' % (kind, space, one) for kind, one in ((b"ADDED", GOOD), (change.encode(), bad))
    ]
    events = EventReader(POD, "west", "istio-system").read(lines)
    assert (events.garbage, events.resource_version, events.objects) == (False, "7", 2)
    name = "deep" if bad is DEEP else "text"
    assert {key[3] for key in (*events.changes, *events.invalid)} == {"good", name}
    assert [key[3] for key in events.invalid] == (["text"] if (change, name) == ("ADDED", "text") else [])


def test_a_line_that_only_opens_is_garbage_still() -> None:
    assert POD
    assert EventReader(POD, "west", "istio-system").read([b'{"type":"ADDED","object":' + b"[" * 100_000]).garbage
