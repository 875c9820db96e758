"""How long requests may take, as annotations want it. Without them an answer may take as long as it wants.

proxy-read-timeout and proxy-send-timeout are between two reads and two writes; here the longer of those that are given
is for a request in which nothing moves either way. timeout is for a request as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.traffic.annotations.given import Given, Refused

ANNOTATIONS: Final[Mapping[str, str]] = {
    "proxy-read-timeout": "Seconds a request may go on without anything moving (504).",
    "proxy-send-timeout": "As proxy-read-timeout; the longer of the two counts.",
    "timeout": "Seconds a request may take as a whole (504).",
}

LONGEST: Final = 7 * 86400


class Timeouts(msgspec.Struct, frozen=True, gc=False):
    """Seconds, 0 for no limit of the Ingress's own: `idle` without anything moving, `whole` for all of a request."""

    idle: int = 0
    whole: int = 0


UNLIMITED: Final = Timeouts()


def timeouts(given: Given) -> Timeouts:
    """What an Ingress says of them."""
    idle = max(given.value(f"proxy-{what}-timeout", _seconds, 0) for what in ("read", "send"))
    found = Timeouts(idle, given.value("timeout", _seconds, 0))
    return found if found != UNLIMITED else UNLIMITED


def _seconds(text: str) -> int:
    digits = text.removesuffix("s")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 8 and 0 < int(digits) <= LONGEST):
        raise Refused(f"must be a whole number of seconds from 1 to {LONGEST:,}")
    return int(digits)
