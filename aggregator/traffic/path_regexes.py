"""Paths that are regular expressions: what they mean, and which of them a proxy would take.

In: paths as Ingresses have them. Out: whole patterns in the syntax of RE2, or why there is none. Proxies compare by RE2
and refuse what it does not compile or what compiles to too large a program, and with it all routes of the host. So the
same library compiles each pattern here, in the same way, before a proxy is told of it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

LONGEST: Final = 1024
"""Bytes of a path."""
MOST: Final = 256
"""Paths of one Ingress that may be regular expressions: the worst takes 2 ms to compile, here and in every proxy."""
LARGEST: Final = 1000
"""Instructions of a compiled pattern. Proxies are started with this limit (aggregator.operate.bootstrap), and it bounds
what comparing one byte of a request's path may cost."""

UNICODE_CLASS: Final = re.compile(r"\\[pP]")
"""Takes 10 ms to compile, and there is nothing for it to match: what is not ASCII is escaped in paths."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9/_~%@:!;=,&'-]{1,900}")
"""What stands for itself, an instruction for each character, and need not be compiled."""
_MEMORY: Final = 1 << 18
"""Bytes that compiling one pattern may take; twice what the largest need."""


def pattern(path: str) -> str:
    """The whole pattern: what the path describes, in any case, at the beginning of a request's path."""
    return f"(?i)(?:{path}).*"


@lru_cache(maxsize=4096)
def problem(path: str) -> str:
    """Why a path cannot be used as a regular expression; "" if it can."""
    if len(path) > LONGEST:
        return f"has more than {LONGEST:,} characters"
    if not (path.isascii() and path.isprintable()):
        return "holds characters that no path of a request has"
    if _PLAIN.fullmatch(path):
        return ""
    if UNICODE_CLASS.search(path):
        return "names a class of Unicode characters, of which no path of a request has any"
    # By itself as well, lest it closes the group of the whole pattern.
    return refused(path) or refused(pattern(path))


@lru_cache(maxsize=4096)
def groups(path: str) -> int:
    """How many groups a path has that can be used."""
    import re2  # late, as below

    found: int = re2.compile(pattern(path)).groups
    return found


def refused(text: str) -> str:
    """Why a proxy would not take this text as a regular expression, of whatever it is to be compared with; "" if it
    would.
    """
    # Here and not above: few meshes have such a path, and the library takes 3 MB.
    import re2

    options = re2.Options()
    # As proxies do. They compare bytes, so that `.` is one of them.
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        size = re2.compile(text.encode(), options).programsize
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        return "is no regular expression of RE2: " + reason.decode("latin-1")[:160]
    return f"is too large a regular expression ({size:,} instructions of {LARGEST:,})" if size > LARGEST else ""
