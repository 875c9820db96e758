"""A session with a fake API server without sockets, so that hours of a watch can pass in virtual time.

Stands in for `watchers.kubernetes.session.Session`, limits of silence included.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

from tests.kit.kube_api import Answer, KubeCluster
from watchers.kubernetes.expiry import token_expiry
from watchers.kubernetes.session import Broken, Method, Reply
from watchers.status import Access


class MemorySession:
    """Requests to one fake cluster with one token."""

    def __init__(self, cluster: KubeCluster, token: str = "token") -> None:
        self._cluster = cluster
        self._token = token
        self.closed = False

    @asynccontextmanager
    async def get(self, path: str, query: Mapping[str, str], *, silence: float) -> AsyncIterator[MemoryResponse]:
        """As Session.get."""
        if self._cluster.refuse_connections:
            raise Broken("connect", "Connection refused")
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            async with asyncio.timeout(silence):
                answer = await self._cluster.answer(path, query, headers)
        except TimeoutError:
            raise Broken("timeout", "nothing was heard for too long") from None
        async with aclosing(answer.body):
            yield MemoryResponse(answer, silence)

    @property
    def access(self) -> Access:
        """As Session.access."""
        return Access(f"{self._cluster.name}.example:443", token_expiry(self._token))

    async def send(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str],
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        seconds: float,
    ) -> Reply:
        """As Session.send."""
        if self._cluster.refuse_connections:
            raise Broken("connect", "Connection refused")
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        try:
            async with asyncio.timeout(seconds):
                answer = await self._cluster.answer(path, query, headers, method, body)
                async with aclosing(answer.body):
                    said = b"".join([chunk async for chunk in answer.body])
        except TimeoutError:
            raise Broken("timeout", "no answer within the time given to it") from None
        except ConnectionResetError:
            raise Broken("server", "the connection was closed") from None
        return Reply(answer.status, answer.headers, said)

    async def close(self) -> None:
        """As Session.close."""
        self.closed = True


class MemoryResponse:
    """As the Response of a Session."""

    def __init__(self, answer: Answer, silence: float) -> None:
        self._answer = answer
        self._silence = silence
        self.status = answer.status
        self.headers = answer.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, chunk by chunk."""
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    chunk = await anext(self._answer.body)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Broken("timeout", "nothing was heard for too long") from None
            except ConnectionResetError:
                raise Broken("server", "the connection was closed") from None
            yield chunk
