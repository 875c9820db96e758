"""Answers: which registered clusters have been read, or need not be waited for any longer.

Until home has been read nobody is served, and until all have been, what is not there may only not have been heard of.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aggregator.graph import At, Graph, Outcome, Source
from aggregator.mesh.home import Home
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey

_ANSWERED = ("synced", "stale")
_SILENT = "no answer yet"


class Answers(msgspec.Struct, frozen=True):
    """Reads, inside a derivation: whether `home` has answered, and whether `all` have, or have passed their limit."""

    home: Callable[[At], bool]
    all: Callable[[At], bool]


def declare(graph: Graph, home: Home, clusters: Source[ObjectKey, Cluster]) -> Answers:
    """Declare who has answered."""

    def answered(at: At, key: ObjectKey, cluster: Cluster) -> Outcome[bool]:
        # What has been read before, and is refused now, has answered as well.
        read = cluster.state in _ANSWERED or cluster.unconfirmed > 0.0
        return read or (not cluster.home and at.passed(cluster.deadline))

    answers = graph.derive("clusters that answered", clusters, answered)
    silent = graph.index("clusters without answer", answers, lambda _, has: () if has else (_SILENT,))
    some_silent = graph.derive("some cluster is without answer", silent, lambda _, __, ___: True)

    def of_home(at: At) -> bool:
        return at.get(answers, home.cluster_key(home.cluster)) is True

    def of_all(at: At) -> bool:
        return of_home(at) and at.get(some_silent, _SILENT) is None

    return Answers(of_home, of_all)
