"""Trust domains: of whose identities a cluster's workloads and gateways are.

A cluster may have a trust domain of its own, which its registration names: whoever is reached there shows identities of
that one, and peers of that one are let in. Wherever a trust domain is "", it is home's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from aggregator.graph import At, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home, cluster_key
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey

_ALL = "clusters"


class TrustDomains(msgspec.Struct, frozen=True):
    """The part of the graph this module declares: the trust domain `of` a cluster, and those of clusters that have one
    of their own (`others`), sorted.
    """

    of: Callable[[At, str], str]
    others: Callable[[At], tuple[str, ...]]


def declare(graph: Graph, home: Home, clusters: Source[ObjectKey, Cluster]) -> TrustDomains:
    """Declare the trust domains of clusters."""

    def own(_at: At, key: ObjectKey, cluster: Cluster) -> Outcome[str]:
        if key[0] == home.cluster or not cluster.trust_domain:
            return Withheld("TrustDomainIsHomes")
        return cluster.trust_domain

    named = graph.derive("trust domains of clusters", clusters, own)
    together = graph.index("all trust domains", named, lambda _, __: (_ALL,))

    def of(at: At, cluster: str) -> str:
        return at.get(named, cluster_key(cluster)) or ""

    def others(at: At) -> tuple[str, ...]:
        return tuple(sorted(set(at.group(together, _ALL).values())))

    return TrustDomains(of, others)


def accepted(own: str, others: Iterable[str]) -> tuple[str, ...]:
    """The trust domains that gateways take peers of: home's first, then those that clusters have of their own."""
    return tuple(dict.fromkeys((own, *others)))
