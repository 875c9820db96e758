"""Who belongs to something, many times over: sets under keys, most of which have one member or two.

The engine keeps one for whoever read an item, and one for whoever shares what was read. A tuple holds few members in a
quarter of a dict's memory and is made in less time; it is replaced as a whole, so a fork that reads through to it needs
no copy. Both keep the order of arrival, and both are to be read alike: iterated, counted, asked for a member.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

Members: TypeAlias = tuple[Hashable, ...] | dict[Hashable, None]
"""Each member once, the newest last."""

FEW = 16
"""So many are looked through faster than they are hashed."""

NOBODY: tuple[Hashable, ...] = ()


def with_member(members: tuple[Hashable, ...], member: Hashable) -> Members:
    """Few members and one more, which is none of them."""
    more = (*members, member)
    return more if len(more) <= FEW else dict.fromkeys(more)


def without_member(members: tuple[Hashable, ...], member: Hashable) -> tuple[Hashable, ...]:
    """Few members less one, if it is one of them."""
    return tuple([one for one in members if one != member])


def kept_as(members: dict[Hashable, None]) -> Members:
    """How these are to be kept: a dict that has lost most of its members has few."""
    return tuple(members) if len(members) <= FEW // 2 else members
