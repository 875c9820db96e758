"""Who gets to a page: the judge by itself, with peers from everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from starlette.types import Message, Scope

from aggregator.admin.access import MOST_AT_A_TIME, Access, NotAccepted
from aggregator.admin.pages import Pages, admin_app
from tests.kit.eventually import eventually
from tests.kit.pages import Page

NAMESPACES = ("istio-system", "ops")
TOKENS = {"Bearer system": "istio-system", "Bearer ops": "ops", "Bearer shop": "shop"}
HERE, ELSEWHERE = "127.0.0.1", "192.0.2.7"


class Port:
    """The admin port of a process, without a socket; `judged` are the tokens that were looked at."""

    def __init__(self) -> None:
        self.judged: list[tuple[str, Sequence[str]]] = []
        self.hold: asyncio.Event | None = None
        self.undecided = False
        self.pages = Pages()
        self.pages.add("/shown", "a page without a word on who may read it", lambda _: {"secret": "10.0.0.1"})
        self.pages.add("/shown/{name}", "one of them", dict)
        self.pages.add("/open", "an open page", lambda _: {"open": True}, open=True)
        self._app = admin_app(lambda _: (b"metrics", "text/plain"), "1.2.3", self.pages, self.access())

    def access(self) -> Access:
        return Access(NAMESPACES, self.authenticate, "istio-ca")

    async def authenticate(self, peer: str, authorizations: Sequence[str]) -> str:
        self.judged.append((peer, authorizations))
        if self.hold is not None:
            await self.hold.wait()
        if self.undecided:
            raise NotAccepted("the token could not be reviewed now; try again", undecided=True)
        if len(authorizations) > 1 or authorizations[0] not in TOKENS:
            raise NotAccepted("the token is not accepted")
        return TOKENS[authorizations[0]]

    async def ask(
        self,
        path: str,
        peer: str | None = HERE,
        *,
        method: str = "GET",
        host: str = "localhost:15014",
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    ) -> Page:
        given = [*headers.items()] if isinstance(headers, Mapping) else [*headers]
        sent: list[Message] = []
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(b"host", host.encode()), *((name.encode(), value.encode()) for name, value in given)],
            "client": (peer, 4711) if peer is not None else None,
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        said = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Page(sent[0]["status"], said["content-type"], sent[1]["body"], said)


def bearing(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_a_page_without_a_word_on_it_is_closed() -> None:
    port = Port()
    port.pages.add("/new", "a page of tomorrow", lambda _: {"secret": "10.0.0.1"})
    answer = await port.ask("/new", ELSEWHERE)
    assert (answer.status, b"10.0.0.1" in answer.body) == (401, False)
    assert (await port.ask("/new", HERE)).status == 200


@pytest.mark.parametrize("path", ["/", "/metrics", "/open"])
async def test_what_says_that_it_is_open_is_for_everybody(path: str) -> None:
    port = Port()
    for peer in (HERE, ELSEWHERE, None):
        assert (await port.ask(path, peer, host="isthmus.istio-system.svc:15014")).status == 200
    assert port.judged == []


@pytest.mark.parametrize(
    "path", ["/version", "/shown", "/shown/cart", "/nowhere", "//metrics", "/metrics/", "/open/x", ""]
)
async def test_everything_else_is_closed_whether_it_is_there_or_not(path: str) -> None:
    assert (await Port().ask(path, ELSEWHERE)).status == 401


async def test_a_page_cannot_open_one_that_is_always_there() -> None:
    port = Port()
    port.pages.add("/version", "another version", lambda _: "x", open=True)
    assert (await port.ask("/version", ELSEWHERE)).status == 401


@pytest.mark.parametrize("peer", [HERE, "127.0.0.2", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:15014", "[::1]:15014", "10.1.2.3", ""])
async def test_who_is_on_loopback_reads_all(peer: str, host: str) -> None:
    assert (await Port().ask("/shown", peer, host=host)).json() == {"secret": "10.0.0.1"}


@pytest.mark.parametrize(
    "peer", [ELSEWHERE, "10.0.0.9", "::ffff:10.0.0.9", "fe80::1%eth0", "2001:db8::1", "", "localhost", None, "0.0.0.0"]
)
async def test_who_is_elsewhere_needs_a_token(peer: str | None) -> None:
    assert (await Port().ask("/shown", peer)).status == 401


async def test_what_a_sidecar_passes_on_comes_from_elsewhere() -> None:
    assert (await Port().ask("/shown", "127.0.0.6")).status == 401


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:15014", "localhost.attacker.example", "[x]:1"])
async def test_a_page_of_the_web_that_took_a_name_for_this_machine_is_not_let_in(host: str) -> None:
    assert (await Port().ask("/shown", HERE, host=host)).status == 401
    assert (await Port().ask("/shown", HERE, host=host, headers=bearing("system"))).status == 200


@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "x-real-ip", "true-client-ip", "x-forwarded-host"])
@pytest.mark.parametrize("value", ["127.0.0.1", "for=127.0.0.1", "localhost"])
async def test_no_header_moves_a_peer(name: str, value: str) -> None:
    assert (await Port().ask("/shown", ELSEWHERE, headers={name: value})).status == 401
    assert (await Port().ask("/shown", HERE, headers={name: ELSEWHERE})).status == 200


@pytest.mark.parametrize("token", ["system", "ops"])
async def test_an_account_of_a_namespace_that_may_reads_all(token: str) -> None:
    port = Port()
    assert (await port.ask("/shown", ELSEWHERE, headers=bearing(token))).status == 200
    assert port.judged == [(ELSEWHERE, [f"Bearer {token}"])]


async def test_an_account_of_another_namespace_is_told_what_would_let_it_in() -> None:
    answer = await Port().ask("/shown", ELSEWHERE, headers=bearing("shop"))
    assert answer.status == 403
    assert "shop" in answer.json()["error"] and "--admin-namespaces" in answer.json()["error"]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Bearer forged")],
        [("authorization", "Basic c3lzdGVtOg==")],
        [("authorization", "")],
        [("authorization", "Bearer system"), ("authorization", "Bearer system")],
    ],
)
async def test_who_proves_nothing_is_told_how_to(headers: list[tuple[str, str]]) -> None:
    answer = await Port().ask("/shown", ELSEWHERE, headers=headers)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="isthmus"')
    said = answer.json()["error"]
    assert "kubectl create token --audience istio-ca" in said and "kubectl port-forward" in said
    assert "namespaces istio-system, ops" in said
    assert "forged" not in said


async def test_who_brings_no_token_is_not_looked_into() -> None:
    port = Port()
    for _ in range(100):
        await port.ask("/shown", ELSEWHERE)
    assert port.judged == []


async def test_of_many_tokens_few_are_looked_into_at_a_time() -> None:
    port = Port()
    port.hold = asyncio.Event()
    asked = [asyncio.ensure_future(port.ask("/shown", ELSEWHERE, headers=bearing(str(n)))) for n in range(100)]
    await eventually(lambda: sum(one.done() for one in asked) == 100 - MOST_AT_A_TIME)
    assert len(port.judged) == MOST_AT_A_TIME
    refused = [one.result() for one in asked if one.done()]
    assert {(one.status, one.headers["retry-after"]) for one in refused} == {(503, "1")}
    assert (await port.ask("/metrics", ELSEWHERE)).status == 200
    port.hold.set()
    answers = await asyncio.gather(*asked)
    assert sorted(one.status for one in answers) == [401] * MOST_AT_A_TIME + [503] * (100 - MOST_AT_A_TIME)
    # Afterwards there is room again.
    assert (await port.ask("/shown", ELSEWHERE, headers=bearing("ops"))).status == 200


async def test_where_nobody_can_tell_the_answer_is_not_that_it_is_wrong() -> None:
    port = Port()
    port.undecided = True
    answer = await port.ask("/shown", ELSEWHERE, headers=bearing("system"))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/shown", "/nowhere"])
async def test_nothing_but_reading_is_answered_to_anybody(method: str, path: str) -> None:
    port = Port()
    for peer in (HERE, ELSEWHERE):
        answer = await port.ask(path, peer, method=method, headers=bearing("system"))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert port.judged == []


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_what_is_no_request_reaches_no_page(kind: str) -> None:
    async def never(*_: object) -> Any:
        raise AssertionError("it was answered")

    await Port()._app({"type": kind, "path": "/shown", "headers": [], "client": (HERE, 1)}, never, never)
