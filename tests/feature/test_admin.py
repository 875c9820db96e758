"""The two HTTP ports of the process, asked over real sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from aggregator.admin.access import Access, NotAccepted
from aggregator.admin.pages import Pages, admin_app, health_app
from aggregator.admin.server import HttpListener
from aggregator.app.metrics import ClusterStates, Exposition, RecordCounts
from aggregator.app.readiness import Readiness, readiness
from aggregator.app.records import Pass, Records
from tests.kit.eventually import eventually
from watchers.status import ClusterStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.types import ASGIApp


class Cluster(msgspec.Struct):
    state: str
    home: bool
    reason: str = ""


@contextlib.asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[HttpListener]:
    listener = HttpListener(app, flag="--admin", host="127.0.0.1", port=0)
    listener.bind()
    task = asyncio.create_task(listener.serve())
    await eventually(lambda: listener.open)
    try:
        yield listener
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def ask(listener: HttpListener, path: str, method: str = "GET", accept: str = "*/*") -> tuple[int, str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    request = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    writer.write(request.encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *headers = head.decode().split("\r\n")
    types = [value for name, _, value in (line.partition(": ") for line in headers) if name == "content-type"]
    return int(status.split()[1]), types[0] if types else "", body


async def test_ready_turns_from_503_with_reasons_to_200() -> None:
    home = Cluster("syncing", home=True)
    passed = False

    def now() -> Readiness:
        return readiness(
            [("west", home), ("east", Cluster("connecting", home=False))], passed=passed, settled=passed, listeners={}
        )

    async with served(health_app(now)) as listener:
        status, content_type, body = await ask(listener, "/ready")
        assert (status, content_type) == (503, "application/json")
        assert json.loads(body) == {
            "ready": False,
            "waiting": ["cluster west is syncing", "the first complete pass is not published yet"],
            "unsettled": ["cluster east is connecting"],
        }
        home.state, passed = "synced", True
        status, _, body = await ask(listener, "/ready")
        assert (status, json.loads(body)["waiting"]) == (200, [])


async def test_live_is_200_also_while_not_ready() -> None:
    async with served(health_app(lambda: readiness([], passed=False, settled=False, listeners={}))) as listener:
        assert (await ask(listener, "/live"))[0] == 200
        assert (await ask(listener, "/ready", method="HEAD"))[::2] == (503, b"")


async def nobody(_peer: str, _authorizations: Sequence[str]) -> str:
    raise NotAccepted("it is not accepted")


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
async def admin(records: Records) -> AsyncIterator[tuple[HttpListener, Pages]]:
    clusters = ClusterStates(lambda: [ClusterStatus("west", True, "Synced")])
    exposition = Exposition([RecordCounts(records), clusters], "1.2.3")
    pages = Pages()
    async with served(admin_app(exposition.render, "1.2.3", pages, Access((), nobody, "istio-ca"))) as listener:
        yield listener, pages


async def test_metrics_show_what_the_records_say_at_the_time_of_asking(
    admin: tuple[HttpListener, Pages], records: Records
) -> None:
    listener, _ = admin
    assert b"isthmus_aggregate_passes_total 0.0\n" in (await ask(listener, "/metrics"))[2]
    records.append(Pass(1, (), 0, 2_000_000_000, 7, 3, 2))
    status, content_type, body = await ask(listener, "/metrics")
    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    assert b"isthmus_aggregate_passes_total 1.0\n" in body
    assert b"isthmus_aggregate_duration_seconds_total 2.0\n" in body
    assert b'isthmus_cluster_state{cluster="west",state="synced"} 1.0\n' in body


async def test_metrics_speak_openmetrics_when_asked(admin: tuple[HttpListener, Pages]) -> None:
    _, content_type, body = await ask(admin[0], "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


async def test_version_is_told(admin: tuple[HttpListener, Pages]) -> None:
    assert json.loads((await ask(admin[0], "/version"))[2]) == {"version": "1.2.3"}


async def test_a_page_may_be_added_at_any_time_and_is_in_the_index(admin: tuple[HttpListener, Pages]) -> None:
    listener, pages = admin
    assert (await ask(listener, "/debug/clusters"))[0] == 404
    pages.add("/debug/clusters", "clusters and their states", lambda query: {"only": query.get("cluster")})
    assert json.loads((await ask(listener, "/debug/clusters?cluster=west"))[2]) == {"only": "west"}
    assert json.loads((await ask(listener, "/"))[2])["/debug/clusters"] == "clusters and their states"


@pytest.mark.parametrize("path", ["/metrics", "/version", "/debug/clusters", "/"])
async def test_nothing_can_be_changed_through_the_admin_port(admin: tuple[HttpListener, Pages], path: str) -> None:
    assert (await ask(admin[0], path, method="POST"))[0] == 405


async def test_a_page_that_fails_is_a_500_and_the_next_request_is_answered(admin: tuple[HttpListener, Pages]) -> None:
    listener, pages = admin
    pages.add("/debug/broken", "fails", lambda query: 1 / 0)
    assert (await ask(listener, "/debug/broken"))[0] == 500
    assert (await ask(listener, "/version"))[0] == 200
