"""Whether a view may be told at all, and whether it is all there is.

Nobody is served before home has been read completely. A view is settled once every registered cluster has answered or
passed its limit, and so has every DNS name of a gateway; until then its absences mean nothing, and sessions hold back
what only absence would take away.
"""

from __future__ import annotations

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home
from aggregator.mesh.networks import UNANSWERED, Networks
from aggregator.views.view import Completeness, View, ViewKey
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey

_ANSWERED = ("synced", "stale")
_EVERY = "every cluster"


def declare(
    graph: Graph,
    home: Home,
    clusters: Source[ObjectKey, Cluster],
    networks: Networks,
    interest: Source[ViewKey, View],
) -> Collection[ViewKey, Completeness]:
    """Declare the completeness of every view somebody asked for."""
    registered = graph.index("registered clusters", clusters, lambda _, __: (_EVERY,))

    def answered(at: At, key: ObjectKey, cluster: Cluster) -> Outcome[bool]:
        # What has been read before, and is refused now, has answered as well.
        read = cluster.state in _ANSWERED or cluster.unconfirmed > 0.0
        return read or (not cluster.home and at.passed(cluster.deadline))

    answers = graph.derive("clusters that answered", clusters, answered)

    def completeness(at: At, _key: ViewKey, _view: View) -> Outcome[Completeness]:
        if not at.get(answers, home.cluster_key(home.cluster)):
            return Withheld("HomeNotSynced")
        if at.group(networks.unanswered, UNANSWERED):
            return "partial"
        everyone = at.group(registered, _EVERY)
        return "settled" if all(at.get(answers, key) is True for key in everyone) else "partial"

    return graph.derive("completeness of views", interest, completeness)
