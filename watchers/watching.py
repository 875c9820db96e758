"""Notices that something below a directory may have changed, or the way to it has.

Used by sources that read files. Watches directories one by one (`watchers.notices`), those above the directory among
them, so one that is removed, renamed, made anew or reached by another link is noticed like any change. What changed is
not told: whoever reads files must look at all of them anyhow. Reads no file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from watchers.notices import notices

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

    def concerns(self, path: str) -> bool:
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
    """Notices changes from the moment it is entered, those that come while nobody waits included.

    Entering it raises SourceError if it cannot be watched.
    """

    def __init__(self, path: Path, places: Places) -> None:
        self._path = path
        self._places = places
        self._changed = asyncio.Event()
        self._noticed = 0
        self._burst_ends = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Watch:
        try:
            watched = sorted({place for place, _, _ in self._places.watched})
            notices().follow(watched, self._places.contents, self._hear)
        except FileNotFoundError:
            self._notice()  # A place has gone since it was listed: a change, after which other places are watched.
        except OSError as error:
            raise SourceError(
                f"{self._path} cannot be watched for changes: {error.strerror}; raise the limits "
                "fs.inotify.max_user_instances and fs.inotify.max_user_watches"
            ) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        notices().leave(self._hear)
        if self._timer is not None:
            self._timer.cancel()

    async def change(self) -> int:
        """Waits for a change; returns when it was noticed (nanoseconds of Unix time)."""
        await self._changed.wait()
        self._changed.clear()
        return self._noticed

    def _hear(self, path: str | None) -> None:
        """Something has changed: it counts once nothing more does for a while, or too much has."""
        if path is not None and not self._places.concerns(path):
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is None:
            self._burst_ends = now + LONGEST_BURST / 1000
        else:
            self._timer.cancel()
        self._timer = loop.call_at(min(now + QUIET / 1000, self._burst_ends), self._notice)

    def _notice(self) -> None:
        self._timer = None
        self._noticed = time.time_ns()
        self._changed.set()
