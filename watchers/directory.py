"""A directory of manifests as a cluster: loads it, watches it, writes what it says as facts.

A source like any other: its facts, the state of the cluster, and a SourceFault for every file that cannot be used.
What cannot be used is no news: a broken file keeps its last good content, an invalid object its last good version, and
a directory that vanishes keeps all of it (state "stale"). Only a file that is deleted, or read without the object,
takes an object away. Every change leads to a new listing, in which only files that changed are read again; all
of that happens in a thread, and only the difference reaches the table.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from watchers.documents import UnreadableText
from watchers.facts import Cluster, Fact, ObjectKey, SourceFault
from watchers.facts.keys import check_cluster
from watchers.files import Listing, ManifestFile, Signature, UnreadableFile, list_manifests, read_file
from watchers.manifests import Flaw, Manifests, read_manifests, subject
from watchers.sink import Cause, Facts
from watchers.watching import Places, SourceError, Watch, places_of

_YOUNG = 2_000_000_000
"""Nanoseconds in which a file system's clock may not tell two writes apart."""

_PARSING = threading.Lock()
"""Held while a file is parsed. Threads that parse at the same time only take turns, with each other and with the event
loop, and each holds its file several times over; reading does not wait, as a directory may be of a dead server."""


async def watch_directory(
    cluster: str,
    path: Path,
    facts: Facts,
    *,
    home: bool,
    system_namespace: str,
    deadline: float,
    now: Callable[[], float] = time.time,
) -> None:
    """Keeps the facts of a cluster equal to what the manifests in a directory say, until cancelled.

    ``home`` and ``deadline`` (seconds of Unix time) are handed on in the Cluster fact; ``system_namespace`` is where
    the mesh configuration is; ``now`` is the time. Raises SourceError if the directory cannot be read at the start or
    cannot be watched, and ValueError for an impossible id.
    """
    directory = Directory(cluster, path, home=home, system_namespace=system_namespace, deadline=deadline, now=now)
    source = f"directory {cluster}"
    received = time.time_ns()
    facts.apply([directory.state("syncing")], Cause(received, source, 0))
    places = await asyncio.to_thread(directory.places)
    while True:
        async with Watch(directory.path, places) as watch:
            while True:
                load = await asyncio.to_thread(directory.load)
                if load.items is not None:
                    facts.replace((cluster,), load.items.items(), Cause(received, source, load.read))
                if load.places != places:
                    # What changes in a new place before it is watched is found by the load that follows.
                    places = load.places
                    break
                received = await watch.change()


class Load(msgspec.Struct, frozen=True):
    """What a load found: the facts of the cluster, None if they are as before; objects read anew; what to watch."""

    items: Mapping[ObjectKey, Fact] | None
    read: int
    places: Places


class _File(msgspec.Struct):
    """A file as far as it could be read: its facts, and what is wrong with it now."""

    signature: Signature | None
    digest: bytes
    facts: dict[ObjectKey, Fact]
    lines: dict[ObjectKey, int]
    flaw: Flaw | None
    flaws: int


class Directory:
    """The state of a directory between loads. Blocking; used by one thread at a time."""

    def __init__(
        self,
        cluster: str,
        path: Path,
        *,
        home: bool,
        system_namespace: str,
        deadline: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.cluster = check_cluster(cluster)
        self.path = path.absolute()
        self._home = home
        self._system_namespace = system_namespace
        self._deadline = deadline
        self._files: dict[str, _File] = {}
        self._items: dict[ObjectKey, Fact] | None = None
        self._identity = (0, 0)
        self._now = now
        self._state = ""
        self._since = 0.0

    def state(self, state: str, reason: str = "") -> tuple[ObjectKey, Cluster]:
        """Key and fact of the cluster in this state, which began now if it was in another before."""
        if state != self._state:
            self._state, self._since = state, self._now()
        unconfirmed = self._since if state == "stale" else 0.0
        fact = Cluster(state, self._home, self._deadline, reason, self._since, unconfirmed)
        return (self.cluster, "Cluster", "", self.cluster), fact

    def load(self) -> Load:
        """Reads what changed since the last load; raises SourceError if the first one cannot read the directory."""
        try:
            listing = list_manifests(self.path)
        except OSError as error:
            if self._items is None:
                raise _unusable(self.path, error) from None
            return self._stale(f"{self.path} cannot be read: {_reason(error)}", frozenset())
        if self._files and not listing.files and listing.identity != self._identity:
            # Made anew, and not filled yet. Deleting the files of a directory that stays is another matter.
            return self._stale(f"{self.path} is another directory than before, and an empty one", listing.directories)
        self._identity = listing.identity
        read = self._read(listing)
        return self._loaded(self._merged(listing), read, listing.directories)

    def places(self) -> Places:
        """What to watch before anything was read: most directories have none below."""
        return places_of(self.path, frozenset([str(self.path.resolve())]))

    def _loaded(self, items: dict[ObjectKey, Fact], read: int, directories: frozenset[str]) -> Load:
        changed = items != self._items
        self._items = items
        return Load(items if changed else None, read, places_of(self.path, directories))

    def _stale(self, reason: str, directories: frozenset[str]) -> Load:
        return self._loaded({**(self._items or {}), **dict([self.state("stale", reason)])}, 0, directories)

    def _read(self, listing: Listing) -> int:
        """Brings the files up to date; returns how many objects were read."""
        files: dict[str, _File] = {}
        read = 0
        for found in listing.files:
            known = self._files.get(found.name)
            if known is not None and known.signature == found.signature:
                files[found.name] = known
                continue
            file = self._read_one(found, known)
            if file is not None:
                files[found.name] = file
                if file is not known:
                    read += len(file.facts)
        for name in listing.refused:
            # What cannot be looked at now is not gone.
            below = name.rstrip("/") + "/"
            for known_name, known in self._files.items():
                if known_name == name or known_name.startswith(below):
                    files.setdefault(known_name, known)
        self._files = files
        return read

    def _read_one(self, found: ManifestFile, known: _File | None) -> _File | None:
        """The file as it is now; the one that is known (None if none is) where there is nothing new to know."""
        try:
            data, signature = read_file(found.path)
        except FileNotFoundError:
            # Gone since it was listed, perhaps with the whole directory. The next listing will tell, and follows soon:
            # what has gone was watched.
            return known
        except UnreadableFile as error:
            return _kept(known, None, b"", Flaw(1, error.cause, error.cure))
        except OSError as error:
            return _kept(known, None, b"", Flaw(1, f"cannot be read: {_reason(error)}", "give the right to read it"))
        # Two writes within a tick of the file system's clock look alike: a young signature proves nothing later.
        settled = signature if time.time_ns() - max(signature[3:]) > _YOUNG else None
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if known is not None and known.digest == digest:
            known.signature = settled
            return known
        if not data.strip() and known is not None and known.facts:
            flaw = Flaw(1, "is empty, as files are that are about to be written", "delete it to delete its objects")
            return _kept(known, settled, digest, flaw)
        try:
            with _PARSING:
                manifests = read_manifests(found.name, data, self.cluster, self._system_namespace)
        except UnreadableText as error:
            return _kept(known, settled, digest, Flaw(error.line, error.cause, error.cure))
        except Exception as error:  # noqa: BLE001 - whatever a file does to us, its neighbours are not to suffer
            flaw = Flaw(
                1, f"makes this program fail: {type(error).__name__}: {error}", "report it, and remove the file"
            )
            return _kept(known, settled, digest, flaw)
        return _File(
            settled, digest, _with_last_good(manifests, known), manifests.lines, manifests.flaw, manifests.flaws
        )

    def _merged(self, listing: Listing) -> dict[ObjectKey, Fact]:
        """All facts of the cluster: of every object the first file's, and what is wrong with which file."""
        items: dict[ObjectKey, Fact] = dict([self.state("synced")])
        owners: dict[ObjectKey, str] = {}
        for name, file in sorted(self._files.items()):
            flaw, flaws = file.flaw, file.flaws
            for key, fact in file.facts.items():
                owner = owners.setdefault(key, name)
                if owner == name:
                    items[key] = fact
                    continue
                flaws += 1
                flaw = flaw or Flaw(
                    file.lines.get(key, 1),
                    f"{subject(key)} also stands in {owner}, which counts",
                    "remove it from one of the two files",
                )
            if flaw is not None:
                items.update([self._fault(name, flaw, flaws)])
        for name, refusal in listing.refused.items():
            items.update([self._fault(name, Flaw(1, refusal.cause, refusal.cure), 1)])
        return items

    def _fault(self, name: str, flaw: Flaw, flaws: int) -> tuple[ObjectKey, SourceFault]:
        more = f"; {flaws - 1} more of its objects cannot be used" if flaws > 1 else ""
        return (
            (self.cluster, "SourceFault", "", name),
            SourceFault(name, flaw.line, flaw.cause + more, flaw.cure),
        )


def _kept(known: _File | None, signature: Signature | None, digest: bytes, flaw: Flaw) -> _File:
    """A file that cannot be used as it is: what it held last stands."""
    facts, lines = (known.facts, known.lines) if known else ({}, {})
    return _File(signature, digest, facts, lines, flaw, 1)


def _with_last_good(manifests: Manifests, known: _File | None) -> dict[ObjectKey, Fact]:
    """The facts of a file, with the last version of those objects that are invalid now."""
    if known is None or not manifests.invalid:
        return manifests.facts
    last = {key: known.facts[key] for key in manifests.invalid if key in known.facts}
    return {**last, **manifests.facts}


def _reason(error: OSError) -> str:
    return str(error) if isinstance(error, UnreadableFile) else error.strerror or str(error)


def _unusable(path: Path, error: OSError) -> SourceError:
    if isinstance(error, FileNotFoundError):
        return SourceError(f"{path} does not exist; create it, or correct the path of the source")
    if isinstance(error, NotADirectoryError):
        return SourceError(f"{path} is no directory; name the directory that holds the manifests of the cluster")
    return SourceError(f"{path} cannot be read: {_reason(error)}; give the right to read it")
