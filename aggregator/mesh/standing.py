"""Standing: how far what is held of a cluster is relied on while the cluster cannot be read.

An API server that is out of reach does not say that its workloads are, so by default everything is served unchanged
for as long as it takes, and after `stale_after` seconds people are told. With a `stale_ttl` the operator has decided
otherwise for remotes: from then on their endpoints count half, and after the `stale_ttl` not at all, until the cluster
can be read again. A cluster that refuses the credential is treated alike. Home is always relied on.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home, cluster_key
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey

Standing: TypeAlias = Literal["full", "reduced", "withdrawn"]
"""Endpoints count as they are; by half, rounded up; not at all."""

StandingOf: TypeAlias = Callable[[At, str], Standing]
"""The standing of a cluster."""

UNREACHABLE: Final = Withheld("ClusterUnreachable")


class PastLimit(msgspec.Struct, frozen=True, gc=False):
    """A cluster that has not been known as it is for longer than `stale_after`, since the moment `unconfirmed` (seconds
    of Unix time).
    """

    standing: Standing
    unconfirmed: float


class Standings(msgspec.Struct, frozen=True):
    """The part of the graph this module declares: the clusters past their limit, by the key of their Cluster fact."""

    of: StandingOf
    past_limit: Collection[ObjectKey, PastLimit]


def declare(graph: Graph, home: Home, clusters: Source[ObjectKey, Cluster]) -> Standings:
    """Declare the standings of clusters."""

    def past(at: At, key: ObjectKey, cluster: Cluster) -> Outcome[PastLimit]:
        lost = cluster.unconfirmed
        if not lost:
            return Withheld("ClusterConfirmed")
        ttl = None if key[0] == home.cluster else home.stale_ttl
        if not at.passed(lost + (home.stale_after if ttl is None else min(home.stale_after, ttl))):
            return Withheld("ClusterWithinLimit")
        since = f"{cluster.state} since {datetime.fromtimestamp(lost, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if ttl is None:
            at.note(key, Finding(key, "ClusterUnconfirmed", "state", since))
            return PastLimit("full", lost)
        if not at.passed(lost + ttl):
            at.note(key, Finding(key, "ClusterReduced", "state", since))
            return PastLimit("reduced", lost)
        at.note(key, Finding(key, "ClusterWithdrawn", "state", since))
        return PastLimit("withdrawn", lost)

    past_limit = graph.derive("clusters past their limit", clusters, past)

    def standing(at: At, cluster: str) -> Standing:
        found = at.get(past_limit, cluster_key(cluster))
        return "full" if found is None else found.standing

    return Standings(standing, past_limit)
