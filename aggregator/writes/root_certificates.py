"""The root certificates of the mesh in home's namespaces: ConfigMap `istio-ca-root-cert`, one for each.

In: all roots that are trusted, as one PEM text, and the ConfigMaps there are. Out: those that are to be made or to say
something else. What a person changed by kubectl is set right; what belongs to another program (an istiod, istio-csr) is
left alone whatever it says, since two who correct each other never end. Nothing is ever deleted: proxies mount it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.selection import UNSELECTED, Includes
from watchers.facts.cluster import Answered
from watchers.facts.core import Namespace
from watchers.facts.keys import ObjectKey
from watchers.facts.root_certificates import ENTRY, NAME, RootCertificates, digest
from watchers.owned_objects import DistributedRoots
from watchers.writes import WriteKey

ROOTS: Final = ("roots",)
"""The key of the trusted roots."""

OF_KUBERNETES = frozenset({"kube-system", "kube-public", "kube-node-lease", "local-path-storage"})
"""Namespaces that no proxy of the mesh runs in, as Istio sees it."""

_PEOPLE = "kubectl"
"""How the names begin under which kubectl owns fields: kubectl-edit, kubectl-patch, kubectl-client-side-apply."""


class Sources(msgspec.Struct, frozen=True):
    """What is read; ``answered`` says whether the ConfigMaps of home have been, ``trusted`` has the roots."""

    answered: Source[ObjectKey, Answered]
    namespaces: Source[ObjectKey, Namespace]
    present: Source[ObjectKey, RootCertificates]
    trusted: Source[tuple[str], str]


class _Bundle(msgspec.Struct, frozen=True, gc=False):
    """The roots as they are written, and what they are compared by."""

    text: str
    digest: str


def declare(
    graph: Graph, home: Home, includes: Includes, answers: Answers, sources: Sources
) -> Collection[WriteKey, DistributedRoots]:
    """Declare what home's ConfigMaps of root certificates are to be."""

    def read(at: At, _key: tuple[str], text: str) -> Outcome[_Bundle]:
        if not home.distributes_roots:
            return Withheld("RootsNotDistributed")
        if not text.strip():
            return Withheld("RootsUnknown")
        known = at.get(sources.answered, (home.cluster, "Answered", "", home.cluster))
        if known is None or "RootCertificates" not in known.read:
            return Withheld("RootsNotRead")
        # Nor is known before which namespaces count.
        return _Bundle(text, digest(text)) if answers.home(at) else Withheld("HomeNotSynced")

    bundles = graph.derive("roots to distribute", sources.trusted, read)

    def of_namespace(
        at: At, key: ObjectKey, namespace: Namespace
    ) -> Iterable[tuple[WriteKey, Outcome[DistributedRoots]]]:
        subject = (home.cluster, "ConfigMap", key[3], NAME)
        yield (*subject, "object"), wanted(at, key, namespace, subject)

    def wanted(at: At, key: ObjectKey, namespace: Namespace, subject: ObjectKey) -> Outcome[DistributedRoots]:
        cluster, _, _, name = key
        if cluster != home.cluster:
            return Withheld("NotOfHome", cluster)
        if name in OF_KUBERNETES:
            return Withheld("NamespaceWithoutProxies")
        if namespace.deleting:
            return Withheld("NamespaceEnds")
        bundle = at.get(bundles, ROOTS)
        if bundle is None:
            return Withheld("RootsNotDistributed" if not home.distributes_roots else "RootsNotRead")
        if not includes(at, cluster, name):
            return UNSELECTED
        present = at.get(sources.present, (cluster, "RootCertificates", name, NAME))
        if present is None:
            return DistributedRoots(bundle.text)
        ours = present.owned and all(one.startswith(_PEOPLE) for one in present.managers)
        if present.digest == bundle.digest and (present.labelled or not ours):
            return Withheld("RootsCurrent")
        if not ours:
            at.note(subject, Finding(subject, "RootsOfOthers", f'data["{ENTRY}"]', _said(present)))
            return Withheld("RootsOfOthers")
        return DistributedRoots(bundle.text, force=bool(present.managers))

    # Of all clusters' namespaces most are not home's, and nothing comes of them.
    return graph.expand(
        "root certificates",
        sources.namespaces,
        of_namespace,
        unless=lambda key, _: key[0] != home.cluster or not home.distributes_roots,
    )


def _said(present: RootCertificates) -> str:
    others = [one for one in present.managers if not one.startswith(_PEOPLE)] or list(present.managers)
    owner = f"belongs to {', '.join(others)}" if others else "was not made by this control plane"
    return f"holds other root certificates, and {owner}" if present.digest else f"holds none, and {owner}"
