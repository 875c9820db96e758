"""Where sources write their facts: the protocol they need of a table, and the cause they give with every write.

The embedding joins the two (aggregator.cache.table.Table is such a sink).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from watchers.facts import Fact, ObjectKey


class Cause(msgspec.Struct, frozen=True, gc=False):
    """Why facts changed: ``objects`` were read from ``source`` ("directory west"), and the news of it was received at
    ``received`` (nanoseconds of Unix time), from which delays are measured.
    """

    received: int
    source: str
    objects: int


class Facts(Protocol):
    """A table of facts. Writing what it holds already changes nothing and wakes nobody."""

    def apply(self, changes: Iterable[tuple[ObjectKey, Fact | None]], cause: object = None) -> int:
        """Sets facts, or deletes those given as None; returns the table's revision."""
        ...

    def replace(self, prefix: tuple[str, ...], items: Iterable[tuple[ObjectKey, Fact]], cause: object = None) -> int:
        """Makes the items all there is under the prefix, in one revision, which it returns."""
        ...
