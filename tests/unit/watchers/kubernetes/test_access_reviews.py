"""What service accounts may do: what is asked, what stands after each answer, and for how long. Over hours of virtual
time.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aggregator.cache.table import Table
from tests.kit.clock import virtual_time
from watchers.facts import Fact, ObjectKey, SecretAccess
from watchers.facts.named import access_key
from watchers.kubernetes.access_reviews import ALLOWED, AT_ONCE, DENIED, HONOURED, AccessReviews
from watchers.kubernetes.session import Broken, Method, Reply

EDGE = ("infra", "edge")
KEY = access_key(*EDGE)


class Home:
    """An API server that answers as it is told, and the reviews that ask it."""

    def __init__(self) -> None:
        self.accounts: Table[tuple[str, str], Any] = Table("accounts")
        self.facts: Table[ObjectKey, Fact] = Table("facts")
        self.status: dict[str, Any] = {"allowed": True}
        self.code = 201
        self.body: bytes | None = None
        self.down = False
        self.seconds = 0.0
        self.asked: list[tuple[float, dict[str, Any]]] = []
        self.asking = self.most_asking = 0
        self.reviews = AccessReviews(self.accounts, self.facts, self, chance=lambda: 0.0)

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
        assert (method, path) == ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")
        self.asked.append((asyncio.get_running_loop().time(), json.loads(body)))
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.asking -= 1
        if self.down:
            raise Broken("connect", "Connection refused")
        answer = json.dumps({"status": self.status}).encode() if self.body is None else self.body
        return Reply(self.code, {}, answer)

    @asynccontextmanager
    async def running(self, *accounts: tuple[str, str]) -> AsyncIterator[None]:
        self.accounts.apply([(account, True) for account in accounts])
        task = asyncio.create_task(self.reviews.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))

    @property
    def access(self) -> Fact | None:
        return self.facts.get(KEY)

    def moments(self) -> list[float]:
        first = self.asked[0][0]
        return [moment - first for moment, _ in self.asked]


@virtual_time
async def test_what_is_asked_is_whether_the_account_may_list_the_secrets_of_its_namespace() -> None:
    home = Home()
    async with home.running(EDGE):
        await asyncio.sleep(1)
    ((_, review),) = home.asked
    assert review["kind"] == "SubjectAccessReview"
    assert review["spec"] == {
        "user": "system:serviceaccount:infra:edge",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:infra", "system:authenticated"],
        "resourceAttributes": {"namespace": "infra", "verb": "list", "group": "", "resource": "secrets"},
    }
    assert home.access == SecretAccess(True)


@virtual_time
async def test_yes_counts_for_five_minutes_and_no_for_one() -> None:
    home = Home()
    async with home.running(EDGE):
        await asyncio.sleep(ALLOWED + 1)
        assert home.moments() == [0, ALLOWED]
        home.status = {"allowed": False, "reason": "no rule"}
        await asyncio.sleep(ALLOWED)
        assert home.access == SecretAccess(False, "no rule")
        home.asked.clear()
        await asyncio.sleep(2 * DENIED + 1)
        assert home.moments() == [0, DENIED]
        home.status = {"allowed": True}
        await asyncio.sleep(DENIED)
        assert home.access == SecretAccess(True)


@virtual_time
async def test_an_explicit_denial_goes_before_a_permission() -> None:
    home = Home()
    home.status = {"allowed": True, "denied": True, "reason": "a webhook says no"}
    async with home.running(EDGE):
        await asyncio.sleep(1)
        assert home.access == SecretAccess(False, "a webhook says no")


@virtual_time
async def test_while_nobody_can_be_asked_the_last_answer_stands_for_ten_minutes_and_then_it_is_no() -> None:
    home = Home()
    async with home.running(EDGE):
        await asyncio.sleep(1)
        home.down = True
        await asyncio.sleep(HONOURED - 2)
        assert isinstance(home.access, SecretAccess)
        assert (home.access.allowed, "Connection refused" in home.access.reason) == (True, True)
        await asyncio.sleep(35)
        assert (home.access.allowed, home.access.pending) == (False, False)
        home.down = False
        await asyncio.sleep(35)
        assert home.access == SecretAccess(True)


@virtual_time
async def test_without_any_answer_it_is_pending_for_as_long() -> None:
    home = Home()
    home.down = True
    async with home.running(EDGE):
        await asyncio.sleep(HONOURED - 40)
        assert isinstance(home.access, SecretAccess)
        assert (home.access.allowed, home.access.pending) == (False, True)
        await asyncio.sleep(80)
        assert (home.access.allowed, home.access.pending) == (False, False)


@virtual_time
async def test_who_may_not_ask_is_told_the_cure_and_nothing_is_pending(caplog: pytest.LogCaptureFixture) -> None:
    home = Home()
    home.code, home.body = 403, b'{"reason": "Forbidden", "message": "no"}'
    with caplog.at_level(logging.WARNING):
        async with home.running(EDGE, ("infra", "other")):
            await asyncio.sleep(120)
    assert isinstance(home.access, SecretAccess)
    assert (home.access.allowed, home.access.pending) == (False, False)
    assert "grant this process create on subjectaccessreviews" in home.access.reason
    assert [record.message for record in caplog.records] == ["access of gateways cannot be reviewed"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"status": 5}', b'{"status": {"allowed": "yes"}}', b"\xff", b"[" * 100_000]
)
@virtual_time
async def test_an_answer_that_is_none_allows_nothing(body: bytes) -> None:
    home = Home()
    home.body = body
    async with home.running(EDGE):
        await asyncio.sleep(1)
        assert isinstance(home.access, SecretAccess)
        assert (home.access.allowed, home.access.pending) == (False, True)


@virtual_time
async def test_failures_are_tried_again_at_growing_intervals() -> None:
    home = Home()
    home.down = True
    async with home.running(EDGE):
        await asyncio.sleep(100)
    assert home.moments() == [0, 1, 3, 7, 15, 31, 61, 91]


@virtual_time
async def test_few_are_asked_at_a_time_and_each_by_itself() -> None:
    home = Home()
    home.seconds = 1.0
    accounts = [("infra", f"edge-{number}") for number in range(3 * AT_ONCE)]
    async with home.running(*accounts):
        await asyncio.sleep(4)
        assert home.most_asking == AT_ONCE
        assert all(home.facts.get(access_key(*account)) == SecretAccess(True) for account in accounts)


@virtual_time
async def test_of_an_account_that_nobody_needs_to_know_of_nothing_is_kept() -> None:
    home = Home()
    async with home.running(EDGE):
        await asyncio.sleep(1)
        home.accounts.apply([(EDGE, None)])
        await asyncio.sleep(2 * ALLOWED)
        assert home.access is None
        assert len(home.asked) == 1
