"""Paths as regular expressions: which are taken, and that none takes long to be looked at."""

from __future__ import annotations

import time

import pytest

from aggregator.traffic.path_regexes import pattern, problem


@pytest.mark.parametrize(
    "path",
    ["/", "/a.b/(c|d)/?$", "/x(/|$)(.*)", "/(?:v1|v2)/\\d+/[^/]*", "/{2}", "/" + "a" * 890, "/a(?-i:B)", "/(?P<n>x)"],
)
def test_regular_expressions_are_taken(path: str) -> None:
    assert problem(path) == ""


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/a(", "missing )"),
        ("/a)(b", "unexpected )"),  # which would be one in the middle of the whole pattern
        ("/\\Qa", "missing )"),  # and what would swallow the rest of it
        ("/a(?=b)", "invalid perl operator"),
        ("/(a)\\1", "invalid escape sequence"),
        ("/a**", "bad repetition operator"),
        ("/a{1001}", "invalid repetition size"),
        ("/\\pL", "Unicode"),
        ("/\\P{Greek}", "Unicode"),
        ("/\xe4", "characters"),
        ("/a\nb", "characters"),
        ("/[ab]{500}[cd]{600}", "too large"),
        ("/" + "(a{1,900})" * 90, "too large"),
        ("/" + "a" * 1024, "more than 1,024 characters"),
    ],
)
def test_what_proxies_would_refuse_is_refused_with_the_reason(path: str, said: str) -> None:
    assert said in problem(path)


def test_the_whole_pattern_holds_the_path_together() -> None:
    assert pattern("/a|/b") == "(?i)(?:/a|/b).*"


@pytest.mark.parametrize(
    "atom", ["[^/]", "\\W", "\\D", "[[:^alpha:]]", "\\pL", "\\C", "([^/]{0,100})", "(a*)*", "[^\\W]", "(?i)k"]
)
def test_none_takes_long_to_be_looked_at(atom: str) -> None:
    path = "/" + atom * (1000 // len(atom))
    problem.cache_clear()
    began = time.thread_time()
    problem(path)
    assert time.thread_time() - began < 0.05
