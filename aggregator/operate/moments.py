"""Moments as they are told: in UTC, to the millisecond, None where there is none.

In: seconds since the epoch, of whatever source. Out: datetimes.
"""

from __future__ import annotations

from datetime import UTC, datetime


def moment(seconds: float | None) -> datetime | None:
    """None for 0 and None, which are never or unknown."""
    return at(seconds) if seconds else None


def at(seconds: float) -> datetime:
    """To the millisecond; a moment beyond what a calendar has becomes its last one."""
    try:
        return datetime.fromtimestamp(round(seconds, 3), UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(microsecond=0, tzinfo=UTC)
