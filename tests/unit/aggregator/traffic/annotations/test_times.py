"""How long requests may take, and which failures are tried again, as annotations want it."""

from __future__ import annotations

import pytest

from aggregator.traffic.annotations.retries import Retries
from aggregator.traffic.annotations.timeouts import Timeouts
from tests.kit.annotations import asked, left, told


def test_without_annotations_there_is_no_limit_and_nothing_is_tried_again_beyond_the_default() -> None:
    assert (asked().timeouts, asked().retries) == (Timeouts(), None)


def test_the_longer_of_two_times_without_anything_moving_counts() -> None:
    assert asked(proxy_read_timeout="5").timeouts == Timeouts(idle=5)
    assert asked(proxy_read_timeout="5s", proxy_send_timeout="7", timeout="9").timeouts == Timeouts(7, 9)


@pytest.mark.parametrize("value", ["0", "-1", "", "1.5", "1m", "s", "604801", "99999999999999", "٣"])
def test_a_time_that_is_none_limits_nothing(value: str) -> None:
    assert left(timeout=value).timeouts == Timeouts()


@pytest.mark.parametrize(
    ("words", "tries", "found"),
    [
        ("error timeout", "3", Retries(True, True, (), 3, False)),
        ("http_503 http_502 non_idempotent", "2", Retries(False, False, (502, 503), 2, True)),
        ("invalid_header", "0", Retries(True, False, (), 10, False)),
        ("error http_500 off", "5", Retries(False, False, (), 5, False)),
        ("error http_500", "1", Retries(False, False, (), 1, False)),
    ],
)
def test_failures_that_are_tried_again(words: str, tries: str, found: Retries) -> None:
    assert asked(proxy_next_upstream=words, proxy_next_upstream_tries=tries).retries == found


def test_what_is_said_of_tries_alone_is_about_errors_and_stalls() -> None:
    assert asked(proxy_next_upstream_tries="4").retries == Retries(True, True, (), 4, False)


@pytest.mark.parametrize("words", ["", "errors", "error,timeout", "http_200", "error error x"])
def test_words_that_mean_nothing_are_told(words: str) -> None:
    assert told(proxy_next_upstream=words) == [("AnnotationInvalid", "proxy-next-upstream")]


def test_tries_are_not_limited_in_time() -> None:
    assert asked(proxy_next_upstream_timeout="0").retries is None
    assert told(proxy_next_upstream_timeout="5") == [("AnnotationInvalid", "proxy-next-upstream-timeout")]
    assert told(proxy_next_upstream_tries="11") == [("AnnotationInvalid", "proxy-next-upstream-tries")]
