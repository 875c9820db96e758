"""An API server that makes its lists up page by page, so that big clusters take no memory but the reader's.

Stands in for `watchers.kubernetes.session.Session`. It knows lists and their pages, selectors of a namespace, and
watches in which nothing happens; it does not stream lists.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from tests.kit.manifests import Manifest

CHUNK = 64 << 10


class Made:
    """Objects of one kind: how many there are, and the one of a number."""

    def __init__(self, count: int, make: Callable[[int], Manifest]) -> None:
        self.count = count
        self.make = make


class PagesSession:
    """Requests to it. ``kinds`` are by the last part of their paths, ``padding`` is put into every object's metadata,
    as annotations and managedFields. ``sent`` counts the bytes of bodies.
    """

    def __init__(self, kinds: Mapping[str, Made], padding: int = 0) -> None:
        self._kinds = kinds
        self._padding = padding
        self.sent = 0

    @asynccontextmanager
    async def get(self, path: str, query: Mapping[str, str], *, silence: float) -> AsyncIterator[PagesResponse]:
        """As Session.get."""
        if "watch" in query:
            yield PagesResponse(400 if "sendInitialEvents" in query else 200, None)
            return
        body = self._page(path.rpartition("/")[2], query)
        self.sent += len(body)
        yield PagesResponse(200, body)

    async def close(self) -> None:
        """As Session.close."""

    def _page(self, plural: str, query: Mapping[str, str]) -> bytes:
        made = self._kinds[plural]
        first, limit = int(query.get("continue", "0")), int(query.get("limit", str(made.count)))
        only = query.get("fieldSelector", "").removeprefix("metadata.namespace=")
        items: list[bytes] = []
        number = first
        while number < made.count and len(items) < limit:
            manifest = made.make(number)
            number += 1
            if not only or manifest["metadata"].get("namespace") == only:
                items.append(self._padded(manifest))
        metadata = {"resourceVersion": "1000", **({"continue": str(number)} if number < made.count else {})}
        return b'{"kind":"List","metadata":%b,"items":[%b]}' % (json.dumps(metadata).encode(), b",".join(items))

    def _padded(self, manifest: Manifest) -> bytes:
        if self._padding:
            padding = "x" * (self._padding // 2)
            fields = [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:padding": padding}}}]
            more = {"annotations": {"example.com/padding": padding}, "managedFields": fields}
            manifest = {**manifest, "metadata": {**manifest["metadata"], **more}}
        return json.dumps(manifest, separators=(",", ":")).encode()


class PagesResponse:
    """As the Response of a Session."""

    def __init__(self, status: int, body: bytes | None) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {}
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, chunk by chunk; that of a watch never ends."""
        if self._body is None:
            if self.status == 200:
                await asyncio.Event().wait()
            return
        for place in range(0, len(self._body), CHUNK):
            yield self._body[place : place + CHUNK]
            await asyncio.sleep(0)
