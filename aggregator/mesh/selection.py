"""Selection: the namespaces that count, which are those that the mesh's discoverySelectors select.

The selectors are home's and count for every cluster, each on the labels its own Namespaces have there. Without
selectors every namespace counts. Some things count in any case, since nothing works, or is safe, without them: home's
system namespace, where its proxies run, its root namespace, whose policies are for all, and Gateways in the system
namespace of a remote, which lead into its network. What belongs to a whole cluster is not asked about.

Whoever derives something from an object of a namespace asks `includes`; what watchers need not even read they are told
by `of_cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home, cluster_key, matches
from watchers.facts.cluster import Answered, Cluster
from watchers.facts.core import Namespace
from watchers.facts.keys import ObjectKey
from watchers.facts.mesh_config import LabelSelector, MeshConfig

UNSELECTED = Withheld("NamespaceNotSelected")

Includes: TypeAlias = Callable[[At, str, str], bool]
"""Whether what is in a namespace of a cluster counts: (cluster, namespace)."""


class Selected(msgspec.Struct, frozen=True, gc=False):
    """The namespaces of a cluster that count, sorted; None: all of them."""

    namespaces: tuple[str, ...] | None


class _Selecting(msgspec.Struct, frozen=True, gc=False):
    """The selectors in force, and the namespaces of home that count in any case."""

    selectors: tuple[LabelSelector, ...]
    always: tuple[str, ...]


class Selection(msgspec.Struct, frozen=True):
    """The part of the graph this module declares.

    `of_cluster` holds a cluster, by (cluster,), once home's mesh config and the cluster's Namespaces have been read, or
    have turned out not to be readable.
    """

    includes: Includes
    of_cluster: Collection[tuple[str], Selected]


def declare(
    graph: Graph,
    home: Home,
    mesh_configs: Source[ObjectKey, MeshConfig],
    clusters: Source[ObjectKey, Cluster],
    answers: Source[ObjectKey, Answered],
    namespaces: Source[ObjectKey, Namespace],
) -> Selection:
    """Declare which namespaces count."""

    def in_force(_at: At, key: ObjectKey, config: MeshConfig) -> Outcome[_Selecting]:
        if key != home.mesh_config_key or config.discovery is None:
            return Withheld("EveryNamespaceSelected")
        return _Selecting(config.discovery, (home.system_namespace, config.root_namespace or home.system_namespace))

    selectors = graph.derive("discovery selectors", mesh_configs, in_force)

    def one(at: At, key: ObjectKey, namespace: Namespace) -> Outcome[bool]:
        chosen = at.get(selectors, home.mesh_config_key)
        if chosen is None:
            return Withheld("EveryNamespaceSelected")
        if any(matches(selector, namespace.labels) for selector in chosen.selectors):
            return True
        return UNSELECTED

    # Only that it is selected: other changes of a Namespace end here.
    selected = graph.derive("selected namespaces", namespaces, one)
    by_cluster = graph.index("selected namespaces by cluster", selected, lambda key, _: (key[0],))

    def includes(at: At, cluster: str, namespace: str) -> bool:
        chosen = at.get(selectors, home.mesh_config_key)
        if chosen is None or (cluster == home.cluster and namespace in chosen.always):
            return True
        return at.get(selected, home.namespace_key(cluster, namespace)) is not None

    def known(at: At, cluster: str, kind: str) -> bool:
        """Whether a cluster's objects of a kind have been read; a source that reads all at once only says that."""
        answered = at.get(answers, (cluster, "Answered", "", cluster))
        if answered is not None and kind in answered.kinds:
            return True
        whole = at.get(clusters, cluster_key(cluster))
        return whole is not None and whole.state in ("synced", "stale")

    def of_cluster(at: At, key: ObjectKey, _cluster: Cluster) -> Iterable[tuple[tuple[str], Outcome[Selected]]]:
        cluster, chosen = key[0], at.get(selectors, home.mesh_config_key)
        if not known(at, home.cluster, "MeshConfig"):
            yield (cluster,), Withheld("SelectionUnknown")
        elif chosen is None:
            yield (cluster,), Selected(None)
        elif not known(at, cluster, "Namespace"):
            yield (cluster,), Withheld("SelectionUnknown")
        else:
            names = {name for _, _, _, name in at.group(by_cluster, cluster)}
            if cluster == home.cluster:
                names.update(chosen.always)
            yield (cluster,), Selected(tuple(sorted(names)))

    return Selection(includes, graph.expand("selections", clusters, of_cluster))
