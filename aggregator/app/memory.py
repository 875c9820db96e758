"""How the process keeps memory: what the garbage collector looks at, and what goes back to the kernel.

All of it is of a process as a whole, so `run` sees to it, and no ControlPlane that shares a process with others.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
from collections.abc import AsyncIterator, Callable
from typing import Final

COLLECT: Final = (20_000, 2, 50_000)
"""Thresholds of the garbage collector. The middle generation is looked through after every third time of the young one,
so that nothing keeps the event loop for longer than it takes to look at 80,000 objects, 14 ms. What is old is looked at
hardly ever: nearly all of it are records without circles, and what ends leaves none (`watchers.cluster`).
"""
LARGE: Final = 1 << 20
"""Bytes from which on a block of memory is the kernel's again as soon as it is freed."""

GIVEN_BACK_EVERY: Final = 30.0
"""Seconds."""

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


@contextlib.asynccontextmanager
async def tended(every: float = GIVEN_BACK_EVERY) -> AsyncIterator[None]:
    """Meanwhile what is free in smaller pieces is given back to the kernel every so many seconds.

    glibc does so by itself only with what lies at the end of its heap. What the lists of clusters took that were read,
    went or got another credential lies in the middle: of ten clusters, 7 MB after a hundred and twenty rotations.
    To look takes 0.1 ms, to give back a few; other threads run on meanwhile.
    """
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:  # another C library, which has its own ways
        yield
        return
    giving = asyncio.create_task(_give_back(trim, every), name="give back memory")
    try:
        yield
    finally:
        giving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await giving


async def _give_back(trim: Callable[[int], int], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await asyncio.to_thread(trim, 0)


def _return_large_blocks() -> None:
    """Whole files are held while they are read, one after the other in different threads. By default glibc keeps such
    blocks for later use, per thread and in pieces: 11 clusters in files of 12 MB took 340 MB to read, and take 180.
    """
    try:
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE)
    except (AttributeError, OSError):  # another C library, which has its own ways
        pass
