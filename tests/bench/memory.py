"""Memory and CPU time of processes, as the kernel counts them (proc(5))."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import msgspec


def resident(*, trimmed: bool = False) -> int:
    """Bytes of this process in memory; `trimmed`: after collecting garbage and giving back what is free."""
    if trimmed:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Used(msgspec.Struct, frozen=True):
    """What a process and its children use: seconds of CPU so far, in user mode and in the kernel; bytes of memory, all
    that is mapped (`resident`) and less what it shares with others (`proportional`).
    """

    cpu: float
    resident: int
    proportional: int


def used(pid: int) -> Used:
    """By the process of that id, whatever it is written in."""
    cpu, resident_bytes, proportional = 0.0, 0, 0
    for one in _family(pid):
        cpu += cpu_time(one)
        for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()[1:]:
            name, size, *_ = line.split()
            resident_bytes += 1024 * int(size) if name == "Rss:" else 0
            proportional += 1024 * int(size) if name == "Pss:" else 0
    return Used(cpu, resident_bytes, proportional)


def cpu_time(pid: int) -> float:
    """Seconds of CPU time of one process, which costs less to ask than all of `used`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> list[int]:
    """The process and all that came of it."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [pid, *(one for child in children for one in _family(child))]
