"""Whether the demo may use its addresses, and who is in the way if not.

In: addresses. Out: nothing, or Taken with the process that listens there. Reads Linux's tables of sockets and
processes; what it may not read it does not know.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aggregator.operate.bootstrap import SocketAddress


class Taken(Exception):
    """Something that is needed is in use; the text says by whom and what to do."""


def check_free(addresses: Iterable[SocketAddress]) -> None:
    """Raises Taken for the first address that somebody listens on, or that this machine does not have."""
    for address in addresses:
        with socket.socket() as probe:
            # As the processes will: what merely lingers from an earlier run is no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address.host, address.port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise Taken(f"{address} is taken{_by_whom(address)}") from None
                problem = f"{address} cannot be used: {error.strerror}"
                raise Taken(f"{problem}; the demo needs Linux's loopback, 127.0.0.0/8") from None


def _by_whom(address: SocketAddress) -> str:
    for pid, command in _listeners(address):
        return f" by process {pid} ({command}); end it with `kill {pid}`, if it is left from an earlier demo"
    return " by a process of another user; end it, or run the demo elsewhere"


def _listeners(address: SocketAddress) -> Iterator[tuple[int, str]]:
    """(process id, command) of those that listen on an address, or on its port of all addresses."""
    little_endian = socket.inet_aton(address.host)[::-1].hex().upper()
    wanted = {f"{host}:{address.port:04X}" for host in (little_endian, "00000000")}
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    inodes = {f"socket:[{row[9]}]" for row in rows if row[1] in wanted and row[3] == "0A"}  # 0A: listening
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if any(str(file.readlink()) in inodes for file in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(process.name), " ".join(command.split())[:80]
        except OSError:
            continue  # It has ended, or is not ours to look at.


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Holds a lock for as long as the context lasts. Raises Taken if another process holds it."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = file.read().strip() or "unknown"
            raise Taken(f"a demo already runs, as process {pid}; end it with Ctrl-C or `kill {pid}`") from None
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
