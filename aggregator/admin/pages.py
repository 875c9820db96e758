"""What the two HTTP listeners answer: /ready and /live on one; /metrics, /version and registered pages on the other.

In: functions that tell the present state when asked. Out: ASGI applications for server.py. Everything is read-only:
there is nothing here that a forged request could change. Holds no state but the list of pages.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    Produce: TypeAlias = Callable[[Mapping[str, str]], object | Awaitable[object]]
    """Makes the content of a page of the query; it may have to be awaited."""

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


class NoSuchPage(Exception):
    """Raised by a page that is asked for something there is not; `answer` says so, and what there is."""

    def __init__(self, answer: Mapping[str, object]) -> None:
        super().__init__(answer)
        self.answer = answer


class Pages:
    """The read-only pages of the admin port: each answers what its function returns for the query, as JSON."""

    def __init__(self) -> None:
        self._pages: dict[str, tuple[str, Produce]] = {}

    def add(self, path: str, says: str, produce: Produce) -> None:
        """Registers a page, also after the listener was started. `says` is its line in the index at `/`.

        Where the last part of `path` is a name in braces, as in `/clusters/{name}`, it stands for anything, and
        `produce` finds what was asked for under that name beside the query. `produce` may raise NoSuchPage.
        """
        self._pages[path] = (says, produce)

    def index(self) -> dict[str, str]:
        """Paths and what they say."""
        return {path: says for path, (says, _) in sorted(self._pages.items())}

    def find(self, path: str) -> tuple[Produce, Mapping[str, str]] | None:
        """The function behind a path, and what stands in the place of the name in braces."""
        page = self._pages.get(path)
        if page is not None:
            return page[1], {}
        parent, _, last = path.rpartition("/")
        for pattern, (_, produce) in self._pages.items():
            place, _, name = pattern.rpartition("/")
            if last and place == parent and name.startswith("{"):
                return produce, {name.strip("{}"): last}
        return None


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
        path = request.scope["path"]
        found = pages.find(path)
        if found is None:
            return _json({"error": f"no page {path}", "pages": "/"}, 404)
        produce, named = found
        try:
            content = produce({**request.query_params, **named})
            return _json(await content if inspect.isawaitable(content) else content)
        except NoSuchPage as missing:
            return _json(missing.answer, 404)

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
