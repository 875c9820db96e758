"""Rules of `watchers.notices` and of who waits for them: one instance, woken by the kernel alone."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path

from tests.kit.eventually import eventually
from watchers.notices import Notices, notices
from watchers.watching import Watch, places_of


def instances() -> int:
    """How many inotify instances the process has open."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found += "inotify" in os.readlink(descriptor)  # noqa: PTH115 - no path
        except OSError:
            continue
    return found


def threads() -> set[str]:
    """The threads of the process."""
    return {path.name for path in Path("/proc/self/task").iterdir()}


def switches(others: set[str]) -> int:
    """How often a thread of the process has gone to sleep of its own accord, and was woken, but for `others`."""
    total = 0
    for status in Path("/proc/self/task").glob("*/status"):
        if status.parent.name in others:
            continue
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))
        total += int(line.split()[1])
    return total


async def test_whoever_follows_a_directory_is_told_of_its_entries_under_the_name_they_gave(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real, link, told = str(tmp_path / "real"), str(tmp_path / "link"), Counter[str | None]()
    one, other = (lambda path: told.update([path])), (lambda path: told.update([f"other {path}"]))
    everything = Notices()
    everything.follow([real], frozenset([real]), one)
    everything.follow([link], frozenset(), other)
    (tmp_path / "real/a").touch()
    await eventually(lambda: {f"{real}/a", f"other {link}/a"} <= told.keys())
    everything.leave(other)
    told.clear()
    (tmp_path / "real/b").touch()
    await eventually(lambda: f"{real}/b" in told)
    assert not any(str(path).startswith("other") for path in told)
    everything.leave(one)


async def test_all_share_one_instance_which_goes_with_the_last(tmp_path: Path) -> None:
    before = instances()
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    places = {name: places_of(tmp_path / name, frozenset([str(tmp_path / name)])) for name in ("a", "b", "c")}
    async with (
        Watch(tmp_path / "a", places["a"]) as a,
        Watch(tmp_path / "b", places["b"]) as b,
        Watch(tmp_path / "c", places["c"]),
    ):
        assert instances() == before + 1
        (tmp_path / "a/x").touch()
        await asyncio.wait_for(a.change(), 5)
        waiting = asyncio.create_task(b.change())
        (tmp_path / "b/x").touch()
        await asyncio.wait_for(waiting, 5)
    assert instances() == before


async def test_a_directory_that_has_gone_is_a_change(tmp_path: Path) -> None:
    places = places_of(tmp_path / "a", frozenset([str(tmp_path / "a")]))
    (tmp_path / "a").mkdir()
    places = places_of(tmp_path / "a", frozenset([str(tmp_path / "a")]))
    async with Watch(tmp_path / "a", places) as watch:
        (tmp_path / "a").rmdir()
        await asyncio.wait_for(watch.change(), 5)
    async with Watch(tmp_path / "a", places) as watch:
        await asyncio.wait_for(watch.change(), 5)


async def test_too_much_to_tell_is_a_change_for_everybody(tmp_path: Path) -> None:
    places = places_of(tmp_path, frozenset([str(tmp_path)]))
    async with Watch(tmp_path, places) as watch:
        watch._hear(None)
        await asyncio.wait_for(watch.change(), 5)


async def test_nothing_is_done_while_nothing_changes(tmp_path: Path) -> None:
    others = threads() - {str(threading.get_native_id())}  # of other tests, as gRPC's are
    for name in range(20):
        (tmp_path / str(name)).mkdir()
    watches = [
        Watch(tmp_path / str(name), places_of(tmp_path / str(name), frozenset([str(tmp_path / str(name))])))
        for name in range(20)
    ]
    for watch in watches:
        await watch.__aenter__()
    before = switches(others)
    await asyncio.sleep(1)
    # The timer of this test; each watch once woke twenty times a second.
    assert switches(others) - before < 20
    for watch in watches:
        await watch.__aexit__(None, None, None)
    assert not notices()._followers


async def test_who_is_told_may_leave_and_follow_again_and_nothing_ever_waits(tmp_path: Path) -> None:
    notices = Notices()
    heard: list[str | None] = []
    directories = [str(tmp_path)]

    def told(path: str | None) -> None:
        heard.append(path)
        # The instance is closed, and another one opened, most likely under the same number.
        notices.leave(told)
        notices.follow(directories, frozenset(), told)

    notices.follow(directories, frozenset(), told)
    try:
        for name in ("one", "two", "three"):
            before = len(heard)
            (tmp_path / name).touch()
            await eventually(lambda before=before: len(heard) > before)  # type: ignore[misc]
            assert heard[-1] == str(tmp_path / name)
    finally:
        notices.leave(told)
