"""Where clients may come from: ranges of addresses that are let in, and ranges that are not."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Final

import msgspec

from aggregator.traffic.annotations.given import Given, Refused, listed

ANNOTATIONS: Final[Mapping[str, str]] = {
    "whitelist-source-range": "Ranges of addresses (CIDR, between commas) that clients may come from (403).",
    "allowlist-source-range": "As whitelist-source-range; where both are given, either lets in.",
    "denylist-source-range": "Ranges of addresses that clients must not come from (403).",
}


class SourceRanges(msgspec.Struct, frozen=True, gc=False):
    """Ranges `<address>/<bits>`: clients are in one of `allowed` (empty: anywhere), and in none of `denied`."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


EVERYWHERE: Final = SourceRanges()


def source_ranges(given: Given) -> SourceRanges:
    """What an Ingress says of where clients may come from."""
    allowed = (
        *given.protection("allowlist-source-range", _ranges, ()),
        *given.protection("whitelist-source-range", _ranges, ()),
    )
    denied = given.protection("denylist-source-range", _ranges, ())
    return SourceRanges(tuple(dict.fromkeys(allowed)), denied) if allowed or denied else EVERYWHERE


def _ranges(text: str) -> tuple[str, ...]:
    found = []
    for one in listed(text):
        try:
            if "%" in one:
                raise ValueError("a zone is of one machine")
            found.append(str(ip_network(one, strict=False)))
        except ValueError:
            raise Refused(f"must be ranges as 10.0.0.0/8, 2001:db8::/32, and {one[:60]!r} is none") from None
    if not found:
        raise Refused("must name a range")
    return tuple(dict.fromkeys(found))
