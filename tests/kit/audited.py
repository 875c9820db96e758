"""A Python program under an audit hook that was there before anything of it was imported.

Run as `python audited.py LOG MODULE ARGUMENTS...`: every event by which a program is started, a file opened, made,
moved or removed, a library loaded or somebody connected to goes to the file LOG, as a line `event<TAB>what`. `events`
reads it. Nothing but what Python itself needs is imported before the hook, and only the hook's own file is not told of.
What libraries in C do on their own raises no event; those that open files by Python's means do.
"""

from __future__ import annotations

import os
import sys

_STARTS = {
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "pty.spawn",
}
_LOADS = {"ctypes.dlopen"}
_TOUCHES = {
    "open",
    "os.chmod",
    "os.chown",
    "os.link",
    "os.listdir",
    "os.listxattr",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.scandir",
    "os.symlink",
    "os.truncate",
    "os.utime",
    "shutil.copyfile",
    "shutil.move",
    "shutil.rmtree",
    "tempfile.mkdtemp",
    "tempfile.mkstemp",
    "sqlite3.connect",
}
_PAIRS = {"os.link", "os.rename", "os.symlink", "shutil.copyfile", "shutil.move"}
_CONNECTS = {"socket.connect", "socket.sendto", "socket.bind"}
STARTS = frozenset(_STARTS)
"""The events by which a program is started."""


def install(log: int) -> None:
    """Installs the hook, which writes to this file descriptor for as long as the process lives."""
    wanted = _STARTS | _LOADS | _TOUCHES | _CONNECTS

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event not in wanted:
            return
        if event in _CONNECTS:
            told = arguments[1:2]
        else:
            told = arguments[: 2 if event in _PAIRS else 1] or ("",)
        for what in told:
            if isinstance(what, int):
                continue  # A descriptor of something that was opened, and told of, before.
            text = os.fsdecode(what) if isinstance(what, bytes | os.PathLike) else str(what)
            os.write(log, f"{event}\t{text}\n".encode("utf-8", "backslashreplace"))

    sys.addaudithook(hear)


def events(log: os.PathLike[str]) -> list[tuple[str, str]]:
    """What happened: (event, path or program or address), in order."""
    with open(log, encoding="utf-8") as file:  # noqa: PTH123 - no pathlib before the hook is there.
        lines = file.read().splitlines()
    return [(event, what) for event, _, what in (line.partition("\t") for line in lines)]


if __name__ == "__main__":
    install(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    # Only now, so that what the program imports is told of.
    import runpy

    sys.argv = sys.argv[2:]
    sys.path[0] = os.getcwd()  # noqa: PTH109 - as `python -m` has it; this file's folder is no package of the program.
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
