"""Memory that is free goes back to the kernel while a process runs, and nothing is left of that afterwards."""

from __future__ import annotations

import asyncio
import ctypes
from types import SimpleNamespace

import pytest

from aggregator.app import memory
from tests.kit.eventually import eventually


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often memory was given back."""
    calls: list[int] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(malloc_trim=calls.append))
    return calls


async def test_what_is_free_is_given_back_again_and_again(trims: list[int]) -> None:
    async with memory.tended(every=0.001):
        await eventually(lambda: len(trims) > 2)
    assert set(trims) == {0}


async def test_it_ends_with_what_it_was_for(trims: list[int]) -> None:
    before = asyncio.all_tasks()
    async with memory.tended(every=60.0):
        assert len(asyncio.all_tasks()) == len(before) + 1
    assert asyncio.all_tasks() == before


async def test_what_fails_inside_is_raised(trims: list[int]) -> None:
    with pytest.raises(RuntimeError, match="inside"):
        async with memory.tended(every=60.0):
            raise RuntimeError("inside")


async def test_a_c_library_without_it_is_left_to_its_own_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    before = asyncio.all_tasks()
    async with memory.tended(every=0.001):
        assert asyncio.all_tasks() == before
