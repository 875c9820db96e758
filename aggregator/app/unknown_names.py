"""Names that visitors ask gateways for and nobody has: counted, and told of when somebody is trying names out.

In: a call for every such name. Out: a counter, and a line in the log when there are more in a second than mistakes and
old bookmarks make up. The names themselves are not kept: they are whatever strangers write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from aggregator.app.metrics import Metric

log = logging.getLogger(__name__)

SCAN: Final = 500
"""Unknown names in a second that are a scan: each costs a gateway 0.4 ms of its main thread, so these are a fifth."""
QUIET: Final = 60.0
"""Seconds after a line in the log in which there is no other."""


class UnknownNames:
    """Counts them. `clock` only grows, in seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = -1
        self._in_second = 0
        self._silent_until = 0.0
        self.unknown = Metric(
            name="isthmus.ingress.names.unknown",
            kind="counter",
            help="Names that gateways asked for on behalf of visitors, and for which there is no certificate.",
            values={(): 0},
        )
        self.scans = Metric(
            name="isthmus.ingress.names.scanned.seconds",
            kind="counter",
            help=f"In how many seconds these were more than {SCAN}.",
            values={(): 0},
        )

    def metrics(self) -> tuple[Metric, ...]:
        """Every metric."""
        return (self.unknown, self.scans)

    def count(self) -> None:
        """One more."""
        self.unknown.values[()] += 1
        now = self._clock()
        if int(now) != self._second:
            self._second, self._in_second = int(now), 0
        self._in_second += 1
        if self._in_second == SCAN + 1:
            self.scans.values[()] += 1
            if now >= self._silent_until:
                self._silent_until = now + QUIET
                log.warning(
                    "visitors ask for many names that nobody has: somebody is trying names out, or a domain points "
                    "here that no Ingress has",
                    extra={"more_per_second_than": SCAN},
                )
