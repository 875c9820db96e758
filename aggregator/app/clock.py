"""The time of the process: seconds since the epoch that pass evenly, whatever is done to the wall clock.

Limits such as that of an unread cluster are moments; a wall clock that is set back by an hour would postpone them by an
hour, one that is set forward would let them pass at once. Certificates are judged by the wall clock all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock() -> Callable[[], float]:
    """A clock that takes the time of now from the wall clock and is carried on by the monotonic one."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset
