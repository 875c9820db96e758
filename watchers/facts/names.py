"""Facts about DNS names: what the names that somebody needs resolve to.

Written by the lookups, under (RESOLVER, "ResolvedName", "", the name). They are of no cluster: what a name leads to is
judged from where this process runs.
"""

from __future__ import annotations

import msgspec

from watchers.facts.keys import ObjectKey

RESOLVER = "@dns"
"""In the place of a cluster's id. No cluster can be called so."""


class ResolvedName(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="ResolvedName"):
    """A DNS name and its addresses, IPv4 first, then by value: two answers that differ in order are one fact.

    ``reason`` says what was wrong with the last answer, "" if nothing was; the addresses are then those of the last
    good one, and none if there never was one. ``pending`` while there was no answer at all and it is too early to make
    anything of that.
    """

    addresses: tuple[str, ...]
    reason: str
    pending: bool = False


def name_key(name: str) -> ObjectKey:
    """The key under which the fact about a name stands."""
    return (RESOLVER, "ResolvedName", "", name)
