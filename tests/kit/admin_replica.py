"""The admin port of a control plane that says what a test has it say, for the commands that ask one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class AdminReplica(ABC):
    """It answers on `address` from the beginning, until it is closed: what `page` says of a target, or `answer`."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] | None = None
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        handler = type("Handler", (_Handler,), {"replica": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="replica")
        self._thread.start()

    def close(self) -> None:
        """It answers no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @abstractmethod
    def page(self, target: str) -> tuple[int, bytes]:
        """Status and body of the answer to a request for a target."""

    def say(self, target: str, authorization: str | None) -> tuple[int, bytes]:
        """The same, or what is to be said instead; and what was asked is kept."""
        self.asked.append(target)
        self.authorizations.append(authorization)
        return self.page(target) if self.answer is None else self.answer


class _Handler(BaseHTTPRequestHandler):
    replica: AdminReplica

    def do_GET(self) -> None:
        status, body = self.replica.say(self.path, self.headers.get("authorization"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass
