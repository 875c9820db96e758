from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from starlette.types import Message

from aggregator.admin.access import Access, NotAccepted
from aggregator.admin.pages import NoSuchPage, Pages, admin_app
from tests.kit.pages import Page


async def nobody(_peer: str, _authorizations: Sequence[str]) -> str:
    raise NotAccepted("it is not accepted")


async def ask(pages: Pages, path: str, query: str = "") -> Page:
    """The answer to a request, without a socket."""
    app = admin_app(lambda _: (b"", ""), "1.2.3", pages, Access((), nobody, "istio-ca"))
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    scope["client"] = ("127.0.0.1", 4711)
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return Page(sent[0]["status"], dict(sent[0]["headers"])[b"content-type"].decode(), sent[1]["body"])


async def test_a_page_may_take_its_time() -> None:
    async def slowly(_: Mapping[str, str]) -> object:
        await asyncio.sleep(0)
        return {"done": True}

    pages = Pages()
    pages.add("/slow", "takes its time", slowly)
    assert (await ask(pages, "/slow")).json() == {"done": True}


async def test_a_name_in_braces_stands_for_anything_and_goes_before_the_query() -> None:
    pages = Pages()
    pages.add("/clusters/{name}", "one cluster", dict)
    answer = await ask(pages, "/clusters/we st", query="name=east&more=1")
    assert answer.json() == {"name": "we st", "more": "1"}


@pytest.mark.parametrize("path", ["/clusters", "/clusters/", "/clusters/west/kinds", "/others/west"])
async def test_a_name_in_braces_stands_for_one_part_of_the_path(path: str) -> None:
    pages = Pages()
    pages.add("/clusters/{name}", "one cluster", dict)
    assert (await ask(pages, path)).status == 404


async def test_a_page_without_a_name_goes_before_one_with_it() -> None:
    pages = Pages()
    pages.add("/clusters/{name}", "one cluster", dict)
    pages.add("/clusters/count", "how many", lambda _: 3)
    assert (await ask(pages, "/clusters/count")).json() == 3


async def test_a_page_may_say_that_there_is_no_such_thing_and_what_there_is() -> None:
    def missing(asked: Mapping[str, str]) -> object:
        raise NoSuchPage({"error": f"no cluster {asked['name']}", "clusters": ["west"]})

    pages = Pages()
    pages.add("/clusters/{name}", "one cluster", missing)
    answer = await ask(pages, "/clusters/east")
    assert (answer.status, answer.json()) == (404, {"error": "no cluster east", "clusters": ["west"]})
