"""Pauses between streams, as observed."""

from __future__ import annotations

import pytest

from tests.kit.ztunnel.reconnect import Backoff, StreamEnd

REFUSED = StreamEnd("UNAVAILABLE", "connection refused", connected=False)


def test_clean_end_reconnects_at_once() -> None:
    assert Backoff().after(StreamEnd("OK")) == 0.0


@pytest.mark.parametrize(
    "end",
    [
        StreamEnd("UNKNOWN"),
        StreamEnd("CANCELLED"),
        StreamEnd("DEADLINE_EXCEEDED"),
        StreamEnd("UNAVAILABLE", "transport is closing"),
        StreamEnd("UNAVAILABLE", "received prior goaway: code NO_ERROR"),
    ],
    ids=str,
)
def test_ordinary_ends_wait_ten_milliseconds_each_time(end: StreamEnd) -> None:
    backoff = Backoff()

    assert [backoff.after(end) for _ in range(3)] == [0.01, 0.01, 0.01]


@pytest.mark.parametrize("end", [REFUSED, StreamEnd("UNAVAILABLE", "shutting down"), StreamEnd("RESOURCE_EXHAUSTED")])
def test_errors_double_the_pause_from_20_ms_to_15_s(end: StreamEnd) -> None:
    backoff = Backoff()

    pauses = [backoff.after(end) for _ in range(12)]

    assert pauses[:3] == pytest.approx([0.02, 0.04, 0.08])
    assert pauses[-2:] == [15.0, 15.0]


@pytest.mark.parametrize("between", [StreamEnd("OK"), StreamEnd("CANCELLED")])
def test_an_end_that_is_no_error_resets_the_pause(between: StreamEnd) -> None:
    backoff = Backoff()
    backoff.after(REFUSED)
    backoff.after(REFUSED)

    backoff.after(between)

    assert backoff.after(REFUSED) == 0.02


def test_refused_connection_doubles_even_with_a_status_that_is_ordinary_for_streams() -> None:
    assert Backoff().after(StreamEnd("UNKNOWN", connected=False)) == 0.02
