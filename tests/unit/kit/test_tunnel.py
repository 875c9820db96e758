"""The client of tunnels: what it says, what it understands, and what it takes for the end."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.kit.tunnel import Refused, Tunnel, ask

SETTINGS, HEADERS, DATA, RESET, PING, GOAWAY, WINDOW = 4, 1, 0, 3, 6, 7, 8
OK = b"\x88"


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


class Script:
    """A way on which the other side says what it is told to, in pieces of a few bytes."""

    def __init__(self, said: Iterable[bytes]) -> None:
        self._said = b"".join(said)
        self.heard = b""
        self.closed = False

    async def read(self) -> bytes:
        part, self._said = self._said[:5], self._said[5:]
        return part

    async def write(self, data: bytes) -> None:
        self.heard += data

    async def close(self) -> None:
        self.closed = True


async def opened(*said: bytes) -> tuple[Tunnel, Script]:
    way = Script([frame(SETTINGS, stream=0), frame(HEADERS, OK, flags=4), *said])
    return await Tunnel(way).open("a:1", {"x-kind": "gateway"}), way


async def test_it_asks_for_its_authority_and_answers_settings_and_pings() -> None:
    tunnel, way = await opened(frame(PING, b"12345678", stream=0), frame(DATA, b"x"))
    assert way.heard.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    for field in (b"\0\x07:method\x07CONNECT", b"\0\x0a:authority\x03a:1", b"\0\x06x-kind\x07gateway"):
        assert field in way.heard
    assert await tunnel.read() == b"x"
    assert frame(SETTINGS, flags=1, stream=0) in way.heard
    assert frame(PING, b"12345678", flags=1, stream=0) in way.heard


async def test_what_is_read_is_credited_to_the_stream_and_the_connection() -> None:
    tunnel, way = await opened(frame(DATA, b"four"))
    await tunnel.read()
    credit = (4).to_bytes(4, "big")
    assert way.heard.endswith(frame(WINDOW, credit, stream=0) + frame(WINDOW, credit))


@pytest.mark.parametrize("end", [frame(DATA, flags=1), frame(RESET, b"\0\0\0\0")])
async def test_the_end_of_the_stream_is_the_end(end: bytes) -> None:
    tunnel, _ = await opened(frame(DATA, b"said"), end)
    assert [await tunnel.read(), await tunnel.read()] == [b"said", b""]


async def test_what_is_written_is_data() -> None:
    tunnel, way = await opened()
    await tunnel.write(b"hello")
    assert way.heard.endswith(frame(DATA, b"hello"))
    await tunnel.close()
    assert way.closed


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (b"\x8d", 404),
        (b"\x48\x03503", 503),
        (b"\x08\x03503", 503),
        (b"\x48\x83\x6c\x0c\xff", 503),  # in Huffman's code: 011011 00000 011001, and ones to the end of the byte
        (b"\x20\x3f\xe1\x1f\x48\x03503", 503),
    ],
)
async def test_any_answer_but_200_is_a_refusal_with_its_status(block: bytes, status: int) -> None:
    way = Script([frame(HEADERS, block, flags=4)])
    with pytest.raises(Refused) as refused:
        await Tunnel(way).open("a:1", {})
    assert refused.value.status == status


async def test_a_reset_is_a_refusal_without_status() -> None:
    with pytest.raises(Refused) as refused:
        await Tunnel(Script([frame(RESET, b"\0\0\0\7")])).open("a:1", {})
    assert refused.value.status == 0


async def test_a_connection_that_ends_or_is_given_up_says_so() -> None:
    with pytest.raises(ConnectionResetError, match="ended"):
        await Tunnel(Script([frame(SETTINGS, stream=0)])).open("a:1", {})
    with pytest.raises(ConnectionResetError, match="too much"):
        await Tunnel(Script([frame(GOAWAY, bytes(8) + b"too much", stream=0)])).open("a:1", {})


async def test_a_request_reads_to_the_end() -> None:
    tunnel, way = await opened(frame(DATA, b"HTTP/1.1 200 OK\r\n"), frame(DATA, b"\r\nbody"), frame(DATA, flags=1))
    assert await ask(tunnel, "a") == b"HTTP/1.1 200 OK\r\n\r\nbody"
    assert b"GET / HTTP/1.1\r\nhost: a\r\n" in way.heard
