"""A journal that fails and is raced on demand, over any other: for tests of whoever reads and writes journals.

It counts operations, raises before or after carrying one out (after: the answer is lost, the work was done), and lets
something else happen just before an operation, as another process might.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from aggregator.cache.journal import Entry, Gap, Journal, Position, Records, Snapshot

Operation = Literal["claim", "append", "snapshot", "values", "read"]


class Unreachable(ConnectionError):
    """What a flaky journal raises."""


class FlakyJournal:
    """See the module. `calls` counts operations, `keys_asked` the keys whose values were asked for."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._refused: Counter[Operation] = Counter()
        self._unanswered: Counter[Operation] = Counter()
        self._races: dict[Operation, list[Callable[[], Awaitable[object]]]] = {}
        self.calls: Counter[Operation] = Counter()
        self.keys_asked: list[bytes] = []
        self.down = False

    def refuse(self, operation: Operation, times: int = 1) -> None:
        """Fail the next calls of an operation before anything is done."""
        self._refused[operation] += times

    def lose_answer(self, operation: Operation, times: int = 1) -> None:
        """Carry the next calls of an operation out and fail nevertheless."""
        self._unanswered[operation] += times

    def race(self, operation: Operation, other: Callable[[], Awaitable[object]]) -> None:
        """Run `other` just before the next call of an operation; several run before one call each, in order."""
        self._races.setdefault(operation, []).append(other)

    def calm(self) -> None:
        """From now on nothing fails and nobody races."""
        self._refused.clear()
        self._unanswered.clear()
        self._races.clear()
        self.down = False

    async def _before(self, operation: Operation) -> None:
        self.calls[operation] += 1
        if races := self._races.get(operation):
            await races.pop(0)()
        if self.down or self._refused[operation]:
            self._refused[operation] -= not self.down
            raise Unreachable(operation)

    def _after(self, operation: Operation) -> None:
        if self._unanswered[operation]:
            self._unanswered[operation] -= 1
            raise Unreachable(f"{operation}: the answer was lost")

    async def claim(self, owner: str, epoch: int) -> bool:
        """See Journal."""
        await self._before("claim")
        complete = await self._journal.claim(owner, epoch)
        self._after("claim")
        return complete

    async def append(self, owner: str, epoch: int, entries: Sequence[Entry], *, complete: bool = False) -> Position:
        """See Journal."""
        await self._before("append")
        position = await self._journal.append(owner, epoch, entries, complete=complete)
        self._after("append")
        return position

    async def snapshot(self, owner: str) -> Snapshot:
        """See Journal."""
        await self._before("snapshot")
        snapshot = await self._journal.snapshot(owner)
        self._after("snapshot")
        return snapshot

    async def values(self, owner: str, keys: Sequence[bytes]) -> list[tuple[bytes, bytes] | None]:
        """See Journal."""
        await self._before("values")
        self.keys_asked += keys
        values = await self._journal.values(owner, keys)
        self._after("values")
        return values

    async def read(self, owner: str, position: Position, limit: int) -> Records | Gap:
        """See Journal."""
        await self._before("read")
        records = await self._journal.read(owner, position, limit)
        self._after("read")
        return records
