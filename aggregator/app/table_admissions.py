"""Joins the admissions Table to the server: what is known of accounts and pods of home's proxies.

In: the Tables of admissions and of home's trust domain. Out: what xds declares it needs (`Admissions`). Nothing is
copied, and nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

from aggregator.app.aggregate import Tables
from aggregator.mesh.home import HOME_TRUST_DOMAIN
from aggregator.security import admissions
from xds.server.access import Admission, ProxyPod


class TableAdmissions:
    """The accounts of home's proxies. Satisfies `xds.server.access.Admissions`."""

    def __init__(self, tables: Tables, complete: asyncio.Event) -> None:
        self.changed_pods: Callable[[Set[tuple[str, str]]], None] | None = None
        """Is told the (namespace, name) of proxies' pods that have changed, or are gone."""
        self._admissions = tables.admissions
        self._trust_domain = tables.trust_domain
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
        if not isinstance(account, admissions.Account):
            return None
        return Admission(account.role, account.nodes, account.network, account.gateway)

    def pod(self, namespace: str, name: str) -> ProxyPod | None:
        """The pod of a proxy."""
        pod = self._admissions.get(("pod", namespace, name))
        if not isinstance(pod, admissions.ProxyPod):
            return None
        return ProxyPod(pod.service_account, pod.node, pod.network, pod.mode)

    @property
    def trust_domain(self) -> str:
        """The trust domain of home's identities, once home has been read."""
        return self._trust_domain.get(HOME_TRUST_DOMAIN) or ""

    async def changed(self) -> None:
        """Until the next change of any admission, or until they are known at all."""
        if not self._complete.is_set():
            await self._complete.wait()
            return
        await self._changed.wait()

    def _ring(self) -> None:
        changes = self._cursor.take().changes
        self._changed.set()
        self._changed = asyncio.Event()
        pods = {(key[1], key[2]) for key in changes if key[0] == "pod"}
        if pods and self.changed_pods is not None:
            self.changed_pods(pods)
