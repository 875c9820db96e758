"""Files of manifests in a directory that others write: which there are, and their bytes.

Hidden files and directories are passed over (editors keep drafts there, Kubernetes the versions of a mounted
ConfigMap), so is every suffix but .yaml, .yml and .json. Symbolic links are followed within the directory, never out of
it. Everything is bounded: entries, levels, bytes. Blocking: to be called in a thread. Knows nothing of what files mean.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

SUFFIXES = (".yaml", ".yml", ".json")
MAX_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 50_000
MAX_LEVELS = 16
_ATTEMPTS = 3

Signature = tuple[int, int, int, int, int]
"""Device, inode, size, time of content and time of change: equal ones mean an equal content, if old enough."""


class UnreadableFile(OSError):
    """A file or directory that is there and cannot be used: ``cause``, ``cure``."""

    def __init__(self, cause: str, cure: str) -> None:
        super().__init__(cause, cure)
        self.cause = cause
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.cause}; {self.cure}"


class ManifestFile(msgspec.Struct, frozen=True):
    """A file: its name relative to the directory, the path it is really at, its signature when it was found."""

    name: str
    path: str
    signature: Signature


class Listing(msgspec.Struct, frozen=True):
    """What a directory holds.

    ``files`` are in the order of their names. ``directories`` are those whose entries decide the content, as paths
    free of links. ``refused`` are files and directories (these with a ``/`` at the end) that cannot be used, by name.
    ``identity`` tells this directory from another that takes its place.
    """

    files: list[ManifestFile]
    directories: frozenset[str]
    refused: dict[str, UnreadableFile]
    identity: tuple[int, int]


def list_manifests(root: Path) -> Listing:
    """The files of manifests in and below a directory; raises OSError if it cannot be listed."""
    for _ in range(_ATTEMPTS):
        listing = _Search(root).run()
        # In a directory that was replaced meanwhile, files were missing that nobody deleted.
        if _identity(root) == listing.identity:
            return listing
    raise UnreadableFile("is replaced again and again", "replace it more rarely than it can be listed")


def read_file(path: str) -> tuple[bytes, Signature]:
    """The bytes of a file and its signature, both of one moment: a file that changes meanwhile is read again.

    Raises UnreadableFile, or another OSError such as FileNotFoundError.
    """
    # Not blocking: opening a pipe would wait for its writer. No link: it was resolved, and is not to be swapped now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        for _ in range(_ATTEMPTS):
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise UnreadableFile("is no regular file", "put a file there, or nothing")
            if before.st_size > MAX_BYTES:
                raise UnreadableFile(f"is larger than {MAX_BYTES >> 20} MiB", "split it into several files")
            file.seek(0)
            data = file.read(before.st_size + 1)
            if len(data) == before.st_size and signature(os.fstat(descriptor)) == signature(before):
                return data, signature(before)
    raise UnreadableFile("is being written", "write it under another name, then rename it")


def signature(status: os.stat_result) -> Signature:
    """The signature of a file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _Search:
    """One walk through a directory."""

    def __init__(self, root: Path) -> None:
        self._base = os.path.realpath(root, strict=True)
        self._entries = 0
        self._files: list[ManifestFile] = []
        self._directories: set[str] = set()
        self._refused: dict[str, UnreadableFile] = {}

    def run(self) -> Listing:
        identity = _identity(Path(self._base))
        self._walk(self._base, "", ())
        self._files.sort(key=lambda file: file.name)
        return Listing(self._files, frozenset(self._directories), self._refused, identity)

    def _walk(self, path: str, prefix: str, above: tuple[str, ...]) -> None:
        """Takes in a directory; raises OSError if it cannot be listed."""
        inside = (*above, path)
        self._directories.add(path)
        with os.scandir(path) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > MAX_ENTRIES:
                    raise UnreadableFile(f"holds more than {MAX_ENTRIES:,} files", "keep only manifests in it")
                if not entry.name.startswith("."):
                    name = prefix + _printable(entry.name)
                    try:
                        self._take(entry, name, inside)
                    except UnreadableFile as error:
                        self._refused[name] = error

    def _take(self, entry: os.DirEntry[str], name: str, inside: tuple[str, ...]) -> None:
        """Takes in an entry; raises UnreadableFile with what is wrong with it."""
        wanted = name.lower().endswith(SUFFIXES)
        try:
            if entry.is_symlink():
                path = self._resolve(entry.path)
                status = Path(path).lstat()
            else:
                path = entry.path
                status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            if wanted and entry.is_symlink():
                raise UnreadableFile("is a link to nothing", "remove it, or make what it leads to") from None
            return  # Gone since the directory was listed.
        except UnreadableFile:
            if wanted or entry.is_dir():
                raise
            return
        except OSError as error:
            raise UnreadableFile(f"cannot be examined: {error.strerror}", "give the right to read it") from None
        if stat.S_ISDIR(status.st_mode):
            self._descend(path, name, inside)
        elif wanted:
            # A link shows the change of a file it leads to only where that file is.
            self._directories.add(str(Path(path).parent))
            self._files.append(ManifestFile(name, path, signature(status)))

    def _descend(self, path: str, name: str, inside: tuple[str, ...]) -> None:
        if path in inside:
            raise UnreadableFile("is a link to a directory it is in", "remove it")
        if len(inside) == MAX_LEVELS:
            raise UnreadableFile(f"is more than {MAX_LEVELS} levels deep", "keep manifests further up")
        if _printable(path) != path:
            raise UnreadableFile("has a name that is not UTF-8", "rename it")
        try:
            self._walk(path, f"{name}/", inside)
        except UnreadableFile:
            raise
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._directories.discard(path)
                self._refused[f"{name}/"] = UnreadableFile(
                    f"cannot be listed: {error.strerror}", "give the right to read it"
                )

    def _resolve(self, path: str) -> str:
        """Where a link leads; raises UnreadableFile if that is outside."""
        real = os.path.realpath(path, strict=True)
        if os.path.commonpath((real, self._base)) != self._base:
            raise UnreadableFile("is a link out of the directory", "put the file itself there")
        return real


def _identity(directory: Path) -> tuple[int, int]:
    status = directory.stat()
    return status.st_dev, status.st_ino


def _printable(name: str) -> str:
    """A file's name as text: bytes that are not UTF-8 are written as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
