"""Cross-origin requests, as annotations want them: which pages of other origins may read answers.

By default all origins may, and then without credentials: an answer that is for every page must not be about the one
who is logged in. With origins listed credentials are allowed unless the Ingress says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.mesh.addresses import is_dns_name
from aggregator.traffic.annotations.given import Given, Refused, flag, listed, number

ANNOTATIONS: Final[Mapping[str, str]] = {
    "enable-cors": "Answers browsers that ask whether pages of other origins may read answers.",
    "cors-allow-origin": "The origins that may; *. at the beginning of a host is any one label.",
    "cors-allow-methods": "The methods that pages may use.",
    "cors-allow-headers": "The request headers that pages may set.",
    "cors-allow-credentials": "Whether requests may carry cookies.",
    "cors-expose-headers": "The response headers that pages may read.",
    "cors-max-age": "Seconds that browsers keep the answer.",
}

MOST_ORIGINS: Final = 64
ANY: Final = "*"
_ALL: Final[tuple[str, ...]] = (ANY,)
_METHODS: Final = "GET, PUT, POST, DELETE, PATCH, OPTIONS"
_HEADERS: Final = (
    "DNT, Keep-Alive, User-Agent, X-Requested-With, If-Modified-Since, Cache-Control, Content-Type, Range,"
    " Authorization"
)
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.\-]{0,30}://(?:\*\.)?(?P<host>[a-z0-9.\-]{1,253})(?::[0-9]{1,5})?")


class Cors(msgspec.Struct, frozen=True, gc=False):
    """`origins` are texts such as `https://*.example.com`, or ANY alone. Lists of names are as headers have them."""

    origins: tuple[str, ...]
    methods: str
    headers: str
    exposed: str
    max_age: int
    credentials: bool


def cors(given: Given) -> Cors | None:
    """What an Ingress says of them; None if they are as any other."""
    enabled = given.value("enable-cors", flag, False)
    origins = given.value("cors-allow-origin", _origins, _ALL)
    credentials = given.value("cors-allow-credentials", flag, origins != _ALL)
    found = Cors(
        origins,
        given.value("cors-allow-methods", _names, _METHODS),
        given.value("cors-allow-headers", _names, _HEADERS),
        given.value("cors-expose-headers", _names, ""),
        given.value("cors-max-age", number(0, 10 * 365 * 86400), 1728000),
        credentials and origins != _ALL,
    )
    if enabled and credentials and origins == _ALL:
        given.refuse("cors-allow-credentials", "is not for all origins: list those that may in cors-allow-origin")
    return found if enabled else None


def _origins(text: str) -> tuple[str, ...]:
    origins = tuple(dict.fromkeys(one.lower() for one in listed(text)))
    if ANY in origins:
        return _ALL
    if not origins or len(origins) > MOST_ORIGINS:
        raise Refused(f"must be * or list from 1 to {MOST_ORIGINS} origins")
    for origin in origins:
        match = _ORIGIN.fullmatch(origin)
        if match is None or not is_dns_name(match["host"]):
            raise Refused("must list origins such as https://shop.example or https://*.shop.example:8443")
    return origins


def _names(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9\-_*, ]*", text):
        raise Refused("must list names between commas")
    return ", ".join(listed(text))
