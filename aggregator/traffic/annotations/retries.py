"""Which failures are tried again with another endpoint, as annotations want it.

Without them connections that fail and streams that are refused are tried two times more, whatever the method, as the
request has not been seen by anybody. With them also what may have been seen: so requests that are not idempotent are
tried once, unless the Ingress wants them tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.traffic.annotations.given import Given, Refused, number

ANNOTATIONS: Final[Mapping[str, str]] = {
    "proxy-next-upstream": "Which failures are tried again: words of nginx, or off.",
    "proxy-next-upstream-tries": "How often a request is tried all in all; 0 is 10 times.",
    "proxy-next-upstream-timeout": "Not limited in time; only 0 is understood.",
}

MOST_TRIES: Final = 10
_STATUSES: Final = {
    "http_500": 500,
    "http_502": 502,
    "http_503": 503,
    "http_504": 504,
    "http_403": 403,
    "http_404": 404,
    "http_429": 429,
}
_DEFAULT: Final[tuple[str, ...]] = ("error", "timeout")
_WORDS: Final = frozenset({"error", "timeout", "invalid_header", "non_idempotent", "off", *_STATUSES})


class Retries(msgspec.Struct, frozen=True, gc=False):
    """Failures that are tried again: of connections and streams (`errors`), attempts in which nothing moves for as long
    as the Ingress's timeouts say (`stalls`), and answers with one of `statuses`. None of them: nothing is tried again.

    `tries` is how often a request is tried all in all, `all_methods` whether one that is not idempotent is tried again.
    """

    errors: bool
    stalls: bool
    statuses: tuple[int, ...]
    tries: int
    all_methods: bool


def retries(given: Given) -> Retries | None:
    """What an Ingress says of them; None if nothing."""
    words = given.value("proxy-next-upstream", _words, _DEFAULT)
    tries = given.value("proxy-next-upstream-tries", number(0, MOST_TRIES), 3) or MOST_TRIES
    given.value("proxy-next-upstream-timeout", _unlimited, 0)
    if "proxy-next-upstream" not in given and "proxy-next-upstream-tries" not in given:
        return None
    if "off" in words or tries == 1:
        words = ()
    return Retries(
        "error" in words or "invalid_header" in words,
        "timeout" in words,
        tuple(sorted(_STATUSES[word] for word in words if word in _STATUSES)),
        tries,
        "non_idempotent" in words,
    )


def _words(text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(text.split()))
    if not words or not _WORDS.issuperset(words):
        raise Refused(f"must be some of {', '.join(sorted(_WORDS))}")
    return words


def _unlimited(text: str) -> int:
    if text not in ("0", "0s"):
        raise Refused('must be "0": how long a request may take as a whole is said by higress.io/timeout')
    return 0
