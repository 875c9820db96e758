"""A gRPC call in as little as carries it: so that measuring a server on the same machine measures the server.

A response costs Python's gRPC 150 us, and ten clients that share two cores with the server would mostly wait for one
another; here it costs a tenth, as in a proxy. HTTP/2 (RFC 9113), one connection for each call, with TLS where whoever
connects it says so. Its receiving windows are opened so wide at the start that they need no care later; or, for a
client that is to be slow, left as narrow as they are by default. What is sent beyond the server's windows waits.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from typing import Final

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW_SIZE: Final = 4
_WIDEST: Final = (1 << 31) - 1
_INITIAL: Final = 65_535
_LONGEST_FRAME: Final = 16_384
_FRAME_HEADER: Final = 9
_MESSAGE_HEADER: Final = 5


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _window(stream: int, size: int) -> bytes:
    return _frame(_WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


def _text(text: str) -> bytes:
    """A string as HPACK (RFC 7541) writes it when it is short and not compressed."""
    return bytes((len(text),)) + text.encode()


def _opening(path: str, token: str, *, narrow: bool) -> bytes:
    """All a client says before its first message; the token is of at most 100 characters."""
    settings = b"" if narrow else struct.pack(">HI", _INITIAL_WINDOW_SIZE, _WIDEST)
    wide = b"" if narrow else _window(0, _WIDEST - _INITIAL)
    headers = (
        b"\x83" + (b"\x87" if token else b"\x86")  # :method POST, :scheme https or http, from HPACK's static table
        + b"\x04" + _text(path) + b"\x01" + _text("localhost")  # :path, :authority
        + b"\x0f\x10" + _text("application/grpc")  # content-type
        + b"\x00" + _text("te") + _text("trailers")
        + (b"\x0f\x08" + _text(f"Bearer {token}") if token else b"")  # authorization
    )  # fmt: skip
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, settings)
        + wide
        + _frame(_HEADERS, _END_HEADERS, 1, headers)
    )


class Stream(asyncio.Protocol):
    """One call of a method with streams both ways. `heard` is given every message; `ended` is set when there are no
    more, whoever ended the call. A `narrow` one lets the server send 64 KB at a time, and no more while it is `held`.
    With a `token` it is one for a connection with TLS.
    """

    def __init__(self, path: str, heard: Callable[[bytes], None], *, narrow: bool = False, token: str = "") -> None:
        self.ended = asyncio.Event()
        self.away = 0
        """When the server said that it will be gone (GOAWAY), in ns; 0 if it has not."""
        self.finished = False
        """Whether the server has ended the call, rather than the connection."""
        self._narrow = narrow
        self._held = False
        self._taken = 0
        """Bytes that came since the server was last let send more."""
        self._path = path
        self._token = token
        self._heard = heard
        self._transport: asyncio.Transport | None = None
        self._frames = bytearray()
        self._messages = bytearray()
        self._waiting = bytearray()
        """What the server takes no more of yet."""
        self._first_window = _INITIAL
        self._windows = [_INITIAL, _INITIAL]
        """Bytes the server still takes, on the connection and of this call."""

    def send(self, message: bytes) -> None:
        """Send a message, which nobody hears once the call has ended."""
        self._waiting += struct.pack(">BI", 0, len(message)) + message
        self._flush()

    def close(self) -> None:
        """End the call by ending the connection."""
        if self._transport is not None:
            self._transport.close()

    def hold(self, *, on: bool) -> None:
        """Let the server send no more than it may already, or go on."""
        self._held = on
        self._widen()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(_opening(self._path, self._token, narrow=self._narrow))
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None
        self.ended.set()

    def data_received(self, data: bytes) -> None:
        """Bytes of the server."""
        frames = self._frames
        frames += data
        at = 0
        while len(frames) - at >= _FRAME_HEADER:
            size = int.from_bytes(frames[at : at + 3])
            end = at + _FRAME_HEADER + size
            if len(frames) < end:
                break
            self._take(frames[at + 3], frames[at + 4], frames[at + 8], frames[at + _FRAME_HEADER : end])
            at = end
        del frames[:at]

    def _take(self, kind: int, flags: int, stream: int, payload: bytearray) -> None:
        if self._transport is None:
            return
        if kind == _DATA:
            self._messages += payload
            self._taken += len(payload)
            self._widen()
            self._hear()
        elif kind == _WINDOW_UPDATE:
            self._windows[stream] += int.from_bytes(payload)
            self._flush()
        elif kind == _SETTINGS and not flags & _ACK:
            self._transport.write(_frame(_SETTINGS, _ACK, 0, b""))
            self._settle(payload)
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, bytes(payload)))
        elif kind == _GOAWAY:
            self.away = time.monotonic_ns()
        if kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self.finished = True
            self.ended.set()

    def _settle(self, payload: bytes | bytearray) -> None:
        """What the server says of its window for calls that have begun (RFC 9113, 6.9.2)."""
        for identifier, value in struct.iter_unpack(">HI", payload):
            if identifier == _INITIAL_WINDOW_SIZE:
                self._windows[1] += value - self._first_window
                self._first_window = value
        self._flush()

    def _flush(self) -> None:
        """Send what the server takes of what waits."""
        size = min(len(self._waiting), *self._windows)
        if size <= 0 or self._transport is None:
            return
        self._windows = [window - size for window in self._windows]
        parts = [
            _frame(_DATA, 0, 1, bytes(self._waiting[start : min(start + _LONGEST_FRAME, size)]))
            for start in range(0, size, _LONGEST_FRAME)
        ]
        del self._waiting[:size]
        self._transport.write(b"".join(parts))

    def _widen(self) -> None:
        if self._narrow and not self._held and self._taken and self._transport is not None:
            self._transport.write(_window(0, self._taken) + _window(1, self._taken))
            self._taken = 0

    def _hear(self) -> None:
        messages = self._messages
        at = 0
        while len(messages) - at >= _MESSAGE_HEADER:
            start = at + _MESSAGE_HEADER
            size = int.from_bytes(messages[at + 1 : start])
            if len(messages) - start < size:
                break
            at = start + size
            self._heard(bytes(messages[start:at]))
        del messages[:at]
