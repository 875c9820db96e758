"""Notices that something below a directory may have changed, or the way to it has.

Used by sources that read files. Watches directories one by one (watchfiles, without polling), those above the directory
among them, so one that is removed, renamed, made anew or reached by another link is noticed like any
change. What changed is not told: whoever reads files must look at all of them anyhow. Reads no file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import anyio.to_thread
import msgspec
import watchfiles

QUIET = 50
"""Milliseconds without a change after which a burst of changes is over: writers that write in place need some."""
LONGEST_BURST = 400
"""Milliseconds after which changes count though more keep coming."""
_LONGEST_WAY = 40


class SourceError(Exception):
    """A directory that cannot be a source at all; the message names it, the cause and the cure."""


class Places(msgspec.Struct, frozen=True):
    """What to watch: directories by path, device and inode; which entries count in them.

    Every entry of ``contents`` counts; elsewhere only ``way``, the paths that lead to the directory: it may be
    replaced, or be a link that is turned.
    """

    watched: frozenset[tuple[str, int, int]]
    contents: frozenset[str]
    way: frozenset[str]

    def concerns(self, change: watchfiles.Change, path: str) -> bool:
        """Whether a change there may change the content; drafts of editors never do."""
        if path in self.way:
            return True
        place = Path(path)
        # Kubernetes turns the link `..data` when a mounted ConfigMap changes; other hidden files are drafts.
        draft = place.name.endswith("~") or (place.name.startswith(".") and not place.name.startswith(".."))
        return not draft and (path in self.contents or str(place.parent) in self.contents)


def places_of(path: Path, directories: frozenset[str]) -> Places:
    """What to watch: the directories that were listed, and all above them, as far as they are there.

    Whatever is renamed on the way counts, and every link that is turned, wherever in the path it is: that is how
    checkouts and releases are replaced.
    """
    watched = {Path(directory) for directory in directories}
    way: set[Path] = set()
    todo = [path]
    while todo and len(way) < _LONGEST_WAY:
        entry = todo.pop()
        way.add(entry)
        watched.update(place for place in entry.parents if _is_directory(place))
        for part in (entry, *entry.parents):
            with contextlib.suppress(OSError):
                if part.is_symlink():
                    target = Path(os.path.normpath(part.parent / part.readlink() / entry.relative_to(part)))
                    if target not in way:
                        todo.append(target)
    return Places(
        frozenset(_identified(watched)),
        directories,
        frozenset(str(part) for entry in way for part in (entry, *entry.parents)),
    )


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _identified(directories: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    for directory in directories:
        # Whoever cannot be read cannot be watched: on the way there it is passed over.
        if os.access(directory, os.R_OK):
            with contextlib.suppress(OSError):
                status = directory.stat()
                yield str(directory), status.st_dev, status.st_ino


class Watch:
    """Notices changes from the moment it is entered, those that come while nobody waits included."""

    _next: asyncio.Task[int]

    def __init__(self, path: Path, places: Places) -> None:
        self._path = path
        self._changes = watchfiles.awatch(
            *sorted(place for place, _, _ in places.watched),
            watch_filter=places.concerns,
            debounce=LONGEST_BURST,
            step=QUIET,
            recursive=False,
            ignore_permission_denied=False,
        )

    async def __aenter__(self) -> Watch:
        # Each watch keeps a thread of this pool for itself, so the pool grows by it.
        anyio.to_thread.current_default_thread_limiter().total_tokens += 1
        self._begin()
        # The task's first step, up to where it waits, puts the watches in place.
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._next.cancel()
        await asyncio.wait([self._next])
        if not self._next.cancelled():
            self._next.exception()  # Nobody waits for it any more; a failing watch fails again when it is begun anew.
        await self._changes.aclose()
        anyio.to_thread.current_default_thread_limiter().total_tokens -= 1

    async def change(self) -> int:
        """Waits for a change; returns when it was noticed (nanoseconds of Unix time). Raises SourceError."""
        noticed = await self._next
        self._begin()
        return noticed

    def _begin(self) -> None:
        self._next = asyncio.create_task(self._notice(), name=f"watch {self._path}")

    async def _notice(self) -> int:
        try:
            await anext(self._changes)
        except FileNotFoundError:
            pass  # A place has gone since it was listed: a change, after which other places are watched.
        except (OSError, RuntimeError, ValueError, StopAsyncIteration) as error:
            # Mostly one of the limits; asking a watch again that has ended is the rest.
            raise SourceError(
                f"{self._path} cannot be watched for changes: {error}; raise the limits "
                "fs.inotify.max_user_instances and fs.inotify.max_user_watches"
            ) from None
        return time.time_ns()
