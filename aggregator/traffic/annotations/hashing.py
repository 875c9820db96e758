"""Which endpoint a request goes to, by what it says: those that say the same go to the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from aggregator.traffic.annotations.given import Given, Refused, flag

ANNOTATIONS: Final[Mapping[str, str]] = {
    "upstream-hash-by": "Sends requests with the same value to the same endpoint.",
    "upstream-hash-by-subset": "Whether a part of the endpoints is chosen.",
}
MOST_PARTS: Final = 8
_VARIABLE: Final = re.compile(r"\$(?:\{([a-z0-9_]+)\}|([a-z0-9_]+))", re.IGNORECASE)

Part: TypeAlias = tuple[Literal["header", "cookie", "query", "address"], str]
"""What of a request counts, and its name."""


def hash_parts(given: Given) -> tuple[Part, ...]:
    """What of a request decides on its endpoint, in its order; () for what all have."""
    if given.value("upstream-hash-by-subset", flag, False):
        detail = "an endpoint is chosen, never a part of them"
        given.refuse("upstream-hash-by-subset", detail, "AnnotationUnsupported")
    return given.value("upstream-hash-by", _parts, ())


def _parts(text: str) -> tuple[Part, ...]:
    if not text:
        return ()
    found = [_part((match[1] or match[2]).lower()) for match in _VARIABLE.finditer(text)]
    if not 0 < len(found) <= MOST_PARTS or "$" in _VARIABLE.sub("", text):
        raise Refused(f"must hold one to {MOST_PARTS} variables")
    return tuple(dict.fromkeys(found))


def _part(name: str) -> Part:
    if name == "request_uri":
        return "header", ":path"
    if name == "host":
        return "header", ":authority"
    if name == "remote_addr":
        return "address", ""
    kind, _, rest = name.partition("_")
    if rest and kind == "http":
        return "header", rest.replace("_", "-")
    if rest and kind == "cookie":
        return "cookie", rest
    if rest and kind == "arg":
        return "query", rest
    raise Refused(f"and ${name[:40]} is no variable of those that count")
