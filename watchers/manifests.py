"""One file of manifests: its bytes in, facts and what is wrong with it out.

A file holds YAML documents or, named ``.json``, one JSON object; each is an object or a List of them (as ``kubectl get
-o yaml`` and ``-o json`` print). What is no Kubernetes object at all (values of a chart, say) and kinds nobody reads
are passed over. A file that cannot be parsed raises; one bad object does not spoil its neighbours. Pure: no file is
opened here, and what the file held before is the directory's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from watchers.documents import MAX_NODES, UnreadableText, documents, line_of
from watchers.facts import Fact, ObjectKey
from watchers.facts.invalid import InvalidObject
from watchers.facts.kinds import Keyed, Kind, called_in, kind_of

_BETWEEN_ITEMS = re.compile(rb"[\s,]*")
_BYTE = re.compile(r"\(byte (\d+)\)")


class Flaw(msgspec.Struct, frozen=True):
    """Something in a file that cannot be used: ``line`` from 1, ``cause`` with object and field, ``cure``."""

    line: int
    cause: str
    cure: str


class Manifests(msgspec.Struct, frozen=True):
    """What a file says: facts, the line each stands in, the keys of objects that are invalid, and the flaws' first.

    ``flaws`` counts all; an object that is invalid so that not even its name can be read has no key in ``invalid``.
    """

    facts: dict[ObjectKey, Fact]
    lines: dict[ObjectKey, int]
    invalid: frozenset[ObjectKey]
    flaw: Flaw | None
    flaws: int


class _Entry(msgspec.Struct):
    """One object of a file: its line, how to read it, and how to find the line of a field of it."""

    line: int
    read: Callable[[], Keyed | None]
    locate: Callable[[InvalidObject], int]


class _Envelope(msgspec.Struct):
    """What tells an object, a List and other JSON apart; nothing else is read of it."""

    api_version: Any = msgspec.field(default=None, name="apiVersion")
    kind: Any = None
    metadata: msgspec.Raw = msgspec.Raw()
    items: msgspec.Raw = msgspec.Raw()


class _Metadata(msgspec.Struct):
    """What an object is called."""

    name: Any = None


def read_manifests(name: str, data: bytes, cluster: str, system_namespace: str) -> Manifests:
    """The manifests of a file; raises UnreadableText if the file as a whole cannot be read."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableText(line, f"holds the byte 0x{data[error.start]:02x}, not UTF-8", "save it in UTF-8") from None
    entries = _json_entries if name.lower().endswith(".json") else _yaml_entries
    facts: dict[ObjectKey, Fact] = {}
    lines: dict[ObjectKey, int] = {}
    invalid: set[ObjectKey] = set()
    flaw: Flaw | None = None
    flaws = 0
    for entry in entries(text, cluster, system_namespace):
        try:
            keyed = entry.read()
        except InvalidObject as error:
            flaws += 1
            flaw = flaw or Flaw(entry.locate(error), str(error), error.cure)
            if error.key is not None:
                invalid.add(error.key)
            continue
        if keyed is None:
            continue
        key, fact = keyed
        if key in facts:
            flaws += 1
            flaw = flaw or Flaw(
                entry.line,
                f"{subject(key)} stands twice in this file, first in line {lines[key]}",
                "remove one of them",
            )
            continue
        facts[key] = fact
        lines[key] = entry.line
    return Manifests(facts, lines, frozenset(invalid), flaw, flaws)


def subject(key: ObjectKey) -> str:
    """An object as people write it: ``Pod shop/cart-1``."""
    _, kind, namespace, name = key
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _yaml_entries(text: str, cluster: str, system_namespace: str) -> Iterator[_Entry]:
    for index, document in enumerate(documents(text)):
        value = document.value
        if not isinstance(value, Mapping):
            continue
        api_version, name = _list_of(value.get("apiVersion"), value.get("kind"))
        items = value.get("items")
        if name is None or not isinstance(items, list):
            yield _yaml_entry(text, index, (), document.line, value, cluster, system_namespace)
            continue
        for place, item in enumerate(items):
            if name and isinstance(item, Mapping) and "kind" not in item:
                item = {"apiVersion": api_version, "kind": name, **item}
            line = document.item_lines[place] if place < len(document.item_lines) else document.line
            yield _yaml_entry(text, index, ("items", place), line, item, cluster, system_namespace)


def _yaml_entry(
    text: str,
    document: int,
    place: tuple[str | int, ...],
    line: int,
    value: object,
    cluster: str,
    system_namespace: str,
) -> _Entry:
    def read() -> Keyed | None:
        if not isinstance(value, Mapping):
            return None
        kind = _kind(value.get("apiVersion"), value.get("kind"), "metadata" in value, called_in(value))
        return None if kind is None else kind.decode(value, cluster, system_namespace)

    def locate(error: InvalidObject) -> int:
        return line_of(text, document, (*place, *error.path), error.line)

    return _Entry(line, read, locate)


def _json_entries(text: str, cluster: str, system_namespace: str) -> Iterator[_Entry]:
    data = text.encode()
    first_line = data.count(b"\n", 0, len(data) - len(data.lstrip())) + 1
    if not data.strip():
        return
    if data.count(b",") >= MAX_NODES:
        # A List of nothing but zeros would be hundreds of times as large in memory.
        raise UnreadableText(1, f"holds more than {MAX_NODES:,} values", "split it into several files")
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
        api_version, name = _list_of(envelope.api_version, envelope.kind)
        inside = bytes(envelope.items)
        items = None
        if name is not None and inside:
            items = msgspec.json.decode(inside, type=list[msgspec.Raw] | None) or []
    except msgspec.ValidationError:
        return  # JSON, but no object: nothing of ours.
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(data, error) from None
    if items is None:
        yield _json_entry(msgspec.Raw(data), first_line, cluster, system_namespace, "", None)
        return
    # The items stand in the text one after the other, with nothing but white space and commas between them.
    line = data.count(b"\n", 0, data.find(inside)) + 1
    place = 1
    for item in items:
        gap = _BETWEEN_ITEMS.match(inside, place)
        start = gap.end() if gap else place
        line += inside.count(b"\n", place, start)
        yield _json_entry(item, line, cluster, system_namespace, api_version, name)
        place = start + len(memoryview(item))
        line += inside.count(b"\n", start, place)


def _json_entry(
    raw: msgspec.Raw, line: int, cluster: str, system_namespace: str, api_version: str, name: str | None
) -> _Entry:
    def read() -> Keyed | None:
        try:
            own = msgspec.json.decode(raw, type=_Envelope)
        except msgspec.ValidationError:
            return None
        called = _called(own.metadata)
        if own.kind is None and name:
            kind = _kind(api_version, name, True, called)
        else:
            kind = _kind(own.api_version, own.kind, bool(bytes(own.metadata)), called)
        return None if kind is None else kind.decode_json(raw, cluster, system_namespace)

    def locate(error: InvalidObject) -> int:
        # JSON is YAML near enough to be searched as such.
        return line - 1 + line_of(bytes(raw).lstrip().decode("utf-8", "replace"), 0, error.path)

    return _Entry(line, read, locate)


def _list_of(api_version: object, kind: object) -> tuple[str, str | None]:
    """What a List is a list of: (apiVersion, kind), the kind "" if every item says so itself, None if it is no List."""
    if not isinstance(kind, str) or not kind.endswith("List"):
        return "", None
    return (api_version if isinstance(api_version, str) else ""), kind.removesuffix("List")


def _called(metadata: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(metadata, type=_Metadata).name
    except (msgspec.DecodeError, RecursionError):
        return None


def _kind(api_version: object, name: object, has_metadata: bool, called: object) -> Kind | None:
    """The kind of what may be a Kubernetes object; None for what is none, or is of a kind that is not read."""
    if api_version is None and name is None and not has_metadata:
        return None
    for field, value in (("apiVersion", api_version), ("kind", name)):
        if not isinstance(value, str) or not value:
            raise InvalidObject(
                (field,), "is missing" if value is None else "is no text", "begin every object with apiVersion and kind"
            )
    return kind_of(str(api_version), str(name), called)


def _malformed(data: bytes, error: Exception) -> UnreadableText:
    if isinstance(error, RecursionError):
        return UnreadableText(1, "is nested too deeply", "check the brackets")
    message = str(error)
    if "truncated" in message:
        return UnreadableText(data.count(b"\n") + 1, "ends in the middle", "complete it, or wait until it is written")
    where = _BYTE.search(message)
    line = data.count(b"\n", 0, int(where[1])) + 1 if where else 1
    return UnreadableText(line, message, "correct the JSON there")
