"""Sets of few members under keys: what a fork and a growing group must not see."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from aggregator.graph.engine import Engine
from aggregator.graph.fork import Fork
from aggregator.graph.members import FEW


@pytest.fixture
def engine() -> Engine:
    return Engine({})


def joined(engine: Engine, members: Iterable[Any]) -> dict[Any, Any]:
    outer: dict[Any, Any] = {}
    for member in members:
        engine.join(outer, "key", member)
    return outer


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, 10 * FEW])
def test_members_are_read_alike_however_many_they_are(engine: Engine, count: int) -> None:
    found = joined(engine, range(count))["key"]
    assert (list(found), len(found), count - 1 in found, count in found) == (list(range(count)), count, True, False)


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, 10 * FEW])
def test_the_last_who_leaves_takes_the_key_along(engine: Engine, count: int) -> None:
    outer = joined(engine, range(count))
    for member in range(count):
        assert list(outer["key"]) == list(range(member, count))
        engine.part(outer, "key", member)
    assert outer == {}


def test_who_is_no_member_leaves_nothing(engine: Engine) -> None:
    outer = joined(engine, ["one"])
    engine.part(outer, "key", "other")
    engine.part(outer, "nowhere", "other")
    assert {key: list(members) for key, members in outer.items()} == {"key": ["one"]}


def test_a_group_that_has_shrunk_takes_no_more_than_one_that_was_always_small(engine: Engine) -> None:
    outer = joined(engine, range(10 * FEW))
    for member in range(10 * FEW - 2):
        engine.part(outer, "key", member)
    assert type(outer["key"]) is type(joined(engine, range(2))["key"])


@pytest.mark.parametrize("count", [1, FEW, FEW + 1])
def test_a_fork_changes_none_of_its_bases_members(engine: Engine, count: int) -> None:
    engine.state.subjects.update(joined(engine, range(count)))
    fork = Fork(engine)
    fork.join(fork.state.subjects, "key", "more")
    fork.part(fork.state.subjects, "key", 0)
    assert list(engine.state.subjects["key"]) == list(range(count))
    assert list(fork.state.subjects["key"]) == [*range(1, count), "more"]


def test_members_that_come_and_go_by_chance_are_those_of_a_set(engine: Engine) -> None:
    chance = random.Random(3)
    outer: dict[Any, Any] = {}
    held: dict[int, None] = {}
    for _ in range(5_000):
        member = chance.randrange(3 * FEW)
        if member in held:
            del held[member]
            engine.part(outer, "key", member)
        elif chance.random() < 0.6:
            held[member] = None
            engine.join(outer, "key", member)
        assert list(outer.get("key", ())) == list(held)
