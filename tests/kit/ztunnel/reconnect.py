"""How long ztunnel waits before it connects again, after each way a stream can end.

Pure: `Backoff` is told how a stream ended and says the pause in seconds. The counter of errors is not reset by a stream
that lived long, only by an end that is not an error; so a server that sheds load with the wrong status is either
hammered (OK: no pause at all) or waited for up to 15 seconds.
"""

from __future__ import annotations

from msgspec import Struct

_FIRST = 0.010
_LONGEST = 15.0
_ORDINARY = ("UNKNOWN", "CANCELLED", "DEADLINE_EXCEEDED")
_ORDINARY_UNAVAILABLE = ("transport is closing", "received prior goaway")


class StreamEnd(Struct, frozen=True):
    """How a stream ended: gRPC status code by name and its details; `connected` is False if it never came about."""

    code: str
    details: str = ""
    connected: bool = True


class Backoff:
    """The pauses of one client, over all its streams."""

    def __init__(self) -> None:
        self._last = _FIRST

    def after(self, end: StreamEnd) -> float:
        """Seconds to wait before the next attempt."""
        if end.connected and end.code == "OK":
            self._last = _FIRST
            return 0.0
        self._last = _FIRST if end.connected and _is_ordinary(end) else min(_LONGEST, self._last * 2)
        return self._last


def _is_ordinary(end: StreamEnd) -> bool:
    if end.code == "UNAVAILABLE":
        return any(text in end.details for text in _ORDINARY_UNAVAILABLE)
    return end.code in _ORDINARY
