"""Rules of `watchers.kubernetes.lines`: where lines end, and what is kept of those that are too long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchers.kubernetes.lines import BEGINNING, Lines, Overlong, told_of

METADATA = {"name": "a", "namespace": "shop", "resourceVersion": "7"}


def fed(lines: Lines, body: bytes, cuts: list[int]) -> list[bytes]:
    pieces = [body[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    return [one for piece in pieces for one in lines.feed(piece)]


@given(st.lists(st.binary(max_size=8).map(lambda data: data.replace(b"\n", b"")), max_size=8), st.data())
@settings(max_examples=100)
def test_lines_are_the_same_wherever_the_body_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    body = b"".join(one + b"\n" for one in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    assert fed(Lines(1000), body, cuts) == lines


@given(st.lists(st.integers(0, 30), max_size=8), st.data())
@settings(max_examples=100)
def test_of_an_overlong_line_the_beginning_is_kept_wherever_the_body_is_cut(
    lengths: list[int], data: st.DataObject
) -> None:
    lines = [bytes([97 + length % 26]) * length for length in lengths]
    body = b"".join(one + b"\n" for one in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    found = fed(Lines(10), body, cuts)
    assert found == [line[:10] for line in lines]
    assert [isinstance(one, Overlong) for one in found] == [len(line) > 10 for line in lines]


def test_a_line_that_goes_on_is_held_up_to_the_bound() -> None:
    lines = Lines(1 << 20)
    for _ in range(100):
        assert lines.feed(b"x" * (100 << 10)) == []
        assert lines._held <= 100 * (100 << 10)
        assert sum(map(len, lines._rest)) <= 1 << 20
    assert [len(one) for one in lines.feed(b"\nnext\n")] == [BEGINNING, 4]


def test_a_line_that_never_ends_is_given_up() -> None:
    lines = Lines(10)
    lines.feed(b"short\n123456")
    with pytest.raises(ValueError, match="does not end after 320 bytes"):
        lines.feed(b"x" * 320)


@pytest.mark.parametrize("length", range(0, 200, 7))
def test_a_beginning_tells_name_and_version_once_it_holds_them(length: int) -> None:
    value = {"type": "MODIFIED", "object": {"kind": "Pod", "metadata": {**METADATA, "annotations": {"x": "y" * 200}}}}
    for separators in ((",", ":"), (", ", ": ")):
        text = json.dumps(value, separators=separators)
        change, metadata = told_of(Overlong(text[:length].encode()))
        assert change in ("", "MODIFIED")
        assert metadata.items() <= METADATA.items()
        if length > text.index('"annotations"'):
            assert (change, metadata) == ("MODIFIED", METADATA)


def test_metadata_before_what_is_long_is_told() -> None:
    text = json.dumps({"type": "ADDED", "object": {"metadata": METADATA, "spec": {"x": ["y"] * 50}}})
    assert told_of(Overlong(text[:-60].encode())) == ("ADDED", METADATA)


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"<html>",
        b"[[[",
        b"{",
        b'{"type"',
        b'{"type":7,"object":{"metadata":7,',
        b"\xff\xfe{",
        b'{"type":"ADDED","object":' + b"[" * 60_000,
        b'{"type":"ADDED","object":{"metadata":' + b'{"a":' * 10_000,
    ],
)
def test_any_beginning_can_be_read(begin: bytes) -> None:
    change, metadata = told_of(Overlong(begin))
    assert change in ("", "ADDED")
    named: Any = metadata.get("name")
    assert named is None
