"""Memory of a process, as the kernel counts it."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path


def resident(*, trimmed: bool = False) -> int:
    """Bytes of this process in memory; `trimmed`: after collecting garbage and giving back what is free."""
    if trimmed:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
