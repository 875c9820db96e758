"""Registrations in files: a directory of kubeconfigs, or one kubeconfig, followed while it changes.

In: a path. Out: what it registers, after every change. In a directory each file is a kubeconfig and its name, without
.yaml, .yml, .json, .conf or .kubeconfig, the id of its cluster; hidden files and drafts of editors are passed over. A
file that cannot be read keeps its last content, as does a directory that vanishes: only a file that is deleted
withdraws what it registered. Reads files in a thread, and never what is in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from watchers.kubernetes.kubeconfig import ApiServer, InvalidKubeconfig, in_cluster
from watchers.registration import Claim, Origin, Refused
from watchers.watching import Places, SourceError, Watch, places_of

SUFFIXES = (".kubeconfig", ".yaml", ".yml", ".json", ".conf")
MOST_BYTES = 1 << 20
MOST_FILES = 10_000

T = TypeVar("T")


class Found(msgspec.Struct, frozen=True):
    """What files register, and which of them cannot be read."""

    claims: tuple[Claim, ...] = ()
    refused: tuple[Refused, ...] = ()


def kubeconfigs_in(directory: Path) -> Found:
    """What a directory of kubeconfigs registers now; raises SourceError. Blocking."""
    return _Directory(directory).load()[0]


def kubeconfig_in(cluster: str, file: Path, setting: str) -> Found:
    """What one file registers now; raises SourceError. Blocking."""
    return _File(cluster, file, setting).load()[0]


async def follow_kubeconfigs(directory: Path, found: Callable[[Found], None]) -> None:
    """Tells at the start and after every change what a directory of kubeconfigs registers, until cancelled.

    Raises SourceError if the directory cannot be read at the start, or cannot be watched.
    """
    files = _Directory(directory)
    await _follow(files.path, files.load, found)


async def follow_kubeconfig(cluster: str, file: Path, setting: str, found: Callable[[Found], None]) -> None:
    """The same for one file that registers one cluster, by the setting that names it."""
    one = _File(cluster, file, setting)
    await _follow(one.path, one.load, found)


async def follow_service_account(
    environment: Mapping[str, str], directory: Path, found: Callable[[ApiServer], None]
) -> None:
    """Tells after every change which API server a pod's service account leads to, until cancelled.

    Of what is in its directory only the authority makes a difference: the token is read again by whoever uses it. While
    nothing can be read, what was told last stands. Raises SourceError if the directory cannot be watched.
    """
    last: list[ApiServer] = []

    def load() -> tuple[ApiServer | None, Places]:
        with contextlib.suppress(InvalidKubeconfig):
            last[:] = [in_cluster(environment, directory)]
        return (last[0] if last else None), places_of(directory, frozenset([os.path.realpath(directory)]))

    await _follow(directory, load, lambda server: found(server) if server is not None else None)


async def _follow(path: Path, load: Callable[[], tuple[T, Places]], found: Callable[[T], None]) -> None:
    told: T | None = None
    content, places = await asyncio.to_thread(load)
    while True:
        async with Watch(path, places) as watch:
            while True:
                # Once more even at the start: what changed before the watch was in place is found now.
                content, now = await asyncio.to_thread(load)
                if content != told:
                    found(content)
                    told = content
                if now != places:
                    places = now
                    break
                await watch.change()


class _File:
    """The state of one file between loads. Blocking."""

    def __init__(self, cluster: str, path: Path, setting: str) -> None:
        self.path = path.absolute()
        self._cluster = cluster
        self._setting = setting
        self._content: bytes | None = None

    def load(self) -> tuple[Found, Places]:
        refused: tuple[Refused, ...] = ()
        place = f"{self._setting} {self._cluster}={self.path}"
        try:
            self._content = _read(self.path)
        except OSError as error:
            if self._content is None:
                raise SourceError(f"{self.path} cannot be read: {_reason(error)}; check path and permissions") from None
            refused = (_unreadable(place, self._cluster, error),)
        claim = Claim(self._cluster, self._content, Origin.SETTING, place)
        directory = os.path.realpath(self.path.parent)
        return Found((claim,), refused), places_of(self.path, frozenset([directory]))


class _Directory:
    """The state of a directory between loads. Blocking."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._contents: Mapping[str, bytes] | None = None

    def load(self) -> tuple[Found, Places]:
        try:
            names = sorted(entry.name for entry in os.scandir(self.path))[:MOST_FILES]
        except OSError as error:
            if self._contents is None:
                raise SourceError(
                    f"{self.path} cannot be listed: {_reason(error)}; name a directory of kubeconfigs"
                ) from None
            gone = Refused(str(self.path), "", f"cannot be listed: {_reason(error)}", "put the directory back")
            return self._found(self._contents, (gone,)), self._places()
        contents: dict[str, bytes] = {}
        refused: list[Refused] = []
        for name in names:
            if name.startswith(".") or name.endswith("~"):
                continue
            try:
                contents[name] = _read(self.path / name)
            except FileNotFoundError:
                continue  # Gone since it was listed.
            except OSError as error:
                refused.append(_unreadable(str(self.path / name), _cluster_of(name), error))
                if self._contents and name in self._contents:
                    contents[name] = self._contents[name]
        self._contents = contents
        return self._found(contents, tuple(refused)), self._places()

    def _found(self, contents: Mapping[str, bytes], refused: tuple[Refused, ...]) -> Found:
        claims = [
            Claim(_cluster_of(name), content, Origin.FILE, str(self.path / name)) for name, content in contents.items()
        ]
        return Found(tuple(claims), refused)

    def _places(self) -> Places:
        return places_of(self.path, frozenset([os.path.realpath(self.path)]))


def _cluster_of(name: str) -> str:
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def _read(path: Path) -> bytes:
    # Not blocking: opening a pipe would wait for its writer. Links are followed: a mounted Secret is made of them.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("is no regular file")
        content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise OSError(f"is longer than {MOST_BYTES:,} bytes")
        return content


def _unreadable(place: str, cluster: str, error: OSError) -> Refused:
    return Refused(place, cluster, f"cannot be read: {_reason(error)}", "give a kubeconfig that can be read")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
