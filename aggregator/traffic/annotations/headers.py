"""Headers that annotations add, set or remove, of requests for the backend and of its answers.

A header to add or set is a line `name value` (quotes around the value are left out); headers to remove stand between
commas. What belongs to the connection or to proxies is not to be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from aggregator.traffic.annotations.expressions import header_value, own_header_name
from aggregator.traffic.annotations.given import Given, Refused, listed

ANNOTATIONS: Final[Mapping[str, str]] = {
    "request-header-control-add": "Adds headers to a request: a line `name value` each.",
    "request-header-control-update": "Sets headers of a request: a line `name value` each.",
    "request-header-control-remove": "Removes headers of a request, named between commas.",
    "response-header-control-add": "Adds headers to an answer: a line `name value` each.",
    "response-header-control-update": "Sets headers of an answer: a line `name value` each.",
    "response-header-control-remove": "Removes headers of an answer, named between commas.",
}

T = TypeVar("T")

MOST: Final = 64
"""Headers that one annotation may name."""


class Changes(msgspec.Struct, frozen=True, gc=False):
    """Headers that are removed, then those added to what there is, then those put in the place of what there is."""

    removed: tuple[str, ...] = ()
    added: tuple[tuple[str, str], ...] = ()
    put: tuple[tuple[str, str], ...] = ()


class Headers(msgspec.Struct, frozen=True, gc=False):
    """What is done to the headers of a request and of its answer."""

    request: Changes
    response: Changes


NONE: Final = Changes()
UNCHANGED: Final = Headers(NONE, NONE)


def headers(given: Given) -> Headers:
    """What an Ingress says of them."""
    found = Headers(_changes(given, "request"), _changes(given, "response"))
    return found if found != UNCHANGED else UNCHANGED


def together(first: Headers, second: Headers) -> Headers:
    """What both say."""
    pairs = ((first.request, second.request), (first.response, second.response))
    request, response = (
        Changes((*one.removed, *other.removed), (*one.added, *other.added), (*one.put, *other.put))
        for one, other in pairs
    )
    return Headers(request, response)


def _changes(given: Given, what: str) -> Changes:
    return Changes(
        given.value(f"{what}-header-control-remove", _names, ()),
        given.value(f"{what}-header-control-add", _pairs, ()),
        given.value(f"{what}-header-control-update", _pairs, ()),
    )


def _names(text: str) -> tuple[str, ...]:
    return _bounded(tuple(own_header_name(name) for name in listed(text)))


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    lines = (line.strip() for line in text.splitlines())
    return _bounded(tuple(_pair(line) for line in lines if line))


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(" ")
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return own_header_name(name), header_value(value)


def _bounded(found: tuple[T, ...]) -> tuple[T, ...]:
    if not 0 < len(found) <= MOST:
        raise Refused(f"must name from 1 to {MOST} headers")
    return found
