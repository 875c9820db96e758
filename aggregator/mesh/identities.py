"""Identities: the SPIFFE names under which workloads are known, and which of them answer for a service elsewhere."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeAlias

from aggregator.graph import Sums
from aggregator.mesh.workload import ACCOUNT, ServiceInNetwork

Account: TypeAlias = tuple[str, str, str]
"""(trust domain, namespace, service account); see `trust_domains`."""


def spiffe_id(trust_domain: str, namespace: str, service_account: str) -> str:
    """`spiffe://<trust domain>/ns/<namespace>/sa/<service account>`."""
    return f"spiffe://{trust_domain}/ns/{namespace}/sa/{service_account}"


def accounts_elsewhere(members: Mapping[ServiceInNetwork, Sums], home_network: str) -> tuple[Account, ...]:
    """The accounts of all workloads of a service outside the home network, sorted.

    Whether a workload is ready does not matter: it may be ready before a proxy has heard of its identity, and then the
    inner tunnel would be refused.
    """
    found: set[Account] = set()
    for (network, _), sums in members.items():
        if network != home_network:
            found.update(_accounts(sums))
    return tuple(sorted(found))


def _accounts(sums: Mapping[Hashable, int]) -> list[Account]:
    return [(tag[1], tag[2], tag[3]) for tag in sums if isinstance(tag, tuple) and tag[0] == ACCOUNT]
