"""What the kernel tells of changes in directories: one inotify instance for all that a process follows.

In: directories, by whoever follows them. Out: a call for every entry that changed there. Woken by the kernel alone: no
thread, no polling, and nothing to do while nothing changes. Which changes count is judged in `watchers.watching`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

from watchers.inotify import Event, Inotify, Mask
from watchers.inotify import Watch as Place

Heard = Callable[[str | None], None]
"""Takes the path that changed, as its directory was named; None if any may have, since there was too much to tell."""

_ENTRIES = (
    Mask.CREATE
    | Mask.DELETE
    | Mask.ATTRIB
    | Mask.MOVED_FROM
    | Mask.MOVED_TO
    | Mask.DELETE_SELF
    | Mask.MOVE_SELF
    | Mask.ONLYDIR
    # Of a directory that is followed by several, the most that anybody wants is told.
    | Mask.MASK_ADD
)
_CONTENTS = _ENTRIES | Mask.MODIFY | Mask.CLOSE_WRITE


class Notices:
    """The inotify instance of an event loop, there while anybody follows anything."""

    def __init__(self) -> None:
        self._inotify: Inotify | None = None
        # A directory may be followed by several, under several names.
        self._followers: dict[int, list[tuple[Heard, str]]] = {}
        self._places: dict[int, Place] = {}

    def follow(self, directories: Iterable[str], contents: frozenset[str], heard: Heard) -> None:
        """Has a call told of the entries that come, go or are replaced in these directories; of those in ``contents``
        also of what is written to their files. Raises OSError, and then follows none of them.
        """
        try:
            if self._inotify is None:
                # Never waits: there is something to read when the loop says so.
                self._inotify = Inotify(sync_timeout=0)
                # What it calls NONBLOCK is not.
                os.set_blocking(self._inotify.fd, False)
                asyncio.get_running_loop().add_reader(self._inotify.fd, self._read)
            for directory in directories:
                place = self._inotify.add_watch(directory, _CONTENTS if directory in contents else _ENTRIES)
                self._places[place.wd] = place
                self._followers.setdefault(place.wd, []).append((heard, directory))
        except BaseException:
            self.leave(heard)
            raise

    def leave(self, heard: Heard) -> None:
        """The call is told no more."""
        for number, followers in list(self._followers.items()):
            kept = [one for one in followers if one[0] != heard]
            if kept:
                self._followers[number] = kept
                continue
            del self._followers[number]
            if self._inotify is not None:
                # The kernel has let it go already if the directory is gone.
                with contextlib.suppress(OSError):
                    self._inotify.rm_watch(self._places.pop(number))
        if self._inotify is not None and not self._followers:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify = None
            self._places.clear()

    def _read(self) -> None:
        inotify = self._inotify
        # Who is told may leave, and follow again: the instance may then be closed, and its number that of another file.
        while inotify is not None and inotify is self._inotify:
            try:
                event = inotify.sync_get()
            except BlockingIOError:
                return
            if event is None:
                return
            self._tell(event)

    def _tell(self, event: Event) -> None:
        if Mask.Q_OVERFLOW in event.mask:
            for heard in {heard for followers in self._followers.values() for heard, _ in followers}:
                heard(None)
            return
        place = event.watch
        if place is None:
            return
        name = "" if event.name is None else f"/{event.name}"
        for heard, directory in self._followers.get(place.wd, ()):
            heard(directory.rstrip("/") + name if name else directory)


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Notices] = WeakKeyDictionary()


def notices() -> Notices:
    """Those of the running loop: the kernel allows a user a small number of instances (max_user_instances)."""
    return _of_loop.setdefault(asyncio.get_running_loop(), Notices())
