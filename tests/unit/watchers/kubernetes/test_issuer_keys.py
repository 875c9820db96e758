"""The keys of a cluster over time: whom they are asked of, how often, and for how long they count."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from tests.kit.eventually import eventually
from tests.kit.service_accounts import TokenIssuer
from watchers.kubernetes.issuer_keys import CONFIGURATION, FRESH, HONOURED, KEYS, PAUSE, IssuerKeys
from watchers.kubernetes.kubeconfig import ApiServer, InvalidKubeconfig
from watchers.kubernetes.reviews import Undecided
from watchers.kubernetes.session import Broken, Method, Reply

OLD, NEW = (ApiServer("https://beta.example", token=token) for token in ("t1", "t2"))


class Beta:
    """An API server that answers as it is told, and the keys that are read of it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.accounts = TokenIssuer()
        self.asked: list[str] = []
        self.credentials: list[ApiServer] = []
        self.open = 0
        self.status = 200
        self.body: dict[str, bytes] = {}
        self.down = False
        self.unusable = False
        self.gate: asyncio.Event | None = None
        self.keys = IssuerKeys("beta", OLD, lambda: self.now, open_session=self._session)

    def _session(self, server: ApiServer) -> Beta:
        if self.unusable:
            raise InvalidKubeconfig("user 'a'", "has no key", "give one")
        self.credentials.append(server)
        self.open += 1
        return self

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
        assert (method, body) == ("GET", b"")
        self.asked.append(path)
        if self.gate is not None:
            await self.gate.wait()
        if self.down:
            raise Broken("connect", "connection refused")
        if self.status != 200:
            return Reply(self.status, {"Location": "https://attacker.example"}, b'{"message":"no"}')
        told: dict[str, Any] = {CONFIGURATION: self.accounts.configuration(), KEYS: self.accounts.published()}
        return Reply(200, {}, self.body.get(path) or json.dumps(told[path]).encode())

    async def close(self) -> None:
        self.open -= 1

    @property
    def key_id(self) -> str:
        """Of the key it signs with now."""
        return self.accounts.keys[0].id

    @property
    def rounds(self) -> int:
        """How often it was asked."""
        return len(self.credentials)

    async def knows(self, key_id: str) -> bool:
        return key_id in (await self.keys.newest(key_id)).keys

    async def undecided(self, key_id: str = "") -> str:
        with pytest.raises(Undecided) as caught:
            await self.keys.newest(key_id or self.key_id)
        return str(caught.value)


async def test_issuer_and_keys_are_asked_of_the_api_server_with_the_credential_for_it_and_of_nobody_else() -> None:
    beta = Beta()
    found = await beta.keys.newest(beta.key_id)
    assert (found.issuer, set(found.keys)) == (beta.accounts.issuer, {beta.key_id})
    assert beta.asked == [CONFIGURATION, KEYS] == ["/.well-known/openid-configuration", "/openid/v1/jwks"]
    assert (beta.credentials, beta.open) == ([OLD], 0)


async def test_keys_count_for_five_minutes_and_are_then_read_again() -> None:
    beta = Beta()
    first = beta.key_id
    assert await beta.knows(first)
    beta.accounts.rotate()
    beta.now += FRESH - 1
    assert await beta.knows(first)
    assert beta.rounds == 1
    beta.now += 1
    assert not await beta.knows(first)
    assert beta.rounds == 2


async def test_keys_count_from_when_they_were_asked_for_since_they_may_change_from_then_on() -> None:
    beta = Beta()
    beta.gate = asyncio.Event()
    waiting = asyncio.create_task(beta.knows(beta.key_id))
    await eventually(lambda: beta.asked)
    beta.now += 2
    beta.gate.set()
    assert await waiting
    beta.now += FRESH - 2
    assert await beta.knows(beta.key_id)
    assert beta.rounds == 2


async def test_a_key_that_is_not_known_has_them_read_again() -> None:
    beta = Beta()
    assert await beta.knows(beta.key_id)
    beta.accounts.rotate()
    beta.now += PAUSE
    assert await beta.knows(beta.key_id)


async def test_a_flood_of_invented_keys_is_a_request_every_ten_seconds() -> None:
    beta = Beta()
    assert await beta.knows(beta.key_id)
    for number in range(200):
        beta.now += 0.5
        assert not await beta.knows(f"invented-{number}")
    assert beta.rounds == 1 + 100 / PAUSE


async def test_callers_that_wait_share_one_request() -> None:
    beta = Beta()
    beta.gate = asyncio.Event()
    waiting = [asyncio.create_task(beta.knows(beta.key_id if one % 2 else f"invented-{one}")) for one in range(50)]
    await asyncio.sleep(0)
    beta.gate.set()
    assert [await one for one in waiting] == [bool(one % 2) for one in range(50)]
    assert beta.rounds == 1


async def test_while_invented_keys_are_looked_for_nobody_with_a_known_one_waits() -> None:
    beta = Beta()
    assert await beta.knows(beta.key_id)
    beta.now += PAUSE
    beta.gate = asyncio.Event()
    invented = asyncio.create_task(beta.knows("invented"))
    await asyncio.sleep(0)
    assert await asyncio.wait_for(beta.knows(beta.key_id), 1)
    beta.gate.set()
    assert not await invented


async def test_a_caller_that_goes_away_takes_the_answer_from_nobody() -> None:
    beta = Beta()
    beta.gate = asyncio.Event()
    first, second = (asyncio.create_task(beta.knows(beta.key_id)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    beta.gate.set()
    assert await second
    assert beta.rounds == 1


async def test_row_03_while_the_api_server_is_away_the_last_keys_count_for_an_hour() -> None:
    beta = Beta()
    assert await beta.knows(beta.key_id)
    beta.down = True
    beta.now += HONOURED - 1
    assert await beta.knows(beta.key_id)
    beta.now += 1
    assert "connection refused" in await beta.undecided()


async def test_row_03_it_is_asked_again_every_ten_seconds_until_it_is_back() -> None:
    beta = Beta()
    first = beta.key_id
    assert await beta.knows(first)
    beta.down = True
    beta.now += FRESH
    for _ in range(100):
        beta.now += 0.5
        assert await beta.knows(first)
    assert beta.rounds == 1 + 50 / PAUSE
    beta.down = False
    beta.accounts.rotate()
    beta.now += PAUSE
    assert not await beta.knows(first)


async def test_a_key_that_is_not_known_is_undecided_while_nobody_can_be_asked_about_it() -> None:
    beta = Beta()
    assert await beta.knows(beta.key_id)
    beta.down = True
    beta.now += PAUSE
    for _ in range(3):
        assert "connection refused" in await beta.undecided("new")
    beta.down = False
    beta.now += PAUSE
    assert not await beta.knows("new")


async def test_keys_that_were_never_read_are_undecided() -> None:
    beta = Beta()
    beta.down = True
    for _ in range(3):
        assert await beta.undecided() == f"GET {CONFIGURATION}: connection refused"
    assert beta.rounds == 1


async def test_a_new_credential_is_tried_at_once_after_one_that_failed() -> None:
    beta = Beta()
    beta.status = 401
    assert "401" in await beta.undecided()
    beta.status = 200
    beta.keys.use(NEW)
    assert await beta.knows(beta.key_id)
    assert beta.credentials == [OLD, NEW]


async def test_a_new_credential_reads_nothing_anew_that_is_known() -> None:
    beta = Beta()
    assert await beta.knows(beta.key_id)
    beta.keys.use(NEW)
    assert await beta.knows(beta.key_id)
    beta.now += FRESH
    assert await beta.knows(beta.key_id)
    assert beta.credentials == [OLD, NEW]


@pytest.mark.parametrize(
    ("status", "cure"),
    [
        (403, "403 no; bind ClusterRole system:service-account-issuer-discovery"),
        (404, "404 no; the API server publishes its keys only if its --service-account-issuer is an https URL"),
        (401, "401 no"),
        (500, "500 no"),
        (302, "302 no"),
    ],
)
async def test_who_does_not_tell_is_undecided_with_a_cure_and_no_redirect_is_followed(status: int, cure: str) -> None:
    beta = Beta()
    beta.status = status
    assert cure in await beta.undecided()
    assert (beta.asked, beta.open) == ([CONFIGURATION], 0)


@pytest.mark.parametrize("path", [CONFIGURATION, KEYS])
@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"[" * 100_000, b"\xff", b'{"keys":[]}'], ids=lambda body: repr(body)[:20]
)
async def test_garbage_is_undecided_and_leaves_what_was_known(path: str, body: bytes) -> None:
    beta = Beta()
    beta.body[path] = body
    assert "the OpenID configuration is none" in (said := await beta.undecided()) or "the key set " in said
    beta.body.clear()
    beta.now += PAUSE
    assert await beta.knows(beta.key_id)
    beta.body[path] = body
    beta.now += FRESH
    assert await beta.knows(beta.key_id)


async def test_a_credential_that_cannot_be_used_is_undecided() -> None:
    beta = Beta()
    beta.unusable = True
    assert await beta.undecided() == "user 'a' has no key; give one"


async def test_a_trouble_is_logged_once_with_its_cluster(caplog: pytest.LogCaptureFixture) -> None:
    beta = Beta()
    beta.down = True
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        await beta.undecided()
        beta.now += PAUSE
    (record,) = caplog.records
    assert (record.getMessage(), vars(record)["cluster"]) == ("keys cannot be read", "beta")


async def test_after_the_end_nothing_is_known_and_whoever_waits_is_told() -> None:
    beta = Beta()
    assert await beta.knows(beta.key_id)
    beta.now += FRESH
    beta.gate = asyncio.Event()
    waiting = asyncio.create_task(beta.undecided())
    await eventually(lambda: beta.rounds == 2)
    beta.keys.end()
    assert "leads to another API server" in await waiting
    beta.gate.set()
    beta.now += PAUSE
    assert "leads to another API server" in await beta.undecided()
    assert (beta.rounds, beta.open) == (2, 0)


async def test_what_nobody_expected_is_logged_and_is_a_trouble_as_any_other(caplog: pytest.LogCaptureFixture) -> None:
    beta = Beta()
    assert await beta.knows(beta.key_id)

    async def broken() -> None:
        raise ZeroDivisionError

    beta.close = broken  # type: ignore[method-assign]
    beta.now += HONOURED - 1
    assert await beta.knows(beta.key_id)
    beta.now += PAUSE
    assert await beta.undecided() == "the keys could not be read"
    assert "ZeroDivisionError" in caplog.text
