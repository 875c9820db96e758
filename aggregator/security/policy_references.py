"""The policies that workloads refer to by name, worked out once per set of labels.

Policies for a whole namespace or mesh apply by themselves and are never named. Only what is in force is, so a workload
never names a policy that its node's proxy has not been told of.
"""

from __future__ import annotations

from collections.abc import Callable

from aggregator.graph import At, Collection, Graph, Sums, Withheld
from aggregator.mesh.home import Mesh
from aggregator.mesh.profiles import LabelSet
from aggregator.security.authorization_policies import Policies, selecting
from aggregator.security.peer_authentication import PeerAuthentications, enforcing
from watchers.facts.keys import Labels

References = Callable[[At, str, str, Labels], tuple[str, ...]]
"""Reads, inside a derivation, the policies of a workload of a cluster, a namespace and labels: authorization policies,
sorted, then the one that enforces mutual TLS."""


def declare(
    graph: Graph,
    mesh: Callable[[At], Mesh],
    label_sets: Collection[LabelSet, Sums],
    policies: Policies,
    authentications: PeerAuthentications,
) -> References:
    """Declare what the workloads of every set of labels refer to."""

    def judge(at: At, namespace: str, labels: Labels) -> tuple[str, ...]:
        modes = enforcing(at, mesh(at), authentications, namespace, labels)
        return (*selecting(at, policies, namespace, labels), *modes)

    def references(at: At, key: LabelSet, _count: Sums) -> tuple[str, ...] | Withheld:
        # Most workloads refer to none, which is not worth keeping.
        return judge(at, key[1], key[2]) or Withheld("NoPolicySelects")

    of_label_sets = graph.derive("policies of label sets", label_sets, references)

    def read(at: At, cluster: str, namespace: str, labels: Labels) -> tuple[str, ...]:
        if not labels:
            return judge(at, namespace, labels)
        return at.get(of_label_sets, (cluster, namespace, labels)) or ()

    return read
