"""The lines of a body as it arrives, and what can still be told of one that is too long to be held.

In: pieces of a body. Out: its lines; of one beyond the bound its beginning alone, as Overlong, so that an object no
cluster should hold costs no more memory than the bound and spoils none of those that come after it. API servers write
the metadata of an object before all that can be long. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

BEGINNING = 64 << 10
"""Bytes that are kept of an overlong line."""

_ENDLESS = 32
# So many times the bound is no object any more, but a stream that has gone wrong.
_decode = json.JSONDecoder().raw_decode
_BROKEN = (ValueError, RecursionError)


class Overlong(bytes):
    """The beginning of a line that was longer than may be held. Its rest was passed over."""


class Lines:
    """Cuts a body into its lines as it arrives, and bounds what may be held of one."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._rest: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes; raises ValueError once a line does not seem to end at all."""
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            if self._rest:
                lines[0] = b"".join((*self._rest, lines[0]))
            if self._held + len(data) > self._most_bytes:
                lines = [self._bounded(line) for line in lines]
                if self._held > self._most_bytes:
                    lines[0] = Overlong(lines[0][: self._kept])
            self._rest.clear()
            self._held = 0
        if rest:
            self._hold(rest)
        return lines

    @property
    def _kept(self) -> int:
        return min(BEGINNING, self._most_bytes)

    def _bounded(self, line: bytes) -> bytes:
        return line if len(line) <= self._most_bytes else Overlong(line[: self._kept])

    def _hold(self, data: bytes) -> None:
        self._rest.append(data)
        self._held += len(data)
        if self._held > self._most_bytes:
            if self._held > self._most_bytes * _ENDLESS:
                raise ValueError(f"a line does not end after {self._most_bytes * _ENDLESS} bytes")
            self._rest = [b"".join(self._rest)[: self._kept]]


def batches(lines: list[bytes], most_bytes: int) -> Iterator[list[bytes]]:
    """The lines, so many bytes of them at a time, or one that is longer."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and size + len(line) > most_bytes:
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


def told_of(line: Overlong) -> tuple[str, Mapping[str, Any]]:
    """The type of an event and the metadata of its object, as far as its beginning tells; "" and nothing if it does
    not.
    """
    text = line.decode(errors="replace")
    event, unfinished, place = _members(text, 0)
    if unfinished != "object":
        return "", {}
    found, unfinished, place = _members(text, place)
    metadata = _members(text, place)[0] if unfinished == "metadata" else found.get("metadata")
    change = event.get("type")
    return (change if isinstance(change, str) else ""), (metadata if isinstance(metadata, dict) else {})


def _members(text: str, place: int) -> tuple[dict[str, Any], str, int]:
    """The members of the JSON object that begins at a place, as far as they are complete; key and place of the first
    that is not.
    """
    members: dict[str, Any] = {}
    place = _past_space(text, place)
    opening = "{"
    try:
        while text[place : place + 1] == opening:
            opening = ","
            key, place = _decode(text, _past_space(text, place + 1))
            place = _past_space(text, place)
            if not isinstance(key, str) or text[place : place + 1] != ":":
                break
            value = _past_space(text, place + 1)
            try:
                members[key], place = _decode(text, value)
            except _BROKEN:
                return members, key, value
            place = _past_space(text, place)
    except _BROKEN:
        pass
    return members, "", place


def _past_space(text: str, place: int) -> int:
    while text[place : place + 1].isspace():
        place += 1
    return place
