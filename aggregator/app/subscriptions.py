"""Joins the Tables to the sessions: which view a proxy's subscription reads, and reading it.

In: the resources and settled Tables. Out: what xds declares it needs (`Views`, `Subscription`, `Admissions`). Asking
for a view makes it an item of the interest Table; the graph answers in its next pass. Nothing is copied: a subscription
is a cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

from aggregator.app.aggregate import Tables
from aggregator.views import ztunnel
from aggregator.views.view import View
from xds.encoded import Resource
from xds.server.access import Admission
from xds.server.proxies import Proxy
from xds.session.content import Changes

_VIEWS_OF_ROLE: dict[str, Callable[[str], View | None]] = {ztunnel.ROLE: ztunnel.view_of}


def view_for(role: str, type_url: str) -> View | None:
    """What proxies of a role are told of a type; None where they are told nothing of it."""
    views_of = _VIEWS_OF_ROLE.get(role)
    return views_of(type_url) if views_of else None


class TableSubscription:
    """One stream's reading of one view. Satisfies `xds.session.content.Subscription`."""

    def __init__(self, tables: Tables, view: View, bell: Callable[[], None]) -> None:
        self._resources = tables.resources
        self._settled = tables.settled
        self._view = view
        self._bell = bell
        self._changes = tables.resources.cursor(view.name, bell, from_start=False)
        self._completeness = tables.settled.cursor(view.name, self._completed, from_start=False)

    @property
    def state(self) -> Literal["unknown", "partial", "settled"]:
        """Whether the view may be told, and whether absence from it means anything."""
        return self._settled.get(self._view.key) or "unknown"

    @property
    def pending(self) -> bool:
        """Whether there are changes to take."""
        return self._changes.pending

    def get(self, name: str) -> Resource | None:
        """The resource of that name as it is now."""
        return self._resources.get((self._view.name, name))

    def known(self, name: str) -> bool:
        """Whether there is such a resource; every resource of these views is at hand."""
        return self.get(name) is not None

    def items(self) -> Iterable[tuple[str, Resource]]:
        """All resources as they are now."""
        for key, resource in self._resources.scan((self._view.name,)):
            yield key[1], resource

    def take(self) -> Changes:
        """What has changed since last time, in whole passes."""
        batch = self._changes.take()
        return Changes({key[1]: resource for key, resource in batch.changes.items()}, batch.causes, batch.revision)

    def _completed(self) -> None:
        """The view's state has moved on. Only that it has matters; the session reads `state`."""
        self._completeness.take()
        self._bell()

    def close(self) -> None:
        """Read no more."""
        self._changes.close()
        self._completeness.close()


class TableViews:
    """The views of one proxy. Satisfies `xds.session.content.Views`."""

    def __init__(self, tables: Tables, proxy: Proxy, bell: Callable[[], None]) -> None:
        self._tables = tables
        self._proxy = proxy
        self._bell = bell

    def open(self, type_url: str) -> TableSubscription | None:
        """Subscribe to what this proxy is told of a type; None if proxies of its role are not served that type."""
        view = view_for(self._proxy.role, type_url)
        if view is None:
            return None
        self._tables.interest.apply([(view.key, view)])
        return TableSubscription(self._tables, view, self._bell)


class TableAdmissions:
    """The accounts of home's proxies. Satisfies `xds.server.access.Admissions`."""

    def __init__(self, tables: Tables, complete: asyncio.Event) -> None:
        self._admissions = tables.admissions
        self._complete = complete
        self._changed = asyncio.Event()
        self._cursor = tables.admissions.cursor(bell=self._ring)

    @property
    def known(self) -> bool:
        """False until home has been read completely once."""
        return self._complete.is_set()

    def admission(self, namespace: str, service_account: str) -> Admission | None:
        """What the account may do."""
        account = self._admissions.get(("account", namespace, service_account))
        return Admission(role=account.role, nodes=account.nodes) if account else None

    async def changed(self) -> None:
        """Until the next change of any admission, or until they are known at all."""
        if not self._complete.is_set():
            await self._complete.wait()
            return
        await self._changed.wait()

    def _ring(self) -> None:
        self._cursor.take()
        self._changed.set()
        self._changed = asyncio.Event()
