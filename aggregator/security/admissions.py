"""Admissions: which service accounts of the home cluster proxies may connect as, and where their pods run.

Role, network and node of a proxy come from here, from Pods, and never from what the proxy says of itself. The
accounts of node proxies (ztunnel) are named by the settings and admitted even before a pod of theirs is seen.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec

from aggregator.graph import At, Collection, Graph, Source, Sums
from aggregator.mesh.home import Home
from watchers.facts.core import Pod
from watchers.facts.keys import ObjectKey

AccountKey: TypeAlias = tuple[str, str, str]
"""("account", namespace, service account): key in the admissions Table."""

NODE_PROXY = "ztunnel"
_TRUSTED = "\0trusted"  # no node can be called that


class Account(msgspec.Struct, frozen=True, gc=False):
    """A service account that runs at home.

    `role` is the one its proxies have ("" for plain workloads), `nodes` are those its pods run on, sorted.
    """

    role: str
    nodes: tuple[str, ...]


def declare(
    graph: Graph, home: Home, pods: Source[ObjectKey, Pod], trusted: Source[AccountKey, bool]
) -> Collection[AccountKey, Account]:
    """Declare the accounts of home. `trusted` holds the accounts of node proxies."""

    def runs_on(key: ObjectKey | AccountKey, value: Pod | bool) -> tuple[tuple[AccountKey, str, int], ...]:
        if isinstance(value, bool):
            return ((("account", key[1], key[2]), _TRUSTED, 1),)
        if key[0] != home.cluster or value.phase in ("Succeeded", "Failed"):
            return ()
        return ((("account", key[2], value.service_account or "default"), value.node, 1),)

    def account(_at: At, _key: AccountKey, tags: Sums) -> Account:
        nodes = tuple(sorted(str(tag) for tag in tags if tag not in (_TRUSTED, "")))
        return Account(NODE_PROXY if _TRUSTED in tags else "", nodes)

    either = cast("tuple[Collection[ObjectKey | AccountKey, Pod | bool], ...]", (pods, trusted))
    return graph.derive("accounts", graph.fold("nodes of accounts", either, runs_on), account)
