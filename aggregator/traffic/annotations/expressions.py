"""Texts of annotations that go into proxies as they are: regular expressions, names and values of headers, tokens.

A proxy refuses all routes of a host for one text that it cannot take. So what is read here is what it takes: regular
expressions are compiled by the library that proxies compare by (RE2), in the same way.
"""

from __future__ import annotations

import re
from typing import Final

from aggregator.traffic import path_regexes
from aggregator.traffic.annotations.given import Refused

LONGEST_EXPRESSION: Final = 512
"""Characters of a regular expression."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]{1,128}")
_VALUE: Final = re.compile(r"[ -~]{0,1024}")
_HEADER: Final = re.compile(r"[A-Za-z0-9\-_]{1,128}")
_OF_THE_CONNECTION: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers by which two ends of a connection understand each other; who changes one breaks the connection."""
_OF_PROXIES: Final = ("x-envoy-", "x-isthmus-")


def expression(text: str) -> str:
    """A regular expression in the syntax of RE2 that is compared with a whole value."""
    if not text or len(text) > LONGEST_EXPRESSION or not _VALUE.fullmatch(text):
        raise Refused(f"must be a regular expression of at most {LONGEST_EXPRESSION} printable ASCII characters")
    if path_regexes.UNICODE_CLASS.search(text):
        raise Refused("must be a regular expression without classes of Unicode characters")
    if fault := path_regexes.refused(text):
        raise Refused(f"must be a regular expression: it {fault}")
    return text


def token(text: str) -> str:
    """A word as HTTP has them for methods and names of cookies."""
    if not _TOKEN.fullmatch(text):
        raise Refused("must be a word of at most 128 characters, without spaces and separators")
    return text


def header_name(text: str) -> str:
    """The name of a header, in lower case."""
    if not _HEADER.fullmatch(text):
        raise Refused("must be the name of a header: at most 128 letters, digits, - and _")
    return text.lower()


def own_header_name(text: str) -> str:
    """The name of a header that routes may change, in lower case."""
    name = header_name(text)
    if name in _OF_THE_CONNECTION or name.startswith(_OF_PROXIES):
        raise Refused(f"must not be about {name}, which belongs to the connection or to proxies")
    return name


def header_value(text: str) -> str:
    """The value of a header."""
    if not _VALUE.fullmatch(text):
        raise Refused("must be the value of a header: at most 1,024 printable ASCII characters")
    return text


def some_header_value(text: str) -> str:
    """The value of a header, which is not empty."""
    if not text:
        raise Refused("must not be empty")
    return header_value(text)
