"""What an API server says in lines: the events of a watch, and the Status with which anything is refused.

Lines that arrived together become one Events: the newest fact of every key, so that a burst is one revision. An object
that cannot be used, or is too long to be held, is put aside and spoils nothing; a line that is no event ends the batch,
and what was told before is heard no second time (`watchers.kubernetes.sequence`). Decoding follows
`watchers.facts.kinds`; of an object's metadata only names and versions are read here. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import intern
from typing import TypeVar

import msgspec

from watchers.facts import Fact, ObjectKey
from watchers.facts.invalid import InvalidObject
from watchers.facts.kinds import Kind
from watchers.facts.metadata import Name, cluster_key, namespaced_key
from watchers.facts.repair import repaired
from watchers.kubernetes.lines import Overlong, told_of
from watchers.kubernetes.sequence import in_order

Wire = TypeVar("Wire")

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_TOO_LARGE = "ResourceVersionTooLarge"
_NAMESPACE_ENDS = "NamespaceTerminating"


class Refusal(msgspec.Struct, frozen=True):
    """Why a request or a watch was refused: an HTTP status, and what the Status object says, if there is one.

    ``retry_after`` is in seconds, None if nothing was said; ``too_large`` is the server's word for a resourceVersion it
    has not reached yet (another replica of it has); ``namespace_ends`` that nothing new may come into a namespace which
    is being deleted.
    """

    code: int
    reason: str = ""
    message: str = ""
    retry_after: float | None = None
    too_large: bool = False
    namespace_ends: bool = False

    def __str__(self) -> str:
        said = " ".join(filter(None, (str(self.code), self.reason, self.message)))[:300]
        return "".join(character if character.isprintable() else " " for character in said)


class Events(msgspec.Struct):
    """A batch of watch events.

    ``changes`` holds the newest valid fact of each key, None for one that was deleted; ``invalid`` the objects whose
    newest version cannot be used, ``objects`` counts the events of both. ``resource_version`` is the newest that was
    said ("" if none was), ``bookmark`` that of the last bookmark. ``initial_end`` tells that the initial events are
    complete. ``refusal`` (of an ERROR event) and ``garbage`` (a line that is no event) end the batch. ``old`` tells
    that there were events of versions before those told already, which were left out.
    """

    changes: dict[ObjectKey, Fact | None]
    invalid: dict[ObjectKey, InvalidObject]
    objects: int = 0
    resource_version: str = ""
    bookmark: str = ""
    initial_end: bool = False
    refusal: Refusal | None = None
    garbage: bool = False
    old: bool = False


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct, gc=False):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] | None = None


class _Versioned(msgspec.Struct, gc=False):
    metadata: _Meta


class _Named(msgspec.Struct, gc=False):
    metadata: Name


class _StatusCause(msgspec.Struct, gc=False):
    reason: str | None = None
    message: str | None = None


class _StatusDetails(msgspec.Struct, gc=False):
    causes: list[_StatusCause] | None = None
    retry_after: float | None = msgspec.field(default=None, name="retryAfterSeconds")


class _Status(msgspec.Struct, gc=False):
    code: int = 0
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None


_event = msgspec.json.Decoder(_Event)
_versioned = msgspec.json.Decoder(_Versioned)
_named = msgspec.json.Decoder(_Named)
_status = msgspec.json.Decoder(_Status)
_CHANGES = ("ADDED", "MODIFIED", "DELETED")
_PREFIXES = tuple((f'{{"type":"{change}","object":'.encode(), change) for change in _CHANGES)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class EventReader:
    """Reads the watch events of a kind in one cluster; ``most_bytes`` is what an object may have, for people."""

    def __init__(self, kind: Kind, cluster: str, system_namespace: str, *, most_bytes: int = 16 << 20) -> None:
        self._kind = kind
        self._most_bytes = most_bytes
        self._cluster = cluster
        self._system_namespace = system_namespace

    def read(self, lines: Sequence[bytes], after: str = "") -> Events:
        """The events of lines that arrived together, in the order of their versions.

        Everything up to the version ``after`` was told before. It is "" in a streamed list, whose objects come in no
        order of versions.
        """
        events = Events({}, {})
        if after:
            lines, events.old = in_order(lines, after)
        last: bytes | msgspec.Raw | None = None
        for line in lines:
            if not line or line.isspace():
                continue
            data = self._read_fast(line, events)
            if data is not None:
                last = data
                continue
            if isinstance(line, Overlong):
                if not self._read_overlong(line, events):
                    events.garbage = True
                    break
                last = None
                continue
            event = _decoded(_event, line)
            if event is None:
                events.garbage = True
                break
            if event.type == "BOOKMARK":
                self._bookmark(event.object, events)
                last = None
            elif event.type == "ERROR":
                events.refusal = refusal(0, event.object)
                break
            elif event.type in _CHANGES:
                last = event.object
                events.objects += 1
                try:
                    self._change(event.type, event.object, events)
                except InvalidObject as error:
                    if not error.key or self._kind.counts(error.key[2]):
                        events.invalid[error.key or (self._cluster, self._kind.fact, "", "")] = error
                except _UNREADABLE:
                    # It has no name that could be read, and so none that a fact could have.
                    pass
            else:
                events.garbage = True
                break
        # Versions only grow within a watch, so that of the last object speaks for all before it.
        if last is not None:
            events.resource_version = _version(last) or events.resource_version
        return events

    def _read_overlong(self, line: Overlong, events: Events) -> bool:
        """Puts the object aside by the name its beginning tells; whether it is an event at all."""
        change, metadata = told_of(line)
        if change not in _CHANGES:
            return False
        events.objects += 1
        events.resource_version = str(metadata.get("resourceVersion") or "") or events.resource_version
        error = self._kind.too_large(metadata, self._most_bytes, self._cluster)
        if error.key and not self._kind.counts(error.key[2]):
            return True
        if change != "DELETED":
            events.invalid[error.key or (self._cluster, self._kind.fact, "", "")] = error
        elif error.key:
            events.changes[error.key] = None
            events.invalid.pop(error.key, None)
        return True

    def _bookmark(self, data: msgspec.Raw, events: Events) -> None:
        try:
            metadata = _versioned.decode(data).metadata
        except _UNREADABLE:
            return
        if metadata.resource_version:
            events.resource_version = events.bookmark = metadata.resource_version
        if (metadata.annotations or {}).get(_INITIAL_EVENTS_END) == "true":
            events.initial_end = True

    def _read_fast(self, line: bytes, events: Events) -> bytes | None:
        """Reads a line as API servers write them without looking at its JSON twice; returns the object's.

        None, with nothing done, for any other line and for one that has a fault.
        """
        for prefix, change in _PREFIXES:
            if line.startswith(prefix) and line.endswith(b"}"):
                data = line[len(prefix) : -1]
                try:
                    self._change(change, data, events)
                except (InvalidObject, *_UNREADABLE):
                    return None
                events.objects += 1
                return data
        return None

    def _change(self, change: str, data: bytes | msgspec.Raw, events: Events) -> None:
        keyed: tuple[ObjectKey, Fact | None] | None = None
        if change != "DELETED":
            keyed = self._kind.decode_json(data, self._cluster, self._system_namespace)
        # What is deleted, or is none of ours (any more), needs its name alone.
        key, fact = keyed or (self._key(data), None)
        if key is None:
            return
        events.changes[key] = fact
        events.invalid.pop(key, None)

    def _key(self, data: bytes | msgspec.Raw) -> ObjectKey | None:
        """Its key; None if it is in a namespace that does not count."""
        metadata = _named.decode(data).metadata
        if not self._kind.counts(metadata.namespace):
            return None
        kind = intern(self._kind.fact)
        if self._kind.namespaced:
            return namespaced_key(self._cluster, kind, metadata)
        return cluster_key(self._cluster, kind, metadata)


def refusal(code: int, body: bytes | msgspec.Raw, headers: Mapping[str, str] | None = None) -> Refusal:
    """What an answer with this HTTP status means; 0 takes the code of the Status object in the body.

    A body that is no Status (an error page of a proxy) says nothing. Of Retry-After only seconds are read, as API
    servers write it; the header comes before the Status.
    """
    try:
        status = _status.decode(body)
    except _UNREADABLE:
        status = _Status()
    details = status.details or _StatusDetails()
    retry_after = details.retry_after
    given = (headers or {}).get("Retry-After", "").strip()
    if given.isascii() and given.isdigit():
        retry_after = float(given[:9])
    message = status.message or ""
    # Servers before 1.19 told it in the message alone.
    too_large = "Too large resource version" in message
    too_large = too_large or any(cause.reason == _TOO_LARGE for cause in details.causes or ())
    namespace_ends = any(cause.reason == _NAMESPACE_ENDS for cause in details.causes or ())
    return Refusal(code or status.code, status.reason or "", message, retry_after, too_large, namespace_ends)


def _version(data: bytes | msgspec.Raw) -> str:
    versioned = _decoded(_versioned, data)
    return versioned.metadata.resource_version if versioned else ""


def _decoded(decoder: msgspec.json.Decoder[Wire], data: bytes | msgspec.Raw) -> Wire | None:
    """What the decoder makes of the data, repaired if it cannot be read otherwise; None if nothing."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        return None
    except _UNREADABLE:
        pass
    try:
        return decoder.decode(repaired(bytes(data)))
    except _UNREADABLE:
        return None
