"""Answers: which registered clusters have been read, or need not be waited for any longer.

Until home has been read nobody is served, and until all have been, what is not there may only not have been heard of.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aggregator.graph import At, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home, cluster_key
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey

_ANSWERED = ("synced", "stale")
_SILENT = "no answer yet"


class Answers(msgspec.Struct, frozen=True):
    """Reads, inside a derivation: whether `home` has answered, and whether `all` have, or have passed their limit.

    `unread` tells of a cluster, and `some_unread` whether there is any, that is registered and was never read, whatever
    its limit: what was written of it before must not be taken back.
    """

    home: Callable[[At], bool]
    all: Callable[[At], bool]
    unread: Callable[[At, str], bool]
    some_unread: Callable[[At], bool]


def declare(graph: Graph, home: Home, clusters: Source[ObjectKey, Cluster]) -> Answers:
    """Declare who has answered."""

    def answered(at: At, key: ObjectKey, cluster: Cluster) -> Outcome[bool]:
        return _read(cluster) or (not cluster.home and at.passed(cluster.deadline))

    def without_content(_at: At, _key: ObjectKey, cluster: Cluster) -> Outcome[bool]:
        return Withheld("ClusterRead") if _read(cluster) else True

    answers = graph.derive("clusters that answered", clusters, answered)
    silent = graph.index("clusters without answer", answers, lambda _, has: () if has else (_SILENT,))
    some_silent = graph.derive("some cluster is without answer", silent, lambda _, __, ___: True)

    contentless = graph.derive("clusters never read", clusters, without_content)
    some_contentless = graph.derive(
        "some cluster was never read", graph.index("never read", contentless, lambda _, __: (_SILENT,)), lambda *_: True
    )

    def of_home(at: At) -> bool:
        return at.get(answers, cluster_key(home.cluster)) is True

    def of_all(at: At) -> bool:
        return of_home(at) and at.get(some_silent, _SILENT) is None

    def unread(at: At, cluster: str) -> bool:
        return at.get(contentless, cluster_key(cluster)) is True

    def some_unread(at: At) -> bool:
        return at.get(some_contentless, _SILENT) is not None

    return Answers(of_home, of_all, unread, some_unread)


def _read(cluster: Cluster) -> bool:
    """Whether it was read; what was, and is refused now, counts as well."""
    return cluster.state in _ANSWERED or cluster.unconfirmed > 0.0
