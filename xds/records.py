"""What streams leave behind: facts about each push, answer and stream, for telemetry, `wait` and the admin pages.

The server appends records while it works; readers make spans, metrics and log lines of them afterwards. Times are those
of the wall clock in nanoseconds (time.time_ns). A record holds no content and no credentials.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from xds.server.proxies import Proxy


class StreamOpened(Struct, frozen=True):
    """A proxy has opened a stream. `peer` is its address, `kind` "delta" or "sotw"."""

    proxy: str
    peer: str
    kind: str
    at_ns: int


class StreamClosed(Struct, frozen=True):
    """The stream has ended, `reason` in words."""

    proxy: str
    peer: str
    kind: str
    at_ns: int
    reason: str


class Push(Struct, frozen=True):
    """A response was handed to the stream. `size` is in bytes; `causes` are those of the content's changes."""

    proxy: str
    type_url: str
    nonce: str
    resources: int
    removed: int
    size: int
    causes: tuple[object, ...]
    sent_ns: int


class Ack(Struct, frozen=True):
    """The proxy has answered a response; `message` is its reason if it did not accept it.

    `revision` is the newest revision of the type's content that it holds completely from then on, apart from what it
    rejected; 0 where that is not known anew.
    """

    proxy: str
    type_url: str
    nonce: str
    accepted: bool
    message: str
    received_ns: int
    revision: int = 0


class ResourceRejected(Struct, frozen=True):
    """The proxy refuses this version of a resource for the reason it gives, and keeps the one it had."""

    by: Proxy
    type_url: str
    name: str
    version: str
    message: str


Record = StreamOpened | StreamClosed | Push | Ack | ResourceRejected


class Records(Protocol):
    """Where records go. Never blocks: who cannot keep up drops."""

    def append(self, record: Record) -> None:
        """Take a record."""
