"""Which objects are taken of a cluster that has more of them than it may.

In: what a watch or a list brings of one kind. Out: what of it is written. What is held already goes first, then what
comes first; the others are withheld until there is room again, when a new list brings them in. While a cluster is far
from its limit nothing is counted object by object: what changes is taken to be new until that would be too much. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from watchers.facts import Fact, ObjectKey

Change = TypeVar("Change", bound=Fact | None)

MOST_WITHHELD = 10_000
"""So many objects of a kind that are withheld are known by name."""

_MARGIN = 100
# A hundredth of the limit has to be free before what was withheld is asked for again.


class Holdings:
    """What one credential holds of a cluster, by kinds, and how many objects that may be."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.quotas: list[Quota] = []

    @property
    def total(self) -> int:
        """Objects of all kinds, or more than that unless they were counted."""
        return sum([quota.count for quota in self.quotas])

    def count(self) -> None:
        """From now on they are counted."""
        for quota in self.quotas:
            quota.count_exactly()


class Quota:
    """The objects of one kind: ``held`` gives the keys of those that are held, ``holds`` whether one is."""

    def __init__(
        self, holdings: Holdings, held: Callable[[], Iterable[object]], holds: Callable[[ObjectKey], bool]
    ) -> None:
        self.count = 0
        self._holdings = holdings
        self._held = held
        self._holds = holds
        self._exact = False
        self._withheld: set[ObjectKey] = set()
        # Those that are not known by name.
        self._others = 0
        holdings.quotas.append(self)

    @property
    def withheld(self) -> int:
        """How many objects are not taken, as far as is known."""
        return len(self._withheld) + self._others

    @property
    def reason(self) -> str:
        """What people are told while objects are withheld, else ""."""
        if not self.withheld:
            return ""
        most = f"{self._holdings.most:,}"
        return f"the cluster holds {most} objects, as many as --cluster-objects allows; more are not taken"

    @property
    def has_room(self) -> bool:
        """Whether objects are withheld for which there is room now."""
        most = self._holdings.most
        return self.withheld > 0 and self._holdings.total <= most - max(1, most // _MARGIN)

    def count_exactly(self) -> None:
        """Counts what is held, and goes on counting object by object."""
        if not self._exact:
            self._exact = True
            self.count = sum(1 for _ in self._held())

    def admit(self, changes: Mapping[ObjectKey, Fact | None]) -> Mapping[ObjectKey, Fact | None]:
        """Those changes that are to be written."""
        holdings = self._holdings
        if not self._exact and not self._withheld:
            if holdings.total + len(changes) <= holdings.most:
                self.count += len(changes)
                return changes
            holdings.count()
        self.count_exactly()
        admitted: dict[ObjectKey, Fact | None] = {}
        room = holdings.most - holdings.total
        for key, fact in changes.items():
            held = self._holds(key)
            if fact is None:
                self._withheld.discard(key)
                change = -1 if held else 0
            elif held:
                change = 0
            elif room > 0:
                self._withheld.discard(key)
                change = 1
            else:
                self._withhold(key)
                continue
            admitted[key] = fact
            self.count += change
            room -= change
        return admitted

    def gather(self, facts: Iterable[tuple[ObjectKey, Change]], gathered: int) -> list[tuple[ObjectKey, Change]]:
        """Those of a list's objects that are to be kept until it is complete; ``gathered`` of it are kept already.

        Beyond the limit only what is held already is, so a list takes no more memory than twice the limit.
        """
        kept = list(facts)
        room = max(0, self._holdings.most - gathered)
        if len(kept) <= room:
            return kept
        admitted = kept[:room]
        for keyed in kept[room:]:
            if keyed[1] is None or self._holds(keyed[0]):
                admitted.append(keyed)
            else:
                self._withhold(keyed[0])
        return admitted

    def begin(self) -> None:
        """A list begins."""
        self._withheld.clear()
        self._others = 0

    def admit_all(self, items: dict[ObjectKey, Fact]) -> dict[ObjectKey, Fact]:
        """Those objects of a complete list that are to be all that is held of the kind."""
        holdings = self._holdings
        self._exact = self._exact and holdings.total - self.count + len(items) > holdings.most // 2
        if holdings.total - self.count + len(items) > holdings.most:
            self._exact = False
            holdings.count()
            room = max(0, holdings.most - (holdings.total - self.count))
            keys = [key for key in items if self._holds(key)]
            known = set(keys)
            keys += [key for key in items if key not in known]
            for key in keys[room:]:
                self._withhold(key)
            items = {key: items[key] for key in keys[:room]}
        self.count = len(items)
        return items

    def _withhold(self, key: ObjectKey) -> None:
        if len(self._withheld) < MOST_WITHHELD:
            self._withheld.add(key)
        elif key not in self._withheld:
            self._others += 1
