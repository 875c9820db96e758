"""Whose token it is: what is asked, what counts as an answer, and for how long."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import pytest

from watchers.kubernetes.reviews import Undecided
from watchers.kubernetes.session import Broken, Method, Reply
from watchers.kubernetes.token_reviews import FRESH, HONOURED, Account, TokenReviews

ZTUNNEL = {
    "username": "system:serviceaccount:istio-system:ztunnel",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "extra": {
        "authentication.kubernetes.io/pod-name": ["ztunnel-1"],
        "authentication.kubernetes.io/node-name": ["node-1"],
    },
}


def token(expires: float = 0.0, serial: str = "a") -> str:
    parts = ({"alg": "none"}, {"exp": expires} if expires else {}, serial)
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


class Home:
    """An API server that answers as it is told, and the reviews that ask it."""

    def __init__(self, **status: Any) -> None:
        self.now = 1_000.0
        self.asked: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {"authenticated": True, "user": ZTUNNEL, "audiences": ["istio-ca"], **status}
        self.code = 201
        self.down = False
        self.body: bytes | None = None
        self.gate: asyncio.Event | None = None
        self.reviews = TokenReviews(self, wall=lambda: self.now, audiences=("istio-ca", "isthmus"))

    async def send(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str],
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        seconds: float,
    ) -> Reply:
        self.asked.append({"method": method, "path": path, "body": json.loads(body)})
        if self.gate is not None:
            await self.gate.wait()
        if self.down:
            raise Broken("connect", "connection refused")
        return Reply(self.code, {}, json.dumps({"status": self.status}).encode() if self.body is None else self.body)


async def test_the_owner_of_a_token_is_a_service_account_with_its_pod_and_node() -> None:
    home = Home()
    assert await home.reviews.review(token()) == Account("istio-system", "ztunnel", "ztunnel-1", "node-1")
    (asked,) = home.asked
    assert (asked["method"], asked["path"]) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
    assert asked["body"]["spec"] == {"token": token(), "audiences": ["istio-ca", "isthmus"]}


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False},
        {"authenticated": False, "user": ZTUNNEL},
        {"user": None},
        {"audiences": None},
        {"audiences": ["https://kubernetes.default.svc"]},
        {"user": {**ZTUNNEL, "username": "jane"}},
        {"user": {**ZTUNNEL, "username": "system:node:node-1"}},
        {"user": {**ZTUNNEL, "username": "system:serviceaccount:istio-system"}},
        {"user": {**ZTUNNEL, "username": "system:serviceaccount::ztunnel"}},
        {"user": {**ZTUNNEL, "username": "system:serviceaccount:shop:orders:x"}},
        {"user": {**ZTUNNEL, "username": "system:serviceaccount:shop:orders/x"}},
        {"user": {**ZTUNNEL, "username": "system:serviceaccount:sh.op:orders"}},
        {"user": {**ZTUNNEL, "username": "system:serviceaccount:shop:orders\n"}},
        {"user": {**ZTUNNEL, "groups": ["system:authenticated"]}},
        {"user": {**ZTUNNEL, "groups": None}},
    ],
    ids=lambda status: json.dumps(status)[:60],
)
async def test_whoever_is_no_service_account_or_has_a_token_for_others_is_not_accepted(status: Any) -> None:
    assert await Home(**status).reviews.review(token()) is None


async def test_a_token_that_is_bound_to_no_pod_has_none() -> None:
    home = Home(user={**ZTUNNEL, "extra": None})
    assert await home.reviews.review(token()) == Account("istio-system", "ztunnel")


async def test_an_answer_counts_for_a_minute() -> None:
    home = Home()
    await home.reviews.review(token())
    home.now += FRESH - 1
    await home.reviews.review(token())
    assert len(home.asked) == 1
    home.status["authenticated"] = False
    home.now += 2
    assert await home.reviews.review(token()) is None
    assert len(home.asked) == 2


async def test_a_token_that_is_not_accepted_is_asked_about_again_soon() -> None:
    # The account may have been made a moment ago.
    home = Home(authenticated=False)
    assert await home.reviews.review(token()) is None
    home.status["authenticated"] = True
    home.now += 11
    assert await home.reviews.review(token()) is not None


async def test_row_03_while_nobody_can_be_asked_an_accepted_token_stays_accepted_for_ten_minutes() -> None:
    home = Home()
    await home.reviews.review(token())
    home.down = True
    home.now += HONOURED - 1
    assert await home.reviews.review(token()) == Account("istio-system", "ztunnel", "ztunnel-1", "node-1")
    home.now += 2
    with pytest.raises(Undecided, match="connection refused"):
        await home.reviews.review(token())


async def test_row_03_a_token_that_has_ended_meanwhile_is_accepted_no_more() -> None:
    home = Home()
    ends = home.now + 120
    await home.reviews.review(token(ends))
    home.down = True
    home.now = ends + 1
    with pytest.raises(Undecided):
        await home.reviews.review(token(ends))


async def test_row_03_a_token_that_was_never_accepted_is_undecided_and_not_refused() -> None:
    home = Home()
    home.down = True
    with pytest.raises(Undecided):
        await home.reviews.review(token())


async def test_callers_with_one_token_ask_once_between_them() -> None:
    home = Home()
    home.gate = asyncio.Event()
    waiting = [asyncio.create_task(home.reviews.review(token())) for _ in range(50)]
    await asyncio.sleep(0)
    home.gate.set()
    assert {await one for one in waiting} == {Account("istio-system", "ztunnel", "ztunnel-1", "node-1")}
    assert len(home.asked) == 1


async def test_a_caller_that_goes_away_takes_the_answer_from_nobody() -> None:
    home = Home()
    home.gate = asyncio.Event()
    first, second = (asyncio.create_task(home.reviews.review(token())) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    home.gate.set()
    assert await second is not None
    assert len(home.asked) == 1


async def test_different_tokens_are_different_questions() -> None:
    home = Home()
    await home.reviews.review(token(serial="a"))
    await home.reviews.review(token(serial="b"))
    assert len(home.asked) == 2


@pytest.mark.parametrize(("code", "body"), [(403, b"{}"), (500, b""), (201, b"<html>"), (201, b"[]")])
async def test_what_is_no_answer_is_undecided_and_logged_once(
    code: int, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home()
    home.code, home.body = code, body
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        with pytest.raises(Undecided) as caught:
            await home.reviews.review(token())
    (record,) = caplog.records
    assert record.getMessage() == "tokens cannot be reviewed"
    if code == 403:
        assert "grant this process create on tokenreviews" in str(caught.value)


async def test_no_token_is_kept_logged_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    home = Home()
    secret = token(serial="secret-of-the-proxy")
    home.code = 500
    with pytest.raises(Undecided) as caught:
        await home.reviews.review(secret)
    home.code = 201
    await home.reviews.review(secret)
    shown = f"{vars(home.reviews)!r} {caught.value!r} {caplog.text}"
    assert secret not in shown
    assert secret.rpartition(".")[2] not in shown
