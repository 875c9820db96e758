"""Conditions as the Gateway API has them: made of the catalogue's words, dated by what the object said before.

A condition that is as it should be has the standard's word for a reason; one that is not has the reason, the meaning
and the cure of the finding behind it. Equal judgements make equal conditions, so nothing is written that stands there.

Conditions of Services and Gateways have owners one by one: an apply names ours, and others stay. To Istio's kinds a
list of conditions is one value with one owner, so an apply has to name those of others as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from aggregator.findings import CATALOGUE
from watchers.facts.conditions import Condition, Conditions, ListenerStatus, Written

ACCEPTED: Final = "Accepted"
PROGRAMMED: Final = "Programmed"
RESOLVED: Final = "ResolvedRefs"
CONFLICTED: Final = "Conflicted"
LONGEST_MESSAGE: Final = 32_768
"""Characters: the longest an API server takes."""


def good(type_: str, generation: int, message: str = "") -> Condition:
    """It is as it should be. The reason is the type without its domain."""
    return Condition(type_, "True", type_.rpartition("/")[2], message, generation)


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


def one_by_one(wanted: Conditions, present: Conditions, written: Written) -> Conditions | None:
    """The conditions to apply where each has an owner; None where all is said, and nothing of ours is left over."""
    ours = {one.type for one in present if one.type in written}
    if said(wanted, present) and ours <= {one.type for one in wanted}:
        return None
    return dated(wanted, present)


def as_one(wanted: Conditions, present: Conditions, types: Collection[str]) -> Conditions | None:
    """The conditions to apply where the list has one owner: those of others as they stand, and these; None where all is
    said. Of ``types`` nothing stays but what is wanted.
    """
    standing = [one for one in present if one.type in types]
    if said(wanted, standing) and len(wanted) == len(standing):
        return None
    return (*[one for one in present if one.type not in types], *dated(wanted, present))


def listeners_said(wanted: tuple[ListenerStatus, ...], present: tuple[ListenerStatus, ...]) -> bool:
    """Whether this is said already of each listener, and nothing of others, which are no more."""
    known = {one.name: one for one in present}
    return len(known) == len(wanted) and all(
        one.name in known and said(one.conditions, known[one.name].conditions) for one in wanted
    )


def _without_time(condition: Condition) -> Condition:
    return msgspec.structs.replace(condition, since="")
