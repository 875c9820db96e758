"""The address book of the view of addresses, for ztunnels that are told only what they ask for.

In: the resources Table, through a cursor. Out: the book, for subscriptions to ask. One for all streams, made some
resources at a time when the first of them needs it, kept as long as one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aggregator.app.aggregate import Tables
from aggregator.cache.table import Cursor, Table
from aggregator.views.address_book import AddressBook
from aggregator.views.ztunnel import ADDRESSES
from xds.encoded import Resource

PAGE: Final = 500
"""Resources that are read before others get their turn, some 10 us each."""


def _soon(work: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(work)


class SharedBook:
    """The book, while anybody reads it. `later` runs what is left of making it, once others had their turn."""

    def __init__(self, tables: Tables, home: str, later: Callable[[Callable[[], None]], object] = _soon) -> None:
        self._resources: Table[tuple[str, str], Resource] = tables.resources
        self._home = home
        self._later = later
        self._bells: dict[object, Callable[[], None]] = {}
        self._cursor: Cursor[tuple[str, str], Resource] | None = None
        self.book = AddressBook(home)
        self.ready = False
        """Whether it holds all there is."""

    def open(self, reader: object, bell: Callable[[], None]) -> None:
        """One more reader, whose bell is rung when the book turns ready."""
        self._bells[reader] = bell
        if self._cursor is None:
            self._cursor = self._resources.cursor(ADDRESSES.name)
            self._read()

    def close(self, reader: object) -> None:
        """One reader less; with the last one the book goes."""
        self._bells.pop(reader, None)
        if not self._bells and self._cursor is not None:
            self._cursor.close()
            self._cursor, self.ready = None, False
            self.book = AddressBook(self._home)

    def catch_up(self) -> None:
        """Take in what changed since it was last read."""
        if self.ready and self._cursor is not None and self._cursor.pending:
            self._put(self._cursor, None)

    def _read(self) -> None:
        if self._cursor is None or self.ready:
            return
        self._put(self._cursor, PAGE)
        if self._cursor.pending:
            self._later(self._read)
            return
        self.ready = True
        for bell in tuple(self._bells.values()):
            bell()

    def _put(self, cursor: Cursor[tuple[str, str], Resource], limit: int | None) -> None:
        for key, resource in cursor.take(limit).changes.items():
            self.book.put(key[1], resource)
