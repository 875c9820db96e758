"""Conditions as the Gateway API has them: made of the catalogue's words, dated by what the object said before.

A condition that is as it should be has the standard's word for a reason; one that is not has the reason, the meaning
and the cure of the finding behind it. Equal judgements make equal conditions, so nothing is written that stands there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from aggregator.findings import CATALOGUE
from watchers.facts.conditions import Condition, ListenerStatus

ACCEPTED: Final = "Accepted"
PROGRAMMED: Final = "Programmed"
RESOLVED: Final = "ResolvedRefs"
CONFLICTED: Final = "Conflicted"


def good(type_: str, generation: int, message: str = "") -> Condition:
    """It is as it should be."""
    return Condition(type_, "True", type_, message, generation)


def flawed(type_: str, generation: int, code: str) -> Condition:
    """It is not, for this reason of the catalogue."""
    entry = CATALOGUE[code]
    return Condition(type_, "False", entry.reason or code, f"{entry.meaning} {entry.cure}", generation)


def dated(wanted: Iterable[Condition], present: Iterable[Condition]) -> tuple[Condition, ...]:
    """Conditions with the time since when they hold: it moves only with the status, as the standard asks."""
    known = {one.type: one for one in present}
    return tuple(
        [
            msgspec.structs.replace(one, since=known[one.type].since)
            if one.type in known and known[one.type].status == one.status
            else one
            for one in wanted
        ]
    )


def said(wanted: Iterable[Condition], present: Iterable[Condition]) -> bool:
    """Whether all this is said already, whatever else is."""
    known = {_without_time(one) for one in present}
    return all(_without_time(one) in known for one in wanted)


def listeners_said(wanted: tuple[ListenerStatus, ...], present: tuple[ListenerStatus, ...]) -> bool:
    """Whether this is said already of each listener, and nothing of others, which are no more."""
    known = {one.name: one for one in present}
    return len(known) == len(wanted) and all(
        one.name in known and said(one.conditions, known[one.name].conditions) for one in wanted
    )


def _without_time(condition: Condition) -> Condition:
    return msgspec.structs.replace(condition, since="")
