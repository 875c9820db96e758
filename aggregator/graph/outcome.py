"""Outcome: what a derivation yields, a value or the reason why there is none.

A `Withheld` ends where it arises: the engine counts it and stores nothing, so a reason costs no memory and can still be
told at any time by running the derivation again (`Graph.why`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

V = TypeVar("V")


class Withheld(msgspec.Struct, frozen=True, gc=False):
    """Nothing is derived from this item, and this is why.

    `code` is a stable CamelCase word of the catalogue in `aggregator.findings`; `detail` is for people.
    """

    code: str
    detail: str = ""


class _Missing(Enum):
    """The type of `MISSING`: the absence of a value, where None may be a value."""

    MISSING = "missing"


MISSING: Final = _Missing.MISSING
Missing: TypeAlias = Literal[_Missing.MISSING]

Outcome: TypeAlias = V | Withheld
"""A value of type V, or the reason why there is none."""
