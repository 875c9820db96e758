from __future__ import annotations

import json
from typing import Any

import pytest

from watchers.renewals import DAY, ExpiryWarnings, Renewals, TokenLife, read_life

MONTH = TokenLife(0.0, 30 * DAY)
HOUR = TokenLife(0.0, 3600.0)


def payload(**changed: Any) -> bytes:
    claims = {"iat": 100, "exp": 700, "sub": "system:serviceaccount:mesh:eyes", "aud": ["api"], **changed}
    return json.dumps({key: value for key, value in claims.items() if value is not None}).encode()


def middle() -> float:
    return 1.0


def test_a_token_says_whose_it_is_for_whom_and_when_it_was_made_and_ends() -> None:
    assert read_life(payload()) == TokenLife(100.0, 700.0, "mesh", "eyes", ("api",))
    assert read_life(payload(aud="api")) == TokenLife(100.0, 700.0, "mesh", "eyes", ("api",))


@pytest.mark.parametrize(
    "changed",
    [
        {"iat": None},
        {"exp": None},
        {"exp": 100},
        {"iat": -1},
        {"sub": None},
        {"sub": "someone"},
        {"sub": "system:serviceaccount:mesh"},
        {"sub": "system:node:mesh:eyes"},
        {"sub": 1},
        {"aud": {}},
    ],
)
def test_what_does_not_end_or_is_no_service_accounts_has_no_life(changed: dict[str, Any]) -> None:
    assert read_life(payload(**changed)) is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_has_no_life(text: bytes) -> None:
    assert read_life(text) is None


def test_a_token_is_renewed_from_two_thirds_of_its_life_until_it_ends() -> None:
    at = [19.9 * DAY, 20 * DAY, 30 * DAY - 1, 30 * DAY]
    assert [list(Renewals(middle).due({"east": MONTH}, now)) for now in at] == [[], ["east"], ["east"], []]


def test_those_that_end_first_go_first() -> None:
    lives = {"a": MONTH, "b": TokenLife(0.0, 29 * DAY), "c": MONTH}
    assert Renewals(middle).due(lives, 25 * DAY) == ["b", "a", "c"]


def test_what_failed_is_tried_again_more_and_more_seldom_and_once_an_hour_in_the_end() -> None:
    renewals = Renewals(middle)
    now = MONTH.renewed_at
    pauses = []
    for _ in range(9):
        assert renewals.due({"east": MONTH}, now) == ["east"]
        renewals.tried("east", MONTH, now)
        then = now
        while not renewals.due({"east": MONTH}, now):
            now += 1
        pauses.append(now - then)
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_pauses_are_jittered_downwards() -> None:
    renewals = Renewals(lambda: 0.0)
    renewals.tried("east", MONTH, MONTH.renewed_at)
    assert renewals.due({"east": MONTH}, MONTH.renewed_at + 14.9) == []
    assert renewals.due({"east": MONTH}, MONTH.renewed_at + 15.0) == ["east"]


def test_what_is_forbidden_is_tried_again_in_an_hour() -> None:
    renewals = Renewals(middle)
    renewals.tried("east", MONTH, MONTH.renewed_at, forbidden=True)
    assert renewals.due({"east": MONTH}, MONTH.renewed_at + 3599) == []
    assert renewals.due({"east": MONTH}, MONTH.renewed_at + 3600) == ["east"]


def test_a_short_life_is_not_waited_away() -> None:
    renewals = Renewals(middle)
    renewals.tried("east", HOUR, HOUR.renewed_at, forbidden=True)
    assert renewals.due({"east": HOUR}, HOUR.renewed_at + 150) == ["east"]


def test_another_token_of_the_cluster_is_another_matter() -> None:
    renewals = Renewals(middle)
    renewals.tried("east", MONTH, MONTH.renewed_at)
    later = TokenLife(1.0, 30 * DAY)
    assert renewals.due({"east": later}, MONTH.renewed_at + 1) == ["east"]


def test_one_is_warned_a_week_and_a_day_before_the_end_and_at_the_end_and_once_each() -> None:
    warnings = ExpiryWarnings()
    told = []
    for hour in range(31 * 24):
        now = hour * 3600.0
        told += [(hour / 24, left / DAY) for _, left in warnings.due({"east": MONTH}, now)]
    assert told == [(23.0, 7.0), (29.0, 1.0), (30.0, 0.0)]


def test_a_short_life_is_warned_of_in_its_last_quarter_only() -> None:
    warnings = ExpiryWarnings()
    assert warnings.due({"east": HOUR}, 2699.0) == []
    assert warnings.due({"east": HOUR}, 2700.0) == [("east", 900.0)]
    assert warnings.due({"east": HOUR}, 3300.0) == [("east", 300.0)]


@pytest.mark.parametrize("life", [MONTH, HOUR])
def test_a_token_that_is_renewed_in_time_is_never_warned_of(life: TokenLife) -> None:
    assert ExpiryWarnings().due({"east": life}, life.renewed_at) == []


def test_a_new_token_is_warned_of_anew() -> None:
    warnings = ExpiryWarnings()
    assert warnings.due({"east": HOUR}, 3000.0)
    later = TokenLife(3000.0, 6600.0)
    assert warnings.due({"east": later}, 3100.0) == []
    assert warnings.due({"east": later}, 6000.0) == [("east", 600.0)]


def test_a_cluster_that_left_is_forgotten() -> None:
    warnings = ExpiryWarnings()
    assert warnings.due({"east": HOUR}, 3000.0)
    assert warnings.due({}, 3001.0) == []
    assert warnings.due({"east": HOUR}, 3002.0) == [("east", 598.0)]
