"""An HTTP listener in the event loop of the process: bound early, served until cancelled, closed in order.

In: an ASGI application and where to listen. Out: answers. Binding is a step of its own, so that a port that is taken is
known, and told in one line, before anything else has started. Uvicorn is kept from what a guest must not do: no signal
handlers, no logging set-up, and no timer ticking ten times a second in an idle process.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import TYPE_CHECKING

from uvicorn import Config, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

CLOSE_SECONDS = 2
"""How long running requests may take when the listener is told to stop."""

_CURES = {
    errno.EADDRINUSE: "another process listens there: stop it, or choose another port (0 picks a free one)",
    errno.EACCES: "ports below 1024 need a privilege: choose a higher one",
    errno.EADDRNOTAVAIL: "this machine does not have that address: choose one that it has, or 0.0.0.0",
}


class ListenError(Exception):
    """An address that cannot be listened on. The text is one line: the flag, what is wrong, the cure."""

    def __init__(self, flag: str, host: str, port: int, error: OSError) -> None:
        cure = _CURES.get(error.errno or 0, "choose another address")
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        super().__init__(f"{flag}: cannot listen on {where}: {error.strerror or error}; {cure}")
        self.flag = flag
        self.cure = cure


class HttpListener:
    """One listener. `bind`, then `serve` in a task of its own; cancelling the task closes it."""

    def __init__(self, app: ASGIApp, *, flag: str, host: str, port: int) -> None:
        """`flag` is the name under which a person chose the address; `host` an IP address or `localhost`."""
        self.flag = flag
        self.host = host
        self.port = port
        self._app = app
        self._socket: socket.socket | None = None
        self._server: _GuestServer | None = None

    def bind(self) -> socket.socket:
        """Takes the address, so that `port` is the real one from then on. Raises ListenError."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
            # Taken for good only by listening: two may bind one port with SO_REUSEADDR.
            listener.listen(128)
        except OSError as error:
            listener.close()
            raise ListenError(self.flag, self.host, self.port, error) from None
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._socket = listener
        return listener

    def close(self) -> None:
        """Gives the address back where it was bound and then never served."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def open(self) -> bool:
        """Whether requests are answered."""
        return self._server is not None and self._server.started and not self._server.should_exit

    async def serve(self) -> None:
        """Answers until cancelled, then lets running requests finish. Raises ListenError if it has to bind first."""
        listener = self._socket or self.bind()
        config = Config(
            self._app,
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=CLOSE_SECONDS,
        )
        self._server = server = _GuestServer(config)
        # Not in this task: a cancelled uvicorn would skip its own shutdown.
        serving = asyncio.create_task(server.serve(sockets=[listener]), name=f"http {self.flag}")
        try:
            await asyncio.shield(serving)
        finally:
            server.stop()
            await serving
            self._socket = None


class _GuestServer(Server):
    """Uvicorn as one listener among others in a process that is not its own."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Ends the main loop, and with it the server."""
        self.should_exit = True
        self._stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the process; nothing is captured."""
        yield

    async def main_loop(self) -> None:
        """Nothing to do until the end; uvicorn's own loop wakes ten times a second for a date header we do not send."""
        await self._stopped.wait()
