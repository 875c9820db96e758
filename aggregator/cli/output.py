"""What commands print is laid out here: tables, ages, colours, and names that come from anywhere.

In: texts, moments. Out: lines. Data goes to stdout, notes for people to stderr. What clusters, proxies and API servers
say is escaped, so that it is one cell of one line and says nothing to the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

EMPTY = "-"
"""What stands in a cell where there is nothing."""

_GAP = "  "
_CODES = {"red": "31", "green": "32", "yellow": "33"}


class Format(StrEnum):
    """How data is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def note(text: str) -> None:
    """A line for people, beside the data."""
    print(printable(text), file=sys.stderr)


def printable(text: str) -> str:
    """The text with everything escaped that is not printed as itself: control characters, line ends, changes of
    direction.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cut(text: str, most: int) -> str:
    """The text, or as much of it as has room, which then says that there is more."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def table(rows: Sequence[Sequence[str]], column: int = 0, colours: Mapping[str, str] | None = None) -> list[str]:
    """The rows as lines, in columns as wide as they need to be; what stands in `column` has the colour of its text."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[-1] = row[-1]
        colour = (colours or {}).get(row[column])
        if colour:
            cells[column] = cells[column].replace(row[column], f"\x1b[{_CODES[colour]}m{row[column]}\x1b[0m", 1)
        lines.append(_GAP.join(cells))
    return lines


def colours_wanted(*, forbidden: bool) -> bool:
    """Whether stdout is a terminal that shows colours, and nobody has forbidden them (https://no-color.org)."""
    return (
        not forbidden and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()
    )


def age(seconds: float) -> str:
    """A length of time in one unit, as exact as a person needs it: 0.2s, 94s, 14m, 5h, 27d."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    for unit, length, until in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if round(seconds / length) < until:
            return f"{round(seconds / length)}{unit}"
    return f"{seconds / 86400:.0f}d"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago or how far ahead a moment is."""
    if moment is None:
        return EMPTY
    ahead = (moment - now).total_seconds()
    return f"in {age(ahead)}" if ahead > 0 else f"{age(-ahead)} ago"


def clock(moment: datetime, now: datetime) -> str:
    """A moment as a person reads it: the time of today, else date and time; UTC."""
    return moment.strftime("%H:%M:%SZ" if moment.date() == now.date() else "%Y-%m-%dT%H:%M:%SZ")
