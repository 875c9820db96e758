"""Parts of the listener that need no connection."""

from __future__ import annotations

import grpc
import pytest

from xds.server.dialogue import Disconnected
from xds.server.listener import Address, GrpcTransport


class Context:
    """A gRPC context whose batches fail, as they do when a connection breaks before gRPC cancels the call."""

    async def read(self) -> bytes:
        raise grpc.aio.InternalError("batch failed")

    async def write(self, message: bytes) -> None:
        raise grpc.aio.InternalError("batch failed")


async def test_a_failed_batch_means_that_the_peer_is_gone() -> None:
    transport = GrpcTransport(Context())
    with pytest.raises(Disconnected):
        await transport.read()
    with pytest.raises(Disconnected):
        await transport.write(b"")


@pytest.mark.parametrize(
    ("host", "text"), [("127.0.0.1", "127.0.0.1:15012"), ("::", "[::]:15012"), ("localhost", "localhost:15012")]
)
def test_an_address_is_written_as_grpc_reads_it(host: str, text: str) -> None:
    assert str(Address(host, 15012)) == text
