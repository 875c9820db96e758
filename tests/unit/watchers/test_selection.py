"""Rules of `watchers.selection`: who is told what, and how long it is waited for."""

from __future__ import annotations

import asyncio
import gc

from tests.kit.clock import virtual_time
from watchers.selection import PATIENCE, Selections


def test_what_was_told_before_anybody_read_the_cluster_counts() -> None:
    selections = Selections()
    selections.set("west", ("shop",))
    assert selections.of("west").namespaces == frozenset({"shop"})


def test_listeners_hear_of_every_change_while_they_listen() -> None:
    selections = Selections()
    selection = selections.of("west")
    heard: list[frozenset[str] | None] = []

    def listener() -> None:
        heard.append(selection.namespaces)

    with selection.heard_by(listener):
        selections.set("west", ("shop",))
        selections.set("east", ("other",))
        selections.set("west", None)
    selections.set("west", ())
    assert heard == [{"shop"}, None]


def test_a_cluster_that_comes_back_before_the_news_of_its_end_is_told_again() -> None:
    selections = Selections()
    selections.set("west", ("shop",))
    again = selections.of("west")
    selections.forget("west")
    selections.set("west", ("bank",))
    assert again.namespaces == frozenset({"bank"})


def test_nothing_is_left_of_a_cluster_that_nobody_reads() -> None:
    selections = Selections()
    selections.of("west").set(("shop",))
    gc.collect()
    assert not selections._held
    selections.set("west", ())
    selections.forget("west")
    assert not selections._told


@virtual_time
async def test_who_is_not_told_in_time_reads_everything() -> None:
    selection = Selections().of("west")
    await selection.settled()
    assert selection.namespaces is None
    assert asyncio.get_running_loop().time() == PATIENCE


@virtual_time
async def test_who_was_told_once_does_not_wait() -> None:
    selections = Selections()
    selections.set("west", None)
    await selections.of("west").settled()
    assert asyncio.get_running_loop().time() == 0
