"""Answers that are replaced: those with some codes, by what a service of their own says instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.traffic.annotations.given import Given, Refused, listed
from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import dns_label

ANNOTATIONS: Final[Mapping[str, str]] = {
    "custom-http-errors": "Statuses (400 to 599, between commas) whose answers default-backend gives instead.",
    "default-backend": "A Service that answers in the place of such answers, on its first port.",
}
MOST_CODES: Final = 64


class ErrorPages(msgspec.Struct, frozen=True, gc=False):
    """Answers with these codes, sorted, come from `service` instead, of the Ingress's namespace."""

    codes: tuple[int, ...]
    service: str


def error_pages(given: Given) -> ErrorPages | None:
    """What an Ingress says of answers to replace; None: they stay."""
    codes = given.value("custom-http-errors", _codes, ())
    service = given.value("default-backend", _service, "")
    if codes and not service:
        detail = "needs default-backend, the Service that answers instead"
        given.refuse("custom-http-errors", detail, "AnnotationUnsupported")
    if service and not codes:
        detail = "is for custom-http-errors alone, and there are none"
        given.refuse("default-backend", detail, "AnnotationUnsupported")
    return ErrorPages(codes, service) if codes and service else None


def _codes(text: str) -> tuple[int, ...]:
    words = listed(text)
    if len(words) > MOST_CODES or not all(len(one) == 3 and one.isascii() and one.isdigit() for one in words):
        raise Refused(f"must be codes of answers, at most {MOST_CODES}")
    codes = {int(one) for one in words}
    if not all(400 <= one <= 599 for one in codes):
        raise Refused("must be codes from 400 to 599")
    return tuple(sorted(codes))


def _service(text: str) -> str:
    try:
        return dns_label(text)
    except InvalidObject:
        raise Refused("must be the name of a Service") from None
