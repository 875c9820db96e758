"""Asks control planes for the pages of their admin ports.

In: addresses, as people write them, and a token where they are not on this machine. Out: of each replica an Answer,
which is what it said or why there is none; all are asked at the same time. Nothing of the environment (proxies)
applies, and no redirect is followed, so that a token goes nowhere else. No message shows it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

DEFAULT_ADDRESS = "127.0.0.1:15014"

_MOST_BYTES = 256 << 20
_LONGEST_TOKEN = 16 << 10
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


def token_in(file: Path) -> str:
    """The token that is in a file; raises UnreadableInput."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_LONGEST_TOKEN + 1).strip()
    except OSError as error:
        raise UnreadableInput(f"--token-file: {file} cannot be read: {error.strerror or error}") from None
    if not data or len(data) > _LONGEST_TOKEN or any(not 0x21 <= byte <= 0x7E for byte in data):
        raise UnreadableInput(f"--token-file: {file} holds no token; write one into it, and nothing else")
    return data.decode()


class AdminPorts:
    """Replicas by the addresses of their admin ports. Nobody is waited for longer than `timeout` seconds.

    The token in `token_file` is read for each question, since such files are renewed.
    """

    def __init__(self, ports: Sequence[AdminPort], *, timeout: float, token_file: Path | None = None) -> None:
        self._ports = ports
        self._timeout = timeout
        self._token_file = token_file

    def ask(self, path: str) -> list[Answer]:
        """See Replicas."""
        headers = {"accept": "application/json"}
        if self._token_file is not None:
            headers["authorization"] = f"Bearer {token_in(self._token_file)}"
        with ThreadPoolExecutor(max_workers=min(len(self._ports), 16)) as threads:
            return list(threads.map(lambda port: self._ask(port, path, headers), self._ports))

    def _ask(self, port: AdminPort, path: str, headers: Mapping[str, str]) -> Answer:
        cure = "is it running there? --admin names another place, -n a namespace of the cluster it runs in"
        connection = (
            HTTPSConnection(port.host, port.port, timeout=self._timeout, context=ssl.create_default_context())
            if port.secure
            else HTTPConnection(port.host, port.port, timeout=self._timeout)
        )
        try:
            connection.request("GET", port.path + path, headers=dict(headers))
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
