"""Admissions: which service accounts of home proxies may connect as, in which role, and which pods are proxies'.

Role, gateway, network and node of a proxy come from here, from Pods, and never from what the proxy says of itself. The
accounts of node proxies (ztunnel) are named by the settings and admitted even before a pod of theirs is seen; an
account is a gateway's if a pod that a gateway controller manages runs as it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, cast

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Sums
from aggregator.mesh.home import Home
from aggregator.mesh.networks import NETWORK_LABEL, network_of
from aggregator.mesh.selection import UNSELECTED, Includes
from watchers.facts.core import Pod
from watchers.facts.keys import ObjectKey, label

AccountKey: TypeAlias = tuple[str, str, str]
"""("account", namespace, service account): key in the admissions Table."""
PodKey: TypeAlias = tuple[str, str, str]
"""("pod", namespace, name): key in the admissions Table."""

NODE_PROXY, EAST_WEST, INGRESS = "ztunnel", "east-west", "ingress"

MANAGED_LABEL = "gateway.istio.io/managed"
GATEWAY_LABEL = "gateway.networking.k8s.io/gateway-name"
MODE_LABEL = "isthmus.io/ingress-mode"
_ROLES = {
    "istio.io-eastwest-controller": EAST_WEST,
    "isthmus.dev-east-west-gateway": EAST_WEST,
    "istio.io-gateway-controller": INGRESS,
    "isthmus.dev-ingress-gateway": INGRESS,
}

_NODE, _ROLE, _NETWORK = "node", "role", "network"


class Account(msgspec.Struct, frozen=True, gc=False):
    """A service account that runs at home.

    `role` is the one its proxies have ("" for plain workloads), `gateway` the name of the Gateway in the account's
    namespace that they are the pods of ("" if of none), `network` the one they are in, `nodes` those its pods run on,
    sorted.
    """

    role: str
    nodes: tuple[str, ...]
    gateway: str = ""
    network: str = ""


class ProxyPod(msgspec.Struct, frozen=True, gc=False):
    """A pod of home that a proxy runs in: its account, its node ("": none yet), the network it is in, and the mode it
    is to be served in if its label says one.
    """

    service_account: str
    node: str
    network: str
    mode: str = ""


class Admissions(msgspec.Struct, frozen=True):
    """The part of the graph this module declares."""

    accounts: Collection[AccountKey, Account]
    pods: Collection[PodKey, ProxyPod]


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    networks: Collection[ObjectKey, str],
    pods: Source[ObjectKey, Pod],
    trusted: Source[AccountKey, bool],
) -> Admissions:
    """Declare the accounts of home and the pods of its proxies. `trusted` holds the accounts of node proxies."""

    def runs_as(key: ObjectKey | AccountKey, value: Pod | bool) -> list[tuple[AccountKey, tuple[str, ...], int]]:
        if isinstance(value, bool):
            return [(("account", key[1], key[2]), (_ROLE, NODE_PROXY, ""), 1)]
        if value.phase in ("Succeeded", "Failed"):
            return []
        account = ("account", key[2], value.service_account or "default")
        tags: list[tuple[AccountKey, tuple[str, ...], int]] = [(account, (_NODE, value.node), 1)]
        role = _ROLES.get(label(value.labels, MANAGED_LABEL))
        if role is not None:
            tags.append((account, (_ROLE, role, label(value.labels, GATEWAY_LABEL)), 1))
            tags.append((account, (_NETWORK, label(value.labels, NETWORK_LABEL)), 1))
        return tags

    def account(at: At, key: AccountKey, sums: Sums) -> Outcome[Account]:
        tags = sorted(cast("tuple[str, ...]", tag) for tag in sums)
        if not includes(at, home.cluster, key[1]):
            # What the settings say of it stands; of its pods nothing counts.
            tags = [tag for tag in tags if tag[:2] == (_ROLE, NODE_PROXY)]
            if not tags:
                return UNSELECTED
        nodes = tuple(tag[1] for tag in tags if tag[0] == _NODE and tag[1])
        roles = [tag[1:] for tag in tags if tag[0] == _ROLE]
        if not roles:
            return Account("", nodes)
        if len(roles) > 1:
            # Which of them a proxy is could only be told by itself.
            subject = (home.cluster, "ServiceAccount", key[1], key[2])
            what = ", ".join(f"{role} {gateway}".strip() for role, gateway in roles)
            at.note(subject, Finding(subject, "AccountHasSeveralRoles", "metadata.name", f"it runs {what}"))
            return Account("", nodes)
        own = next((tag[1] for tag in tags if tag[0] == _NETWORK and tag[1]), "")
        return Account(roles[0][0], nodes, roles[0][1], own or network_of(at, networks, home.cluster))

    either = cast("tuple[Collection[ObjectKey | AccountKey, Pod | bool], ...]", (pods, trusted))

    def elsewhere(key: ObjectKey | AccountKey, value: Pod | bool) -> bool:
        return not isinstance(value, bool) and key[0] != home.cluster

    def of_proxy(at: At, key: ObjectKey, pod: Pod) -> Iterable[tuple[PodKey, ProxyPod]]:
        if pod.phase in ("Succeeded", "Failed"):
            return
        account = pod.service_account or "default"
        managed = label(pod.labels, MANAGED_LABEL) in _ROLES
        if not managed and at.get(trusted, ("account", key[2], account)) is None:
            return
        network = label(pod.labels, NETWORK_LABEL) or network_of(at, networks, home.cluster)
        yield ("pod", key[2], key[3]), ProxyPod(account, pod.node, network, label(pod.labels, MODE_LABEL))

    return Admissions(
        graph.derive("accounts", graph.fold("pods of accounts", either, runs_as, unless=elsewhere), account),
        graph.expand("pods of proxies", pods, of_proxy, unless=elsewhere),
    )
