"""How the process keeps memory: what the garbage collector looks at, and what goes back to the kernel.

Both are settings of a process as a whole, so `run` makes them, and no ControlPlane that shares a process with others.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

COLLECT: Final = (50_000, 20, 1000)
"""Thresholds of the garbage collector: nearly all that is kept are records it need not look at."""
LARGE: Final = 1 << 20
"""Bytes from which on a block of memory is the kernel's again as soon as it is freed."""

_M_MMAP_THRESHOLD: Final = -3


def prepare() -> None:
    """To be called once, when everything is imported."""
    gc.set_threshold(*COLLECT)
    gc.collect()
    set_aside()
    _return_large_blocks()


def set_aside() -> None:
    """Take all there is out of the collector's sight: what was imported, and what was read at the start, stays.

    Not after a collection: with 11 clusters read, one stops the process for 60 ms and finds 35 objects.
    """
    gc.freeze()


def _return_large_blocks() -> None:
    """Whole files are held while they are read, one after the other in different threads. By default glibc keeps such
    blocks for later use, per thread and in pieces: 11 clusters in files of 12 MB took 340 MB to read, and take 180.
    """
    try:
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE)
    except (AttributeError, OSError):  # another C library, which has its own ways
        pass
