"""Asks control planes for the pages of their admin ports.

In: addresses, as people write them. Out: of each replica an Answer, which is what it said or why there is none; all are
asked at the same time. Nothing of the environment (proxies) applies, and no redirect is followed.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

DEFAULT_ADDRESS = "127.0.0.1:15014"

_MOST_BYTES = 256 << 20
_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a control plane listens on, seen from the same machine


class Answer(msgspec.Struct, frozen=True):
    """What a replica said; `where` is what it is called by who asked. Without a `status` there is no answer, and
    `problem` says why, with the cure.
    """

    where: str
    status: int = 0
    body: bytes = b""
    problem: str = ""


class Replicas(Protocol):
    """The replicas of a control plane."""

    def ask(self, path: str) -> list[Answer]:
        """What each of them answers to a page; raises UnreadableInput."""


class UnreadableInput(Exception):
    """What replicas are to be found by cannot be used; the message says why, and what to do."""


class InvalidAddress(ValueError):
    """No address of an admin port; the message says what is."""


class AdminPort(msgspec.Struct, frozen=True):
    """Where a replica is asked; `path` goes before that of every page."""

    text: str
    host: str
    port: int
    secure: bool = False
    path: str = ""


def admin_port(text: str) -> AdminPort:
    """Reads HOST:PORT or a URL; raises InvalidAddress.

    An address that stands for all of a machine, as control planes listen on it, is that of this machine.
    """
    cure = "write HOST:PORT or a URL, such as 127.0.0.1:15014"
    try:
        parts = urlsplit(text if "//" in text else f"//{text}")
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise InvalidAddress(f"{text!r} is no address: {error}; {cure}") from None
    if parts.scheme not in ("", "http", "https") or not host or parts.query or parts.fragment or parts.username:
        raise InvalidAddress(f"{text!r} is no address of an admin port; {cure}")
    secure = parts.scheme == "https"
    if port is None and parts.scheme:
        port = 443 if secure else 80
    if not port:
        raise InvalidAddress(f"{text!r} has no port; {cure}")
    return AdminPort(text, _HERE.get(host, host), port, secure, parts.path.rstrip("/"))


class AdminPorts:
    """Replicas by the addresses of their admin ports. Nobody is waited for longer than `timeout` seconds."""

    def __init__(self, ports: Sequence[AdminPort], *, timeout: float) -> None:
        self._ports = ports
        self._timeout = timeout

    def ask(self, path: str) -> list[Answer]:
        """See Replicas."""
        with ThreadPoolExecutor(max_workers=min(len(self._ports), 16)) as threads:
            return list(threads.map(lambda port: self._ask(port, path), self._ports))

    def _ask(self, port: AdminPort, path: str) -> Answer:
        cure = "is it running there? --admin names another place, -n a namespace of the cluster it runs in"
        connection = (
            HTTPSConnection(port.host, port.port, timeout=self._timeout, context=ssl.create_default_context())
            if port.secure
            else HTTPConnection(port.host, port.port, timeout=self._timeout)
        )
        try:
            connection.request("GET", port.path + path, headers={"accept": "application/json"})
            response = connection.getresponse()
            body = response.read(_MOST_BYTES)
        except TimeoutError:
            problem = f"no answer from {port.text} within {self._timeout:g} s; {cure}"
            return Answer(port.text, problem=problem)
        except (OSError, HTTPException) as error:
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
            return Answer(port.text, problem=f"no control plane answers at {port.text}: {reason}; {cure}")
        finally:
            connection.close()
        return Answer(port.text, response.status, body)
