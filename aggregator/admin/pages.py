"""What the two HTTP listeners answer: /ready and /live on one; /metrics, /version and registered pages on the other.

In: functions that tell the present state when asked. Out: ASGI applications for server.py. Everything is read-only:
there is nothing here that a forged request could change. Holds no state but the list of pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Readiness(Protocol):
    """Whether the process is ready, what holds it back, and what is still missing but does not."""

    @property
    def ready(self) -> bool:
        """Whether new proxies may be sent here."""

    @property
    def waiting(self) -> tuple[str, ...]:
        """What holds it back, a line each."""

    @property
    def unsettled(self) -> tuple[str, ...]:
        """What is missing but does not hold it back, a line each."""


class Pages:
    """The read-only pages of the admin port: each answers what its function returns for the query, as JSON."""

    def __init__(self) -> None:
        self._pages: dict[str, tuple[str, Callable[[Mapping[str, str]], object]]] = {}

    def add(self, path: str, says: str, produce: Callable[[Mapping[str, str]], object]) -> None:
        """Registers a page, also after the listener was started. `says` is its line in the index at `/`."""
        self._pages[path] = (says, produce)

    def index(self) -> dict[str, str]:
        """Paths and what they say."""
        return {path: says for path, (says, _) in sorted(self._pages.items())}

    def find(self, path: str) -> Callable[[Mapping[str, str]], object] | None:
        """The function behind a path."""
        page = self._pages.get(path)
        return None if page is None else page[1]


def health_app(readiness: Callable[[], Readiness]) -> Starlette:
    """`/ready`: 200 or 503 with what is waited for. `/live`: 200 as long as the event loop answers at all."""

    async def ready(_: Request) -> Response:
        now = readiness()
        body = {"ready": now.ready, "waiting": now.waiting, "unsettled": now.unsettled}
        return _json(body, 200 if now.ready else 503)

    async def live(_: Request) -> Response:
        return _json({"live": True})

    return Starlette(routes=[Route("/ready", ready), Route("/live", live)])


def admin_app(metrics: Callable[[str], tuple[bytes, str]], version: str, pages: Pages) -> Starlette:
    """`/metrics`, `/version`, the registered pages, and an index of all of them at `/`.

    `metrics` is called with the Accept header and returns a body and its content type.
    """

    async def show_metrics(request: Request) -> Response:
        body, content_type = metrics(request.headers.get("accept", ""))
        return Response(body, headers={**_HEADERS, "content-type": content_type})

    async def show_version(_: Request) -> Response:
        return _json({"version": version})

    async def index(_: Request) -> Response:
        fixed = {"/metrics": "counters and gauges for Prometheus", "/version": "the version of this process"}
        return _json({**fixed, **pages.index()})

    async def page(request: Request) -> Response:
        produce = pages.find(request.url.path)
        if produce is None:
            return _json({"error": f"no page {request.url.path}", "pages": "/"}, 404)
        return _json(produce(request.query_params))

    return Starlette(
        routes=[
            Route("/", index),
            Route("/metrics", show_metrics),
            Route("/version", show_version),
            Route("/{path:path}", page),
        ]
    )


def _json(body: object, status: int = 200) -> Response:
    text = msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n"
    return Response(text, status, headers={**_HEADERS, "content-type": "application/json"})
