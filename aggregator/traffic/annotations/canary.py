"""Canaries: an Ingress that wants a share of the requests of another, as annotations say.

A request goes by the header first, then by the cookie, then by weight. What becomes of canaries and the rules they are
for is decided in `aggregator.traffic.canaries`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.traffic.annotations.expressions import expression, header_name, some_header_value, token
from aggregator.traffic.annotations.given import Given, Refused, flag, number

ANNOTATIONS: Final[Mapping[str, str]] = {
    "canary": "Makes the Ingress a canary: it takes requests from rules of other Ingresses with its hosts and paths.",
    "canary-by-header": "A header: always leads to the canary, never to the other.",
    "canary-by-header-value": "The value of the header that leads to the canary, in place of always and never.",
    "canary-by-header-pattern": "As canary-by-header-value, a regular expression for the whole value.",
    "canary-by-cookie": "A cookie: always leads to the canary, never to the other.",
    "canary-weight": "The share of all other requests that the canary takes.",
    "canary-weight-total": "What canary-weight is a share of.",
}

MOST_WEIGHT: Final = 10_000


class Canary(msgspec.Struct, frozen=True, gc=False):
    """Which requests: by `header` (of this `value`, or matching `pattern`; neither: always and never), by `cookie`, and
    `weight` of `total` of the others. Each is "" or 0 if it does not count.
    """

    header: str = ""
    value: str = ""
    pattern: str = ""
    cookie: str = ""
    weight: int = 0
    total: int = 100


def canary(given: Given) -> Canary | None:
    """What an Ingress says of being one; None if it is none."""
    enabled = given.value("canary", flag, False)
    header = given.value("canary-by-header", header_name, "")
    value = given.value("canary-by-header-value", some_header_value, "")
    # A value goes before a pattern.
    pattern = given.value("canary-by-header-pattern", expression, "")
    cookie = given.value("canary-by-cookie", token, "")
    total = given.value("canary-weight-total", number(1, MOST_WEIGHT), 100)

    def share(text: str) -> int:
        weight = number(0, MOST_WEIGHT)(text)
        if weight > total:
            raise Refused(f"must be at most canary-weight-total, which is {total}")
        return weight

    weight = given.value("canary-weight", share, 0)
    if not enabled:
        return None
    if not header:
        # One that was refused leads nobody to the canary by its value.
        for name in ("canary-by-header-value", "canary-by-header-pattern"):
            if name in given:
                given.refuse(name, "says nothing without canary-by-header")
    failed = {problem.annotation.rpartition("/")[2] for problem in given.problems}
    if header and failed & {"canary-by-header-value", "canary-by-header-pattern"} and not (value or pattern):
        # Else `always` would lead there, which nobody wanted.
        header = ""
    return Canary(header, value, "" if value else pattern, cookie, weight, total)
