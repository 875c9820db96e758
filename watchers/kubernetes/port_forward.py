"""One HTTP request to a port of a pod, through the port-forward of its API server: it arrives on the pod's loopback.

In: an Operator, a pod, a path. Out: status and body of what the pod answers, or a Refusal. The protocol is that of
Kubernetes for WebSockets, `v4.channel.k8s.io`: the first byte of a message is its channel, of which a port has two, for
data and for errors, and the first message of each names the port.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import h11

from watchers.kubernetes.operator_access import Operator, Refusal

PROTOCOL = "v4.channel.k8s.io"

_DATA, _ERRORS = 0, 1
_MOST_BYTES = 256 << 20


async def get(there: Operator, what: str, pod: str, port: int, path: str) -> tuple[int, bytes]:
    """Status and body of what the pod answers to a GET request; ``pod`` is the path of the pod, ``what`` says what it
    is for. Raises Refusal.
    """
    asked = h11.Connection(h11.CLIENT)
    headers = [("Host", "localhost"), ("Accept", "application/json"), ("Connection", "close")]
    request = h11.Request(method="GET", target=path, headers=headers)
    async with there.connect(what, f"{pod}/portforward", {"ports": str(port)}, PROTOCOL) as socket:
        await socket.send_bytes(bytes((_DATA,)) + _sent(asked, request) + _sent(asked, h11.EndOfMessage()))
        try:
            return await _answer(what, asked, _received(what, socket))
        except h11.RemoteProtocolError as error:
            raise Refusal("unreachable", f"cannot {what}: what answers speaks no HTTP ({error})") from None


def _sent(asked: h11.Connection, event: h11.Event) -> bytes:
    return asked.send(event) or b""


async def _answer(what: str, asked: h11.Connection, received: AsyncIterator[bytes]) -> tuple[int, bytes]:
    status, body = 0, bytearray()
    while True:
        event = asked.next_event()
        if event is h11.NEED_DATA:
            data = await anext(received, b"")
            if not data and not status:
                raise Refusal("unreachable", f"cannot {what}: the connection ended without an answer")
            # An end in the middle of an answer is an error of the protocol.
            asked.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _MOST_BYTES:
                raise Refusal("unreachable", f"cannot {what}: the answer is longer than {_MOST_BYTES:,} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return status, bytes(body)
        elif not isinstance(event, h11.InformationalResponse):
            raise Refusal("unreachable", f"cannot {what}: the connection ended in the middle of an answer")


async def _received(what: str, socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[bytes]:
    """What arrives from the port; raises Refusal for what arrives as an error."""
    begun: set[int] = set()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel not in begun:
            begun.add(channel)
        elif channel == _DATA and data:
            yield data
        elif channel == _ERRORS and data:
            said = data.decode(errors="replace")[:300]
            text = "".join(character if character.isprintable() else " " for character in said)
            raise Refusal("unreachable", f"cannot {what}: {text}")
