"""The session with the newest credential of a cluster, for who sends requests now and then, or reads single objects.

In: credentials, one after another. Out: answers. A connection of its own, so that lists and watches delay nothing here,
and the other way round. It is opened with the first request, and anew with the first after another credential came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from watchers.kubernetes.kubeconfig import ApiServer, InvalidKubeconfig
from watchers.kubernetes.session import Broken, Method, Reply, Requests, Response, Sends, Session


class OpenSession(Sends, Requests, Protocol):
    """A session that can be closed."""

    async def close(self) -> None:
        """Closes every socket."""


class NewestSession:
    """Sends with the credential that was given last. To be closed by whoever made it."""

    def __init__(self, open_session: Callable[[ApiServer], OpenSession] = Session) -> None:
        self._open = open_session
        self._server: ApiServer | None = None
        self._session: OpenSession | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def use(self, server: ApiServer) -> None:
        """Use this credential from now on. Requests under way with an older one are broken off."""
        if server == self._server:
            return
        self._server = server
        if self._session is not None:
            self._retire(self._session)
            self._session = None

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
        """As `Session.send`; raises Broken as well while there is no credential that can be used."""
        session = self._newest()
        return await session.send(method, path, query, body, content_type=content_type, seconds=seconds)

    @asynccontextmanager
    async def get(self, path: str, query: Mapping[str, str], *, silence: float) -> AsyncIterator[Response]:
        """As `Session.get`; raises Broken as `send` does."""
        async with self._newest().get(path, query, silence=silence) as response:
            yield response

    def _newest(self) -> OpenSession:
        if self._session is None:
            if self._server is None:
                raise Broken("connect", "there is no credential yet")
            try:
                self._session = self._open(self._server)
            except InvalidKubeconfig as error:
                raise Broken("connect", str(error)) from None
        return self._session

    async def close(self) -> None:
        """Ends all requests and closes all connections."""
        session, self._session, self._server = self._session, None, None
        if session is not None:
            await session.close()
        if self._closing:
            await asyncio.wait(self._closing)

    def _retire(self, session: OpenSession) -> None:
        closing = asyncio.get_running_loop().create_task(session.close(), name="close an old session")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
