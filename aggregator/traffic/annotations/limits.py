"""Limits of requests: how many a client may make in a time, and how long their bodies may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.traffic.annotations.given import Given, Refused, number

ANNOTATIONS: Final[Mapping[str, str]] = {
    "limit-rps": "Requests that one client address may make a second (503).",
    "limit-rpm": "The same a minute.",
    "limit-burst-multiplier": "How many times that may come at once.",
    "proxy-body-size": "The longest body of a request, as 512k, 8m or 1g (413).",
}
MOST_REQUESTS: Final = 1_000_000
MOST_TIMES: Final = 1_000
LONGEST_BODY: Final = 1 << 50
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30}
_SIZE: Final = re.compile(r"([0-9]{1,18})([kmg]?)b?")


class Limits(msgspec.Struct, frozen=True, gc=False):
    """Requests a client address may make `per_second` and `per_minute`, `burst` times that at once, and the bytes of a
    body; 0: as many as it likes.
    """

    per_second: int = 0
    per_minute: int = 0
    burst: int = 5
    body: int = 0


UNLIMITED: Final = Limits()


def limits(given: Given) -> Limits:
    """What an Ingress says of limits."""
    if "limit-connections" in given:
        detail = "connections are not counted by client and path: limit requests by limit-rps"
        given.refuse("limit-connections", detail, "AnnotationUnsupported")
    found = Limits(
        given.value("limit-rps", number(0, MOST_REQUESTS), 0),
        given.value("limit-rpm", number(0, MOST_REQUESTS), 0),
        given.value("limit-burst-multiplier", number(1, MOST_TIMES), 5),
        given.value("proxy-body-size", _size, 0),
    )
    return found if found.per_second or found.per_minute or found.body else UNLIMITED


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.lower())
    size = int(match[1]) << _UNITS[match[2]] if match is not None else -1
    if not 0 <= size <= LONGEST_BODY:
        raise Refused("must be a size as 512k, 8m or 1g")
    return size
