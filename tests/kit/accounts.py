"""The server's surroundings in memory: who is admitted, and what tokens stand for."""

from __future__ import annotations

import asyncio

from xds.server.access import Admission, ProxyPod
from xds.server.authentication import Identity

ZTUNNEL = Identity("cluster.local", "istio-system", "ztunnel", pod="ztunnel-x", node="n1")
ORDERS = Identity("cluster.local", "shop", "orders", pod="orders-1", node="n1")
NODE_ID = "ztunnel~10.0.0.1~ztunnel-x.istio-system~istio-system.svc.cluster.local"


class Accounts:
    """Admissions: a ztunnel on two nodes, `shop/orders` on the first and `shop/ledger` on the second.

    Change `accounts` or `known`, then `ring`.
    """

    def __init__(self, *, known: bool = True) -> None:
        self.known = known
        self.trust_domain = "cluster.local"
        self.accounts = {
            ("istio-system", "ztunnel"): Admission("ztunnel", ("n1", "n2"), "net-1"),
            ("shop", "orders"): Admission("", ("n1",)),
            ("shop", "ledger"): Admission("", ("n2",)),
        }
        self.pods = {("istio-system", "ztunnel-x"): ProxyPod("ztunnel", "n1", "net-1")}
        self._change = asyncio.Event()

    def admission(self, namespace: str, service_account: str) -> Admission | None:
        """The admission of an account."""
        return self.accounts.get((namespace, service_account))

    def pod(self, namespace: str, name: str) -> ProxyPod | None:
        """The pod of a proxy."""
        return self.pods.get((namespace, name))

    async def changed(self) -> None:
        """Until the next `ring`."""
        await self._change.wait()

    def ring(self) -> None:
        """Wakes all who wait."""
        self._change.set()
        self._change = asyncio.Event()


class Tokens:
    """A TokenReviewer that knows a few tokens, in every cluster."""

    def __init__(self) -> None:
        self.identities = {"ztunnel-token": ZTUNNEL, "orders-token": ORDERS}

    async def review(self, token: str, cluster: str) -> Identity | None:
        """The identity of a token."""
        return self.identities.get(token)
