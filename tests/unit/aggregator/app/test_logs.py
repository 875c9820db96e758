from __future__ import annotations

import io
import json
import logging
import re
import warnings
from typing import TYPE_CHECKING

import pytest

from aggregator.app import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("test.logs")
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.fixture
def text() -> io.StringIO:
    stream = io.StringIO()
    logs.configure("text", "info", stream)
    return stream


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    return stream


def test_a_json_line_has_time_level_event_and_the_keys(lines: io.StringIO) -> None:
    logger.info("cluster synced", extra={"seconds": 1.5, "home": True, "cluster": "west", "object_name": "shop"})
    line = json.loads(lines.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "info", "event": "cluster synced", "cluster": "west", "name": "shop", "seconds": 1.5, "home": True,
    }  # fmt: skip


def test_the_usual_keys_come_first_in_their_order(text: io.StringIO) -> None:
    logger.info(
        "rejected", extra={"why": 1, "type": "t", "proxy": "p", "object_name": "n", "namespace": "s", "cluster": "c"}
    )
    assert text.getvalue().endswith(" info  rejected cluster=c namespace=s name=n proxy=p type=t why=1\n")


def test_a_key_cannot_replace_time_level_or_event(lines: io.StringIO) -> None:
    logger.info("event", extra={"level": "x", "event": "y", "time": "z", "error": "e"})
    line = json.loads(lines.getvalue())
    assert (line["level"], line["event"], "error" in line) == ("info", "event", False)


def test_a_value_with_blanks_is_quoted(text: io.StringIO) -> None:
    logger.info("e", extra={"cause": 'said "no"'})
    assert r'cause="said \"no\""' in text.getvalue()


@pytest.mark.parametrize("hostile", ["a\nb", "a\rb", "a\x1b[31mb", "a\x9bb", "a\u2028b", "a\u202eb"])
def test_names_from_clusters_cannot_forge_a_line_or_steer_a_terminal(text: io.StringIO, hostile: str) -> None:
    logger.info("seen %s", hostile, extra={"object_name": hostile})
    written = text.getvalue()
    assert written.endswith("\n")
    assert written[:-1].isprintable()


@pytest.mark.parametrize(
    "secret",
    [
        TOKEN,
        "Bearer abc.def",
        "-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\n-----END EC PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----\nMIIB",
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_what_looks_like_a_secret_is_blanked_everywhere(form: str, secret: str) -> None:
    stream = io.StringIO()
    logs.configure(form, "info", stream)
    try:
        raise ValueError(f"with {secret}")
    except ValueError:
        logger.exception("failed with %s", secret, extra={"cause": f"header {secret}"})
    for part in ("eyJ", "abc.def", "MHcCAQ", "MIIB"):
        assert part not in stream.getvalue()
    assert stream.getvalue().count("[redacted]") >= 3


def test_a_traceback_stays_in_the_one_json_line(lines: io.StringIO) -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        logger.exception("failed")
    (line,) = lines.getvalue().splitlines()
    assert json.loads(line)["error"].endswith("ValueError: boom")


def test_what_is_below_the_level_is_not_logged(text: io.StringIO) -> None:
    logger.debug("detail")
    assert text.getvalue() == ""


def test_libraries_that_announce_every_start_are_quiet(text: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").warning("trouble")
    assert text.getvalue().count("\n") == 1


def test_warnings_become_log_lines(text: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logs.configure("text", "info", text)
        warnings.warn("old", UserWarning, stacklevel=1)
    assert "UserWarning: old" in text.getvalue()
