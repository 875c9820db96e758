"""Paths of a host: which claim has each, where several want it.

A path goes to the first claim in the total order. Conditions part a path among Ingresses of one namespace only: else
anybody could take the requests of another's path by a condition that they all meet, since rules with more conditions
are tried first. The same goes for a path in any case and its spellings.
"""

from __future__ import annotations

from typing import TypeAlias

from aggregator.traffic.annotations.conditions import Conditions
from aggregator.traffic.ingresses import Claim, PathClaim, PathKind

Held: TypeAlias = tuple[Claim, PathClaim]


class PathClaims:
    """The paths of one host. Claims are offered in the total order."""

    def __init__(self) -> None:
        self._won: dict[tuple[PathKind, str, Conditions], Held] = {}
        self._by_path: dict[tuple[PathKind, str], Held] = {}
        self._by_spelling: dict[tuple[PathKind, str], Held] = {}
        self._in_any_case: dict[tuple[PathKind, str], Held] = {}

    def offer(self, claim: Claim, path: PathClaim) -> Held:
        """Who has the path: the claim itself, or an earlier one."""
        conditions = claim.settings.conditions
        spelling = (path.kind, path.path.lower())
        held = (claim, path)
        before = [self._by_path.get((path.kind, path.path)), self._in_any_case.get(spelling)]
        if conditions.any_case:
            before.append(self._by_spelling.get(spelling))
        for earlier in before:
            if earlier is not None and earlier[0].origin[2] != claim.origin[2]:
                return earlier
        self._by_path.setdefault((path.kind, path.path), held)
        self._by_spelling.setdefault(spelling, held)
        if conditions.any_case:
            self._in_any_case.setdefault(spelling, held)
        return self._won.setdefault((path.kind, path.path, conditions), held)

    def all(self) -> list[Held]:
        """All that were won."""
        return list(self._won.values())
