"""The inside of a table: rows in partitions, and which partitions there are.

A partition comes with its first row or with the first cursor that names it, and goes, with all that was kept for it,
once it is empty, everyone has read that it is, and no cursor names it. `Table` writes here and `Cursor` reads; nobody
else does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from aggregator.cache.changelog import ChangeLog
from aggregator.cache.merkle import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aggregator.cache.changelog import Reader
    from aggregator.cache.cursor import Batch, Cursor

K = TypeVar("K", bound="tuple[str, ...]")
V = TypeVar("V")


class Partition(Generic[K, V]):
    """The rows under one first key part, their change log, and their tree once a root was asked for."""

    __slots__ = ("held", "log", "name", "rows", "shared", "tree")

    def __init__(self, name: str, revision: int) -> None:
        self.name = name
        self.rows: dict[K, V] = {}
        self.log: ChangeLog[K, V] = ChangeLog(revision)
        self.tree: Tree[K, V] | None = None
        self.held = 0
        """Cursors on this partition alone; they keep it even when it is empty."""
        self.shared: tuple[tuple[int, int], Batch[K, V]] | None = None
        """The last batch taken up to the newest revision, and the place (position, causes known) it was taken from."""

    def write(self, changes: list[tuple[K, V | None]], revision: int, cause: object) -> Collection[Reader[K, V]]:
        """Make changes that are known to differ from the rows; returns the readers that had nothing to read before."""
        rows, tree = self.rows, self.tree
        if tree is not None:
            for key, _ in changes:
                tree.note(key, rows.get(key))
            if tree.stale(len(rows)):
                self.tree = None
        for key, value in changes:
            if value is None:
                del rows[key]
            else:
                rows[key] = value
        if not rows:
            rows.clear()  # an emptied dict keeps the memory of its largest size, a cleared one does not
        self.shared = None
        return self.log.record(changes, revision, cause)

    def up_to_date(self, digest: Callable[[V], bytes]) -> Tree[K, V]:
        """The tree of the rows, made now if there was none."""
        if self.tree is None:
            self.tree = Tree(self.rows, digest)
        return self.tree


class Partitions(Generic[K, V]):
    """The partitions of one table by name, and the cursors that read all of them."""

    __slots__ = ("by_name", "revision", "roaming")

    def __init__(self) -> None:
        self.by_name: dict[str, Partition[K, V]] = {}
        self.roaming: dict[Cursor[K, V], None] = {}
        self.revision = 0
        """The revision of the table's last change."""

    def has_rows(self, name: str | None) -> bool:
        """True if there is a row in that partition, or in any."""
        if name is None:
            return any(partition.rows for partition in self.by_name.values())
        partition = self.by_name.get(name)
        return partition is not None and bool(partition.rows)

    def open(self, name: str) -> Partition[K, V]:
        """The partition of that name, made if there is none, with everyone who reads all partitions reading it too."""
        partition = self.by_name.get(name)
        if partition is None:
            partition = self.by_name[name] = Partition(name, self.revision)
            for cursor in self.roaming:
                cursor.follow(partition)
        return partition

    def drop_if_unused(self, partition: Partition[K, V]) -> None:
        """Leave nothing of a partition that is empty, that all have read to the end, and that nobody reads by name."""
        if partition.rows or partition.held or not partition.log.idle:
            return
        if self.by_name.get(partition.name) is partition:
            del self.by_name[partition.name]
        for reader in partition.log.dismiss():
            reader.cursor.forget(partition)
