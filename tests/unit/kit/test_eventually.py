"""Waiting for what cannot be awaited, and time that jumps."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tests.kit.clock import virtual_time
from tests.kit.eventually import eventually


@virtual_time
async def test_what_a_check_returns_at_last_is_returned() -> None:
    counter = count()
    assert await eventually(lambda: next(counter) // 3) == 1


@virtual_time
async def test_assertions_on_the_way_are_tolerated() -> None:
    counter = count()

    def check() -> bool:
        assert next(counter) == 2
        return True

    assert await eventually(check)


@virtual_time
async def test_the_last_assertion_is_raised_at_the_deadline() -> None:
    def check() -> bool:
        raise AssertionError("two missing")

    with pytest.raises(AssertionError, match="two missing"):
        await eventually(check, 3)
    assert 3 <= asyncio.get_running_loop().time() < 3.1


@virtual_time
async def test_the_last_value_is_named_at_the_deadline() -> None:
    with pytest.raises(AssertionError, match=r"still 0 after 3 s"):
        await eventually(lambda: 0, 3)


@virtual_time
async def test_other_errors_are_not_waited_out() -> None:
    def check() -> bool:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await eventually(check)
