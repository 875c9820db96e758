"""A directory as a cluster, on a real file system with real notifications."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from tests.kit import manifests
from tests.kit.eventually import eventually
from tests.kit.manifests import write_manifests
from watchers.directory import watch_directory
from watchers.facts import Cluster, Fact, ObjectKey, Pod, SourceFault
from watchers.sink import Cause
from watchers.watching import SourceError

DEADLINE = 10.0


class Sink:
    """A table of one cluster that tells of every write that changed something."""

    def __init__(self) -> None:
        self.items: dict[ObjectKey, Fact] = {}
        self.causes: list[Cause] = []
        self.states: list[str] = []
        self._changed = asyncio.Event()

    def apply(self, changes: Iterable[tuple[ObjectKey, Fact | None]], cause: object = None) -> int:
        items = dict(self.items)
        for key, fact in changes:
            if fact is None:
                items.pop(key, None)
            else:
                items[key] = fact
        return self._set(items, cause)

    def replace(self, prefix: tuple[str, ...], items: Iterable[tuple[ObjectKey, Fact]], cause: object = None) -> int:
        kept = {key: fact for key, fact in self.items.items() if key[: len(prefix)] != prefix}
        return self._set({**kept, **dict(items)}, cause)

    def _set(self, items: dict[ObjectKey, Fact], cause: object) -> int:
        assert isinstance(cause, Cause)
        if items != self.items:
            self.items = items
            self.causes.append(cause)
            self.states.append(self.state)
            self._changed.set()
        return len(self.causes)

    @property
    def state(self) -> str:
        fact = self.items.get(("west", "Cluster", "", "west"))
        return fact.state if isinstance(fact, Cluster) else ""

    @property
    def addresses(self) -> dict[str, str]:
        return {key[3]: fact.addresses[0] for key, fact in self.items.items() if isinstance(fact, Pod)}

    @property
    def faults(self) -> dict[str, SourceFault]:
        return {key[3]: fact for key, fact in self.items.items() if isinstance(fact, SourceFault)}

    async def until(self, check: Callable[[Sink], bool]) -> None:
        """Waits until the content is so; every change is looked at."""
        async with asyncio.timeout(DEADLINE):
            while not check(self):
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def watching(path: Path, sink: Sink | None = None) -> AsyncIterator[Sink]:
    """Watches a directory; the first load is done."""
    sink = sink or Sink()
    task = asyncio.create_task(
        watch_directory("west", path, sink, home=True, system_namespace="istio-system", deadline=9.0)
    )
    try:
        await sink.until(lambda found: found.state == "synced" or task.done())
        yield sink
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def pod(name: str, ip: str) -> manifests.Manifest:
    return manifests.pod(f"shop/{name}", ip)


async def test_a_cluster_is_syncing_until_everything_was_read_once(tmp_path: Path) -> None:
    write_manifests(tmp_path, pod("a", "10.0.0.1"), manifests.namespace("shop"))
    before = time.time_ns()
    async with watching(tmp_path) as sink:
        assert sink.states == ["syncing", "synced"]
        found = sink.items["west", "Cluster", "", "west"]
        assert isinstance(found, Cluster)
        assert found == Cluster("synced", True, 9.0, "", since=found.since)
        assert sink.addresses == {"a": "10.0.0.1"}
        assert [(cause.source, cause.objects) for cause in sink.causes] == [
            ("directory west", 0),
            ("directory west", 2),
        ]
        assert before <= sink.causes[-1].received <= time.time_ns()


async def test_a_changed_file_is_a_change_of_its_objects_alone(tmp_path: Path) -> None:
    write_manifests(tmp_path, pod("a", "10.0.0.1"), file="a.yaml")
    write_manifests(tmp_path, pod("b", "10.0.0.2"), file="b.yaml")
    async with watching(tmp_path) as sink:
        kept = sink.items["west", "Pod", "shop", "b"]
        write_manifests(tmp_path, pod("a", "10.0.0.9"), file="a.yaml")
        await sink.until(lambda found: found.addresses["a"] == "10.0.0.9")
        assert sink.items["west", "Pod", "shop", "b"] is kept
        assert sink.causes[-1].objects == 1


async def test_new_files_and_deleted_ones(tmp_path: Path) -> None:
    async with watching(tmp_path) as sink:
        path = write_manifests(tmp_path, pod("a", "10.0.0.1"), file="a.json")
        await sink.until(lambda found: found.addresses == {"a": "10.0.0.1"})
        path.unlink()
        await sink.until(lambda found: found.addresses == {})


async def test_a_file_written_in_place_piece_by_piece_is_seen_whole(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, *(pod(f"a{number}", "10.0.0.1") for number in range(50)))
    text = path.read_text().replace("10.0.0.1", "10.0.0.2")
    async with watching(tmp_path) as sink:
        with path.open("w") as file:
            for start in range(0, len(text), 1_000):
                file.write(text[start : start + 1_000])
                file.flush()
        await sink.until(lambda found: set(found.addresses.values()) == {"10.0.0.2"} and not found.faults)
        assert len(sink.addresses) == 50


async def test_a_new_directory_below_is_watched_with_what_is_put_into_it(tmp_path: Path) -> None:
    async with watching(tmp_path) as sink:
        write_manifests(tmp_path / "sub/deep", pod("a", "10.0.0.1"))
        await sink.until(lambda found: found.addresses == {"a": "10.0.0.1"})
        write_manifests(tmp_path / "sub/deep", pod("a", "10.0.0.2"))
        await sink.until(lambda found: found.addresses == {"a": "10.0.0.2"})


async def test_a_broken_file_keeps_its_content_until_it_is_mended(tmp_path: Path) -> None:
    path = write_manifests(tmp_path, pod("a", "10.0.0.1"), file="a.yaml")
    async with watching(tmp_path) as sink:
        path.write_text("apiVersion: v1\nkind: [Pod\n")
        await sink.until(lambda found: "a.yaml" in found.faults)
        assert sink.addresses == {"a": "10.0.0.1"}
        assert sink.faults["a.yaml"].line == 3
        write_manifests(tmp_path, pod("a", "10.0.0.2"), file="a.yaml")
        await sink.until(lambda found: found.addresses == {"a": "10.0.0.2"} and not found.faults)


async def test_drafts_of_editors_and_files_of_other_kinds_wake_nobody(tmp_path: Path) -> None:
    write_manifests(tmp_path, pod("a", "10.0.0.1"), file="a.yaml")
    async with watching(tmp_path) as sink:
        for name in (".a.yaml.swp", "a.yaml~", "4913", "notes.txt"):
            (tmp_path / name).write_text("draft")
        write_manifests(tmp_path, pod("a", "10.0.0.2"), file="a.yaml")
        await sink.until(lambda found: found.addresses == {"a": "10.0.0.2"})
        assert len(sink.causes) == 3


async def test_a_mounted_config_map_is_updated_in_one_step(tmp_path: Path) -> None:
    def version(number: int) -> None:
        """What the kubelet does: a new directory of files, then the link turned to it, then the old one removed."""
        write_manifests(tmp_path / f"..v{number}", pod("a", f"10.0.0.{number}"), file="pods.yaml")
        (tmp_path / "..data_tmp").symlink_to(f"..v{number}")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        shutil.rmtree(tmp_path / f"..v{number - 1}", ignore_errors=True)

    version(1)
    (tmp_path / "pods.yaml").symlink_to("..data/pods.yaml")
    async with watching(tmp_path) as sink:
        for number in (2, 3):
            version(number)
            await sink.until(lambda found, ip=f"10.0.0.{number}": found.addresses == {"a": ip})  # type: ignore[misc]
        assert sink.faults == {}


async def test_a_directory_removed_and_made_anew_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "clusters/west"
    write_manifests(root, pod("a", "10.0.0.1"))
    async with watching(root) as sink:
        root.rename(tmp_path / "away")
        await sink.until(lambda found: found.state == "stale")
        assert sink.addresses == {"a": "10.0.0.1"}
        root.mkdir()
        write_manifests(root, pod("a", "10.0.0.2"))
        await sink.until(lambda found: found.state == "synced" and found.addresses == {"a": "10.0.0.2"})
        write_manifests(root, pod("a", "10.0.0.3"))
        await sink.until(lambda found: found.addresses == {"a": "10.0.0.3"})


async def test_a_directory_removed_with_all_above_it_goes_on_when_it_is_back(tmp_path: Path) -> None:
    root = tmp_path / "x/clusters/west"
    write_manifests(root, pod("a", "10.0.0.1"))
    async with watching(root) as sink:
        (tmp_path / "x").rename(tmp_path / "away")
        await sink.until(lambda found: found.state == "stale")
        write_manifests(root, pod("a", "10.0.0.2"))
        await sink.until(lambda found: found.state == "synced" and found.addresses == {"a": "10.0.0.2"})


async def test_a_checkout_whose_link_is_turned_is_read_anew(tmp_path: Path) -> None:
    for number in (1, 2):
        write_manifests(tmp_path / f"v{number}/clusters/west", pod("a", f"10.0.0.{number}"))
    current = tmp_path / "current"
    current.symlink_to("v1")
    async with watching(current / "clusters/west") as sink:
        (tmp_path / "next").symlink_to("v2")
        (tmp_path / "next").replace(current)
        await sink.until(lambda found: found.addresses == {"a": "10.0.0.2"})
        write_manifests(tmp_path / "v2/clusters/west", pod("a", "10.0.0.3"))
        await sink.until(lambda found: found.addresses == {"a": "10.0.0.3"})
        assert "stale" not in sink.states


async def test_a_missing_directory_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        async with asyncio.timeout(DEADLINE):
            await watch_directory(
                "west", tmp_path / "missing", Sink(), home=True, system_namespace="istio-system", deadline=0
            )


async def test_what_cannot_be_watched_is_an_error_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("asyncinotify.Inotify.add_watch", full)
    with pytest.raises(SourceError, match=r"No space left on device; raise the limits fs\.inotify"):
        async with asyncio.timeout(DEADLINE):
            await watch_directory("west", tmp_path, Sink(), home=True, system_namespace="istio-system", deadline=0)


async def test_a_large_load_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    write_manifests(tmp_path, *(pod(f"a{number}", "10.0.0.1") for number in range(2_000)), file="a.yaml")
    write_manifests(tmp_path, *(pod(f"b{number}", "10.0.0.1") for number in range(2_000)), file="b.json")
    sink = Sink()
    task = asyncio.create_task(
        watch_directory("west", tmp_path, sink, home=True, system_namespace="istio-system", deadline=9.0)
    )
    turns = []
    while sink.state != "synced":
        # Of the processor: other processes share this machine, and other threads the interpreter.
        started = time.thread_time()
        await asyncio.sleep(0)
        turns.append(time.thread_time() - started)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert len(sink.addresses) == 4_000
    # Read in the loop, nearly all of the time would be one turn.
    assert max(turns) < sum(turns) / 4


async def test_nothing_is_left_behind_when_it_is_cancelled(tmp_path: Path) -> None:
    before = open_files()
    for _ in range(5):
        async with watching(tmp_path):
            pass
    assert len(asyncio.all_tasks()) == 1
    await eventually(lambda: open_files() <= before)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_fifty_directories_are_watched_at_once(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        sinks = []
        for number in range(50):
            write_manifests(tmp_path / str(number), pod("a", "10.0.0.1"))
            sinks.append(await stack.enter_async_context(watching(tmp_path / str(number))))
        write_manifests(tmp_path / "49", pod("a", "10.0.0.2"))
        await sinks[49].until(lambda found: found.addresses == {"a": "10.0.0.2"})
        # The pool of threads is not used up by the watches.
        async with asyncio.timeout(DEADLINE):
            assert await asyncio.to_thread(lambda: 5) == 5
