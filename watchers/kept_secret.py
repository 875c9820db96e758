"""A Secret of home that the control plane keeps for itself: read, and made where there is none yet.

In: requests to home. Out: its entries. Of several processes that make it at once one succeeds, and the others read what
that one made. Nothing here is a fact, and nothing shows what the Secret holds: no repr, no error and no log line.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping

import msgspec

from watchers.kubernetes.events import refusal
from watchers.kubernetes.session import Broken, Method, Reply, Sends

_SECONDS = 10.0
_LABELS = {"app.kubernetes.io/part-of": "isthmus"}


class Unobtainable(Exception):
    """The Secret cannot be read or made now; the message names it, the cause, and the cure where there is one."""


class _Secret(msgspec.Struct):
    data: dict[str, str] | None = None


class KeptSecret:
    """The Secret of that name in that namespace of home."""

    def __init__(self, requests: Sends, namespace: str, name: str) -> None:
        self._requests = requests
        self._namespace = namespace
        self._name = name
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"

    def __str__(self) -> str:
        return f"Secret {self._namespace}/{self._name}"

    async def read(self) -> Mapping[str, bytes] | None:
        """Its entries; None if there is no such Secret. Raises Unobtainable."""
        reply = await self._send("GET", f"{self._collection}/{self._name}")
        return None if reply.status == 404 else self._entries(reply, "get")

    async def make(self, entries: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Makes it with these entries; returns those it has, which are others' if it was there. Raises Unobtainable."""
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name, "namespace": self._namespace, "labels": _LABELS},
            "type": "Opaque",
            "data": {name: b64encode(value).decode() for name, value in entries.items()},
        }
        reply = await self._send("POST", self._collection, msgspec.json.encode(document))
        if reply.status == 409:
            found = await self.read()
            if found is None:
                raise Unobtainable(f"{self} is made and deleted again by others")
            return found
        self._entries(reply, "create")
        return entries

    async def _send(self, method: Method, path: str, body: bytes = b"") -> Reply:
        try:
            return await self._requests.send(method, path, {}, body, seconds=_SECONDS)
        except Broken as error:
            raise Unobtainable(f"{self}: {error}") from None

    def _entries(self, reply: Reply, verb: str) -> Mapping[str, bytes]:
        if reply.status not in (200, 201):
            said = str(refusal(reply.status, reply.body, reply.headers))
            cure = f"; grant this process {verb} on secrets in namespace {self._namespace}"
            raise Unobtainable(f"{self}: {said}{cure if reply.status == 403 else ''}")
        try:
            data = msgspec.json.decode(reply.body, type=_Secret).data or {}
            return {name: b64decode(value, validate=True) for name, value in data.items()}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, binascii.Error, ValueError):
            raise Unobtainable(f"{self}: what answers is no Secret") from None
