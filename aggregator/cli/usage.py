"""Wrong usage of the commands that ask a control plane: exit code 64, since theirs of 2 says that something is wrong
with what was asked about.

In: the command line. Out: the same messages as of every command.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from aggregator.cli.exits import USAGE

_LIBRARY_USAGE = 2


class AskingGroup(TyperGroup):
    """A command and its subcommands, whose wrong usage ends with 64."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Reads the options of the command."""
        with _wrong_usage():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command, or reads the options of a subcommand and runs that."""
        with _wrong_usage():
            return super().invoke(ctx)


@contextmanager
def _wrong_usage() -> Iterator[None]:
    try:
        yield
    except typer.Exit:
        raise
    except Exception as error:
        # The library's errors of usage carry their exit code; their class is not public.
        if getattr(error, "exit_code", 0) == _LIBRARY_USAGE:
            error.exit_code = USAGE  # type: ignore[attr-defined]
        raise
