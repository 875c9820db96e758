"""The lines of a watch in the order in which their objects were written, whatever came between us and the API server.

In: lines that arrived together, and the version up to which everything was told before. Out: the lines that bring
anything new, in their order. Versions of one kind of one API server are numbers that grow with every write (KEP-5504,
api-concepts "resource versions"), and a watch tells of each once, in that order; a proxy in between, or a server that
was put back to an earlier state, may not. Where versions are no numbers, lines are taken as they come. Costs a search
in the first bytes of each line while they are in order. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from watchers.facts.repair import repaired
from watchers.kubernetes.lines import Overlong, told_of

_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
_FIELD = b'"resourceVersion":"'
_FIELD_LENGTH = len(_FIELD)
_QUOTE = b'"'
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Meta(msgspec.Struct, gc=False):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Object(msgspec.Struct, gc=False):
    metadata: _Meta


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


_event = msgspec.json.Decoder(_Event)
_object = msgspec.json.Decoder(_Object)


def number(version: str | bytes) -> int | None:
    """A version as a number; None if it is none, and cannot be compared."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < 20 else None


def in_order(lines: Sequence[bytes], after: str) -> tuple[Sequence[bytes], bool]:
    """The lines that lie behind the version ``after``, in the order of their versions, and whether there were others.

    A change of that very version is the last one once more, and nothing new. What lies before it is either old news,
    or news that was overtaken on its way: whether it counts cannot be known, so it is left out, and whoever asks has to
    list anew. A line that is no change and no bookmark ends what can be ordered.
    """
    told = number(after)
    if told is None:
        return lines, False
    newest = after.encode()
    digits = len(newest)
    for line in lines:
        # The first is that of the object's metadata, as API servers write it. Numbers of equal length are compared as
        # text: nearly all are.
        begin = line.find(_FIELD) + _FIELD_LENGTH
        end = begin + digits
        version = line[begin:end]
        if version > newest and line.startswith(_QUOTE, end) and begin >= _FIELD_LENGTH and version.isdigit():
            newest = version
        elif begin >= _FIELD_LENGTH:
            longer = _version(line, begin)
            if longer is not None:
                if longer <= int(newest):
                    return _ordered(lines, told)
                newest = b"%d" % longer
                digits = len(newest)
    return lines, False


def _version(line: bytes, begin: int) -> int | None:
    """The version that begins there in the text of a line."""
    return number(line[begin : line.find(b'"', begin, begin + 20)])


def _ordered(lines: Sequence[bytes], after: int) -> tuple[Sequence[bytes], bool]:
    """`in_order`, with every line read properly."""
    found: list[tuple[int, bool, bytes]] = []
    rest: Sequence[bytes] = ()
    old = False
    last = after
    for position, line in enumerate(lines):
        if not line or line.isspace():
            continue
        change, version = _read(line)
        bookmark = change == "BOOKMARK"
        if not bookmark and change not in _CHANGES:
            rest = lines[position:]
            break
        told = number(version)
        if told is None and version:
            return lines, False
        # What has no version that can be read stays beside the line before it.
        last = last if told is None else told
        if last < after:
            old = True
        elif told is None or bookmark or last > after:
            found.append((last, bookmark, line))
    found.sort(key=lambda one: one[:2])
    return [*(line for _, _, line in found), *rest], old


def _read(line: bytes) -> tuple[str, str]:
    """Type and version of a line, "" for what cannot be read."""
    if isinstance(line, Overlong):
        change, metadata = told_of(line)
        return change, str(metadata.get("resourceVersion") or "")
    for data in (line, None):
        try:
            event = _event.decode(repaired(line) if data is None else data)
        except _UNREADABLE:
            continue
        try:
            return event.type, _object.decode(event.object).metadata.resource_version
        except _UNREADABLE:
            return event.type, ""
    return "", ""
