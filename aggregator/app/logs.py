"""Sets up logging: lines of text for people, or one JSON object a line for machines.

In: records of the standard library's logging, from every package and library. Out: lines on stderr. The message is the
name of an event and stays stable (`cluster synced`, `resource rejected`); what it is about stands beside it in keys:
`logger.info("cluster synced", extra={"cluster": "west", "seconds": 1.2})`. The usual keys are cluster, namespace, name,
proxy and type; since logging keeps `name` for itself, it is passed as `object_name`. Tokens and private keys are never
logged; what looks like one is blanked here all the same.
"""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

_USUAL = ("cluster", "namespace", "name", "proxy", "type")
_RENAMED = {"object_name": "name"}
# What logging itself puts into a record (and uvicorn, for its colours), and the keys that are ours.
_OTHERS = {
    *vars(logging.makeLogRecord({})),
    "message",
    "asctime",
    "taskName",
    "color_message",
    "time",
    "level",
    "event",
    "error",
}
# PEM blocks, also cut-off ones; JSON Web Tokens; whatever follows "Bearer".
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)"
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"
    r"|(?i:(?<=\bbearer\s))[^\s\"',;]+",
    re.DOTALL,
)
_PLAIN = re.compile(r"[\w./:@+%*-]+")
# They say on each start and stop what the process says itself.
_QUIET = ("uvicorn", "asyncio")


def configure(form: str, level: str, stream: TextIO | None = None) -> None:
    """Sends everything from `level` on to `stream` (stderr unless given), as `text` or `json`, and nowhere else."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    logging.captureWarnings(True)


class JsonLines(logging.Formatter):
    """`{"time": ..., "level": ..., "event": ..., keys ..., "error": traceback}`."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": _redact(record.getMessage()),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = _redact(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


class TextLines(logging.Formatter):
    """`2026-01-02T03:04:05.678Z info  cluster synced cluster=west seconds=1.2`; a traceback follows on its own lines.

    Control characters of values are escaped: names come from clusters and proxies, and may not forge a second line.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line, and more lines for a traceback."""
        parts = [_time(record), f"{record.levelname.lower():<5}", _one_line(_redact(record.getMessage()))]
        parts += [f"{key}={_quoted(value)}" for key, value in _fields(record).items()]
        line = " ".join(parts)
        return f"{line}\n{_redact(self.formatException(record.exc_info))}" if record.exc_info else line


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The keys of a record, the usual ones first."""
    given = {_RENAMED.get(key, key): value for key, value in vars(record).items() if key not in _OTHERS}
    ordered = [key for key in _USUAL if key in given] + [key for key in given if key not in _USUAL]
    return {key: _value(given[key]) for key in ordered}


def _value(value: object) -> object:
    return value if isinstance(value, bool | int | float) or value is None else _redact(str(value))


def _redact(text: str) -> str:
    return _SECRET.sub("[redacted]", text)


def _quoted(value: object) -> str:
    text = _one_line(str(value))
    return text if _PLAIN.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'


def _one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
