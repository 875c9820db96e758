"""JSON that can be read, made of JSON that cannot for the fault of one value in it.

API servers store what their clients send: objects nested deeper than our decoder goes, in fields nobody here reads, and
what passes for text. One such object must not spoil the list it stands in, so `kinds` and the reader of watch events
try once more with what comes from here. Only ever called after a failure. Pure.
"""

from __future__ import annotations

import re

DEEPEST = 100
"""Brackets around a value that is kept. No field that is read has more than twenty."""

_HOPELESS = 10_000
"""No API server stores what is nested deeper: it could not read it either."""
_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{}])', re.DOTALL)


def repaired(data: bytes) -> bytes:
    """The same JSON, with null for whatever is nested too deeply and U+FFFD for what is no UTF-8.

    Takes a time that is linear in its length. What is no JSON at all does not become any.
    """
    text = data.decode(errors="replace").encode()
    pieces: list[bytes] = []
    kept_from = end = depth = 0
    while match := _BRACKET.match(text, end):
        end = match.end()
        if match[1] in b"[{":
            depth += 1
            if depth > _HOPELESS:
                return text
            if depth == DEEPEST + 1:
                pieces += (text[kept_from : end - 1], b"null")
        else:
            if depth == DEEPEST + 1:
                kept_from = end
            depth -= 1
    return text if depth > DEEPEST else b"".join((*pieces, text[kept_from:]))
