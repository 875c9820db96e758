"""Ports that nobody listens on, for whoever cannot choose one as it binds.

They are below those that the system gives to connections that go out, so that none of these takes one in the meantime,
and no test of this process is given one twice.
"""

from __future__ import annotations

import itertools
import random
import socket
from pathlib import Path

_OUTGOING = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
_LOWEST = 10_240
# Other processes with tests of their own begin elsewhere.
_CANDIDATES = itertools.cycle(random.sample(range(_LOWEST, _OUTGOING), _OUTGOING - _LOWEST))


def free_port(address: str = "127.0.0.1") -> int:
    """A TCP port of an address of this machine."""
    for port in _CANDIDATES:
        with socket.socket() as one:
            try:
                one.bind((address, port))
            except OSError:
                continue
            return port
    raise AssertionError("a cycle never ends")


def free_ports(count: int) -> list[int]:
    """So many different ones of 127.0.0.1."""
    return [free_port() for _ in range(count)]
