"""YAML documents as plain values, from text nobody vouches for.

Used for manifests and for YAML inside them. Scalars are read as the Kubernetes tools read them (no times, no
sexagesimal numbers), only mappings with text as keys are taken, and every error has its line. Size, depth and what
aliases expand to are bounded while reading, before anything is built, so no small text makes a large value: what
comes out is a tree whose repeated parts may be shared, never to be changed by its readers. libyaml scans; the values
are built here, a few bytecodes at a time, so a thread that reads a large file does not hold up the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import msgspec
import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

MAX_DEPTH = 100
MAX_NODES = 4_000_000
"""Values in one text, those that aliases repeat counted every time: some 10,000 pods as kubectl prints them."""

_TAG = "tag:yaml.org,2002:"
_MEANINGS: list[tuple[object, tuple[str, ...]]] = [
    (None, ("null",)),
    (True, ("true", "yes", "on")),
    (False, ("false", "no", "off")),
]
_WORDS: dict[str, object] = {"": None, "~": None} | {
    spelling: value for value, words in _MEANINGS for word in words for spelling in (word, word.title(), word.upper())
}
_INTEGER = re.compile(r"[-+]?(?:0b[01_]{1,64}|0o?[0-7_]{1,22}|0x[0-9A-Fa-f_]{1,16}|[1-9][0-9_]{0,18}|0)")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


class UnreadableText(ValueError):
    """A text that is no usable YAML: ``line`` from 1, ``cause``, ``cure``."""

    def __init__(self, line: int, cause: str, cure: str) -> None:
        super().__init__(line, cause, cure)
        self.line = line
        self.cause = cause
        self.cure = cure

    def __str__(self) -> str:
        return f"line {self.line}: {self.cause}; {self.cure}"


class Document(msgspec.Struct, frozen=True):
    """One YAML document: its value, the line it begins at (from 1), and those of the entries of its ``items``."""

    value: Any
    line: int
    item_lines: list[int]


class _Open:
    """A collection that is being read."""

    __slots__ = ("anchor", "counted", "items", "key", "merged", "merging", "value")

    def __init__(self, value: Any, anchor: str | None, counted: int, items: bool) -> None:
        self.value = value
        self.anchor = anchor
        self.counted = counted
        self.items = items
        self.key: str | None = None
        self.merging = False
        self.merged: list[Any] = []


def documents(text: str, max_nodes: int = MAX_NODES) -> Iterator[Document]:
    """The documents of a text, one by one; raises UnreadableText, possibly after having yielded some."""
    reader = _Reader(max_nodes, text.count("\n") + 1)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            document = reader.take(event)
            if document is not None:
                yield document
    except yaml.YAMLError as error:
        raise _unreadable(text, error) from None


def line_of(text: str, document: int, path: Sequence[str | int], line_in_value: int = 0) -> int:
    """The line (from 1) where the value at a path begins, or the deepest part of the path that is there.

    ``document`` counts from 0. ``line_in_value`` (from 1) moves on into a literal block (``|``). Reads the text once
    more instead of keeping lines of everything: errors are rare. Never raises for what is in the text.
    """
    # What is missing at the end libyaml sees one line later.
    return min(_line_of(text, document, path, line_in_value), text.count("\n") + 1)


def _line_of(text: str, document: int, path: Sequence[str | int], line_in_value: int) -> int:
    """The line as libyaml counts."""
    line = 1
    place: list[_Place] = []
    current = -1
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, DocumentStartEvent):
                current += 1
            elif current == document and isinstance(event, NodeEvent):
                parent = place[-1] if place else None
                if parent is not None and parent.mapping and not parent.keyed:
                    parent.key = event.value if isinstance(event, ScalarEvent) else None
                    parent.keyed = True
                    parent.line = _line(event)
                    continue
                follows = parent is None or parent.leads_to(path, len(place))
                if follows:
                    line = parent.line if parent is not None and parent.mapping else _line(event)
                    if line_in_value and isinstance(event, ScalarEvent) and event.style == "|":
                        return _line(event) + line_in_value
                    if len(place) == len(path):
                        return line
                if parent is not None:
                    parent.next()
                if isinstance(event, MappingStartEvent | SequenceStartEvent):
                    place.append(_Place(isinstance(event, MappingStartEvent), follows))
            elif current == document and isinstance(event, CollectionEndEvent) and place.pop().followed:
                break
    except yaml.YAMLError:
        pass
    return line


class _Place:
    """A collection on the way to a path: whether it was followed, and the entry that comes next."""

    __slots__ = ("followed", "key", "keyed", "line", "mapping", "position")

    def __init__(self, mapping: bool, followed: bool) -> None:
        self.mapping = mapping
        self.followed = followed
        self.key: str | None = None
        self.keyed = False
        self.line = 1
        self.position = 0

    def leads_to(self, path: Sequence[str | int], depth: int) -> bool:
        """Whether the entry that comes is the part of the path at this depth."""
        return self.followed and depth <= len(path) and path[depth - 1] == (self.key if self.mapping else self.position)

    def next(self) -> None:
        self.keyed = False
        self.position += 1


class _Reader:
    """Builds the values of documents from events, in the order they come."""

    def __init__(self, max_nodes: int, lines: int) -> None:
        self._lines = lines
        self._room = max_nodes
        self._max_nodes = max_nodes
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._root: Any = None
        self._line = 1
        self._item_lines: list[int] = []

    def take(self, event: Event) -> Document | None:
        """The next event; returns the document it completes."""
        if isinstance(event, ScalarEvent):
            self._take_scalar(event)
        elif isinstance(event, MappingStartEvent):
            self._begin({}, "map", event)
        elif isinstance(event, SequenceStartEvent):
            self._begin([], "seq", event)
        elif isinstance(event, CollectionEndEvent):
            self._end(event)
        elif isinstance(event, AliasEvent):
            self._alias(event)
        elif isinstance(event, DocumentStartEvent):
            self._anchors.clear()
            self._root = None
            self._item_lines = []
        elif isinstance(event, DocumentEndEvent):
            # What is missing at the end libyaml sees one line later.
            return Document(self._root, min(self._line, self._lines), self._item_lines)
        return None

    def _count(self, nodes: int, event: Event) -> None:
        self._room -= nodes
        if self._room < 0:
            _refuse(
                event,
                f"holds more than {self._max_nodes:,} values, those repeated by aliases included",
                "split it into several files, and write out what anchors and aliases (& and *) repeat",
            )

    def _take_scalar(self, event: ScalarEvent) -> None:
        self._count(1, event)
        if self._wants_key():
            value: object = event.value
            self._take_key(self._open[-1], event)
        else:
            value = _scalar(event)
            self._note_line(event)
            self._place(value, event)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)

    def _wants_key(self) -> bool:
        top = self._open[-1] if self._open else None
        return top is not None and top.key is None and type(top.value) is dict

    def _take_key(self, top: _Open, event: ScalarEvent) -> None:
        key = event.value
        if key == "<<" and event.implicit[0]:
            top.merging = True
        elif key in top.value:
            _refuse(event, f"has the key {key[:80]!r} twice in one mapping", "keep one of them")
        top.key = key

    def _begin(self, value: Any, tag: str, event: MappingStartEvent | SequenceStartEvent) -> None:
        if self._wants_key():
            _refuse(event, "has a key that is no plain text", "write the key as text")
        if event.tag not in (None, "!", _TAG + tag):
            _refuse_tag(event, event.tag)
        if len(self._open) == MAX_DEPTH:
            _refuse(event, f"is nested more than {MAX_DEPTH} levels deep", "check the brackets or the indentation")
        self._count(1, event)
        items = tag == "seq" and len(self._open) == 1 and self._open[0].key == "items"
        self._note_line(event)
        self._open.append(_Open(value, event.anchor, self._room + 1, items))

    def _end(self, event: Event) -> None:
        done = self._open.pop()
        for mapping in done.merged:
            for key, value in mapping.items():
                done.value.setdefault(key, value)
        if done.anchor is not None:
            # Known only from here on: an alias inside of what it names finds nothing, so there are no circles.
            self._anchors[done.anchor] = (done.value, done.counted - self._room)
        self._place(done.value, event)

    def _alias(self, event: AliasEvent) -> None:
        if self._wants_key():
            _refuse(event, "has an alias as a key", "write the key out")
        name = event.anchor or ""
        named = self._anchors.get(name)
        if named is None:
            _refuse(event, f"has the alias *{name[:80]} of nothing that is complete before it", "write the value out")
        value, nodes = named
        self._count(nodes, event)
        self._note_line(event)
        self._place(value, event)

    def _note_line(self, event: NodeEvent) -> None:
        """Remembers the line of a value that begins a document or an entry of its ``items``."""
        if not self._open:
            self._line = _line(event)
        elif self._open[-1].items:
            self._item_lines.append(_line(event))

    def _place(self, value: Any, event: Event) -> None:
        """Puts a complete value where it belongs."""
        if not self._open:
            self._root = value
            return
        top = self._open[-1]
        if type(top.value) is list:
            top.value.append(value)
        elif top.merging:
            mappings = value if type(value) is list else [value]
            if not all(type(mapping) is dict for mapping in mappings):
                _refuse(event, "merges (<<) what is no mapping", "write the fields out")
            top.merged += mappings
            top.merging = False
            top.key = None
        else:
            top.value[top.key] = value
            top.key = None


def _scalar(event: ScalarEvent) -> object:
    tag = event.tag
    if tag is None:
        return _resolve(event.value) if event.implicit[0] else event.value
    if tag in ("!", f"{_TAG}str"):
        return event.value
    if tag in (f"{_TAG}null", f"{_TAG}bool", f"{_TAG}int", f"{_TAG}float"):
        return _resolve(event.value)
    return _refuse_tag(event, tag)


def _resolve(text: str) -> object:
    """What a scalar without quotes means; numbers longer than any field's stay text, which no such field takes."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-.0123456789" and len(text) < 80:
        if _INTEGER.fullmatch(text):
            return _integer(text)
        if _FLOAT.fullmatch(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _integer(text: str) -> int:
    sign, digits = (-1 if text[0] == "-" else 1), text.lstrip("+-").replace("_", "").lower()
    if digits.startswith("0x"):
        return sign * int(digits[2:] or "0", 16)
    if digits.startswith("0b"):
        return sign * int(digits[2:] or "0", 2)
    if digits.startswith("0") and len(digits) > 1:
        return sign * int(digits.removeprefix("0").removeprefix("o") or "0", 8)
    return sign * int(digits)


def _line(event: Event) -> int:
    mark = event.start_mark
    return 1 if mark is None else int(mark.line) + 1


def _refuse(event: Event, cause: str, cure: str) -> NoReturn:
    raise UnreadableText(_line(event), cause, cure)


def _refuse_tag(event: Event, tag: str) -> NoReturn:
    _refuse(event, f"has the tag {tag[:80]!r}", "leave the tag out: manifests hold plain values only")


def _unreadable(text: str, error: yaml.YAMLError) -> UnreadableText:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        # What is missing at the end libyaml misses one line later.
        line = min(int(mark.line), text.count("\n")) + 1 if mark is not None else 1
        cause = error.problem or "is not well formed"
        shown = [*text.splitlines(), ""][line - 1]
        if "\t" in shown and ("cannot start any token" in cause or "tab" in cause):
            return UnreadableText(line, cause, "indent with spaces: YAML takes no tabs there")
        if "mapping values are not allowed" in cause:
            return UnreadableText(line, cause, "check the indentation, and put text that holds ': ' into quotes")
        return UnreadableText(
            line, cause, "correct the YAML there, often the indentation of this line or the one before"
        )
    position = getattr(error, "position", None)
    before = text.encode()[:position] if isinstance(position, int) else b""
    return UnreadableText(
        before.count(b"\n") + 1, str(getattr(error, "reason", error)), "remove the character, or write it as an escape"
    )
