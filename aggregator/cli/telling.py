"""What the commands that ask a control plane do with its answers: about one thing or many, in every format.

In: answers of replicas (asking). Out: data for stdout in lines, notes on stderr, and ends of a command (see exits).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec
import typer

from aggregator.cli.asking import MISSING, Options, asked, document, fail, replicas_of, told
from aggregator.cli.exits import FINDINGS, UNREACHABLE, USAGE
from aggregator.cli.output import Format, colours_wanted, note, printable, table

if TYPE_CHECKING:
    from typing import Any

    from aggregator.cli.control_plane import Answer


class _Item(Protocol):
    @property
    def replica(self) -> str:
        """The replica whose view this is."""


T = TypeVar("T", bound=_Item)
T_contra = TypeVar("T_contra", bound=_Item, contravariant=True)


class Tables(Protocol[T_contra]):
    """A module that makes tables of such items."""

    @property
    def COLOURS(self) -> Mapping[str, str]:  # noqa: N802
        """Colours of states."""

    @property
    def STATE_COLUMN(self) -> int:  # noqa: N802
        """Where the state stands in a row."""

    def rows(self, items: Sequence[T_contra], /, *, wide: bool, replicas: bool, headers: bool) -> list[list[str]]:
        """The cells; `replicas` adds a column that says whose view a row is."""


class One(Generic[T]):
    """One thing as those replicas see it that know of it; `unreachable`: some replica did not answer."""

    def __init__(self, seen: list[T], *, unknown: bool, unreachable: bool) -> None:
        self.seen = seen
        self.unreachable = unreachable
        self._unknown = unknown

    def agreed(self) -> None:
        """Ends the command where some replica knows nothing of it: that is something to look at, too."""
        if self._unknown:
            raise typer.Exit(FINDINGS)


def about_one(
    options: Options, path: str, read: Callable[[Answer], Sequence[T]], why_missing: Callable[[Answer], str]
) -> One[T]:
    """What the replicas say of one thing; ends the command if none says anything."""
    answers = asked(replicas_of(options), path)
    unreachable = told(answers)
    missing = [answer for answer in answers if answer.status == MISSING]
    seen = [one for answer in answers if answer.status == 200 for one in read(answer)]
    for answer in missing:
        note(f"{answer.where}: {why_missing(answer)}")
    if not seen:
        raise typer.Exit(USAGE if missing else UNREACHABLE)
    return One(seen, unknown=bool(missing), unreachable=unreachable)


def decoded(answer: Answer, kinds: Any) -> Any:
    """The document in an answer; ends the command if it is none of these kinds."""
    try:
        return msgspec.json.decode(answer.body, type=kinds)
    except (msgspec.DecodeError, UnicodeDecodeError):
        fail(UNREACHABLE, f"{answer.where} is no admin port of a control plane of this version; --admin names another")


def shown(
    items: Sequence[T],
    options: Options,
    *,
    headers: bool,
    name: Callable[[T], str],
    listed: Callable[[], msgspec.Struct],
    tables: Tables[T],
) -> Iterator[str]:
    """The output for several, in lines; `listed` is the document with all of them."""
    match options.format:
        case Format.JSON | Format.YAML:
            yield document(listed(), options.format)
        case Format.NAME:
            yield from (f"{each}\n" for each in dict.fromkeys(printable(name(one)) for one in items))
        case Format.TABLE | Format.WIDE:
            several = len({one.replica for one in items}) > 1
            made = tables.rows(items, wide=options.format is Format.WIDE, replicas=several, headers=headers)
            colours = tables.COLOURS if colours_wanted(forbidden=options.no_colour) else None
            yield from (f"{line}\n" for line in table(made, tables.STATE_COLUMN, colours))


def need_attention(names: Collection[str], total: int, kind: str) -> None:
    """Says of how many of all, or of which, somebody has to do something about."""
    if names:
        verb = "needs" if len(names) == 1 else "need"
        who = f"{len(names)} of {total} {kind}s" if total > 1 else f"{kind} {min(names)}"
        note(f"{who} {verb} attention (exit {FINDINGS})")
