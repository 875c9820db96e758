"""The library for inotify, imported so that it starts no program.

asyncinotify asks `ctypes.util.find_library` where the C library is, which runs ldconfig, and a compiler where there is
none: a control plane starts nothing, and the image it runs in may have neither. Python is linked with the C library
already, which is where asyncinotify looks when nobody finds one. Out: its names, for `notices`.
"""

from __future__ import annotations

import ctypes.util
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _nothing_found() -> Iterator[None]:
    """Has every library be found nowhere, for as long as the context lasts."""
    search = ctypes.util.find_library
    ctypes.util.find_library = lambda name: None
    try:
        yield
    finally:
        ctypes.util.find_library = search


with _nothing_found():
    from asyncinotify import Event, Inotify, Mask, Watch

__all__ = ["Event", "Inotify", "Mask", "Watch"]
