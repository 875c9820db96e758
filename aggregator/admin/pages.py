"""What the two HTTP listeners answer: /ready and /live on one; /metrics, /version and registered pages on the other.

In: functions that tell the present state when asked. Out: ASGI applications for server.py. Everything is read-only:
there is nothing here that a forged request could change. Who may read a page is judged in access.py, and all that is
said of it here is which pages are open to everybody: none but those that say so. Holds no state but the list of pages.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from aggregator.admin.access import HEADERS, Guard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from aggregator.admin.access import Access

    Produce: TypeAlias = Callable[[Mapping[str, str]], object | Awaitable[object]]
    """Makes the content of a page of the query; it may have to be awaited."""

FIXED = {"/metrics": "counters and gauges for Prometheus", "/version": "the version of this process"}
OPEN = ("/", "/metrics")
"""What is open to everybody of the pages that are always there: it names no object of any cluster."""


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


class WrongQuery(Exception):
    """Raised by a page whose query means nothing; the message says what may be asked."""


class _Page(msgspec.Struct, frozen=True):
    says: str
    produce: Produce
    open: bool


class Pages:
    """The read-only pages of the admin port: each answers what its function returns for the query, as JSON."""

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}

    def add(self, path: str, says: str, produce: Produce, *, open: bool = False) -> None:  # noqa: A002 - as one says it
        """Registers a page, also after the listener was started. `says` is its line in the index at `/`.

        It is for those whom access.py knows, unless it is `open`, which is for pages that name no objects of clusters.

        Where the last part of `path` is a name in braces, as in `/clusters/{name}`, it stands for anything, and
        `produce` finds what was asked for under that name beside the query. `produce` may raise NoSuchPage
        and WrongQuery.
        """
        self._pages[path] = _Page(says, produce, open)

    def index(self) -> dict[str, str]:
        """Paths and what they say."""
        return {path: page.says for path, page in sorted(self._pages.items())}

    def is_open(self, path: str) -> bool:
        """Whether everybody may read what is at a path; what is not there is not open."""
        found = self._find(path)
        return found is not None and found[0].open

    def find(self, path: str) -> tuple[Produce, Mapping[str, str]] | None:
        """The function behind a path, and what stands in the place of the name in braces."""
        found = self._find(path)
        return None if found is None else (found[0].produce, found[1])

    def _find(self, path: str) -> tuple[_Page, Mapping[str, str]] | None:
        page = self._pages.get(path)
        if page is not None:
            return page, {}
        parent, _, last = path.rpartition("/")
        for pattern, page in self._pages.items():
            place, _, name = pattern.rpartition("/")
            if last and place == parent and name.startswith("{"):
                return page, {name.strip("{}"): last}
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


def admin_app(
    metrics: Callable[[str], tuple[bytes, str]], version: str, pages: Pages, access: Access
) -> ASGIApp:
    """`/metrics`, `/version`, the registered pages, and an index of all of them at `/`, behind a guard.

    `metrics` is called with the Accept header and returns a body and its content type.
    """

    async def show_metrics(request: Request) -> Response:
        body, content_type = metrics(request.headers.get("accept", ""))
        return Response(body, headers={**HEADERS, "content-type": content_type})

    async def show_version(_: Request) -> Response:
        return _json({"version": version})

    async def index(_: Request) -> Response:
        return _json({**FIXED, **pages.index()})

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
        except WrongQuery as wrong:
            return _json({"error": str(wrong)}, 400)

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/metrics", show_metrics),
            Route("/version", show_version),
            Route("/{path:path}", page),
        ]
    )
    return Guard(app, lambda path: path in OPEN or (path not in FIXED and pages.is_open(path)), access)


def _json(body: object, status: int = 200) -> Response:
    text = msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n"
    return Response(text, status, headers={**HEADERS, "content-type": "application/json"})
