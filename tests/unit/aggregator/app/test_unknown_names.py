"""Names that nobody has: counted, and told of when there are too many for mistakes."""

from __future__ import annotations

import logging

import pytest

from aggregator.app.unknown_names import QUIET, SCAN, UnknownNames


class Counted:
    def __init__(self) -> None:
        self.now = 100.0
        self.names = UnknownNames(clock=lambda: self.now)

    def ask(self, times: int) -> tuple[float, float]:
        for _ in range(times):
            self.names.count()
        unknown, scans = self.names.metrics()
        return unknown.values[()], scans.values[()]


def test_mistakes_are_counted_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    for second in range(10):
        counted.now = 100.0 + second
        assert counted.ask(SCAN) == (SCAN * (second + 1), 0)
    assert caplog.records == []


def test_a_scan_is_told_of_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    with caplog.at_level(logging.WARNING):
        for second in (0.0, 1.0, QUIET - 1, QUIET):
            counted.now = 100.0 + second
            counted.ask(SCAN + 100)
    assert counted.ask(0) == (4 * (SCAN + 100), 4)
    assert len(caplog.records) == 2
