"""How late the event loop is, and what it does when it answers nobody for a second.

In: the loop's own clock. Out: metrics, and a line in the log with the stack of the loop's thread, once per blockage. A
timer of the loop says how late it is; a thread beside the loop sees to it that the timer rings. The thread wakes twice
a second and reads a number; it looks at frames only once the loop is blocked, and shows places in code, never values.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable

from aggregator.app.metrics import Metric

log = logging.getLogger(__name__)

PERIOD = 0.25
"""Seconds between two looks of the loop at its clock."""
BLOCKED = 1.0
"""Seconds without a sign of life after which the stack is shown."""
WINDOW = 30.0
"""Seconds for which the greatest delay is kept: longer than Prometheus takes from one scrape to the next."""
_DEEPEST = 40


class LoopWatch:
    """Watches the loop it is run in. ``clock`` only grows, in seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat = clock()
        self._thread = 0
        self._over = threading.Event()
        self._window = self._earlier = 0.0
        self._window_ends = self._beat + WINDOW
        self.lag = Metric(
            name="isthmus.event.loop.lag",
            kind="gauge",
            unit="s",
            help="The longest time in the last half minute or so for which the event loop answered nobody.",
            values={(): 0},
        )
        self.blocked = Metric(
            name="isthmus.event.loop.blocked",
            kind="counter",
            help="How often it was for longer than a second; the log shows where.",
            values={(): 0},
        )

    def metrics(self) -> tuple[Metric, ...]:
        """Every metric."""
        return (self.lag, self.blocked)

    async def run(self) -> None:
        """Watches until cancelled."""
        self._thread = threading.get_ident()
        self._beat = self._clock()
        watchdog = threading.Thread(target=self._watch, name="loop watchdog", daemon=True)
        watchdog.start()
        try:
            while True:
                await asyncio.sleep(PERIOD)
                self._tick()
        finally:
            self._over.set()
            watchdog.join(BLOCKED)

    def _tick(self) -> None:
        now = self._clock()
        late, self._beat = now - self._beat - PERIOD, now
        if now >= self._window_ends:
            # Two windows, so that what has just been is not forgotten a moment later.
            self._earlier, self._window, self._window_ends = self._window, 0.0, now + WINDOW
        self._window = max(self._window, late)
        self.lag.values[()] = max(self._window, self._earlier, 0.0)
        if late >= BLOCKED:
            self.blocked.values[()] += 1
            log.warning("event loop answers again", extra={"seconds": round(late, 2)})

    def _watch(self) -> None:
        """Runs in a thread of its own."""
        shown = 0.0
        while not self._over.wait(BLOCKED / 2):
            beat = self._beat
            late = self._clock() - beat - PERIOD
            if late >= BLOCKED and beat != shown:
                shown = beat
                log.warning("event loop is blocked", extra={"seconds": round(late, 2), "stack": self._stack()})

    def _stack(self) -> str:
        """Where the loop's thread is, outermost first."""
        frame = sys._current_frames().get(self._thread)
        if frame is None:
            return "unknown"
        # Without the text of the lines, which would have to be read from files.
        frames = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_DEEPEST, lookup_lines=False)
        return " > ".join(f"{one.filename.rpartition('/')[2]}:{one.lineno} {one.name}" for one in reversed(frames))
