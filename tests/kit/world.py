"""A world in one call: manifests of several clusters in, what ztunnels are told out, with no I/O between.

The real decoders, the real Table and the real pipeline, driven pass by pass. What comes out is the published content,
kept as a proxy would keep it, in the JSON form of `tests.kit.golden`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from aggregator.cache.table import Table
from aggregator.findings import Finding
from aggregator.graph import Pass
from aggregator.mesh.home import Home
from aggregator.pipeline import RESOURCES, Pipeline
from aggregator.views import ztunnel
from aggregator.views.view import View
from tests.kit import golden
from tests.kit.manifests import Manifest
from watchers.facts import Fact
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey
from watchers.facts.kinds import kind_of
from watchers.facts.names import ResolvedName, name_key
from xds.encoded import Resource

NEVER = float("inf")


def fact(cluster: str, manifest: Manifest, system_namespace: str = "istio-system") -> tuple[ObjectKey, Fact]:
    """Key and fact of a manifest of a kind that is read."""
    kind = kind_of(manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"])
    keyed = kind.decode(manifest, cluster, system_namespace) if kind else None
    assert keyed is not None, f"{manifest['kind']} is not read"
    return keyed


def manifests_of(directory: Path) -> list[Manifest]:
    """All objects of a directory's YAML files whose kind is read."""
    found = [
        document
        for path in sorted(directory.glob("**/*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]
    return [one for one in found if kind_of(one["apiVersion"], one["kind"], one["metadata"]["name"])]


class World:
    """A control plane's graph with the ztunnel views asked for. Clusters are synced as soon as they are mentioned.

    ``facts`` is a table that something else writes, in the place of an empty one.
    """

    def __init__(self, home: str = "alpha", *, facts: Table[ObjectKey, Fact] | None = None, **settings: Any) -> None:
        self.home = Home(cluster=home, **settings)
        self.pipeline = Pipeline(self.home)
        self.facts: Table[ObjectKey, Fact] = Table("facts") if facts is None else facts
        self.resources: dict[tuple[str, str], Resource] = {}
        self.published: dict[str, dict[Any, Any]] = {}
        self.now = 1_800_000_000.0
        self._cursor = self.facts.cursor()
        self._views: dict[Any, Any] = {self.pipeline.interest: {view.key: view for view in ztunnel.VIEWS}}

    @property
    def graph(self) -> Any:
        """The pipeline's graph."""
        return self.pipeline.graph

    def cluster(
        self,
        name: str,
        state: str = "synced",
        deadline: float = NEVER,
        unconfirmed: float = 0.0,
        trust_domain: str = "",
    ) -> None:
        """Register a cluster, or change its state."""
        home = name == self.home.cluster
        fact = Cluster(state, home, deadline, "", unconfirmed=unconfirmed, trust_domain=trust_domain)
        self.facts.apply([((name, "Cluster", "", name), fact)])

    def lose(self, name: str, state: str = "stale") -> None:
        """A cluster that was read cannot be read any more, from now on."""
        self.cluster(name, state, unconfirmed=self.now)

    def wait(self, seconds: float) -> Pass:
        """Let time pass, and a pass see it."""
        self.now += seconds
        return self.step()

    def apply(self, cluster: str, *manifests: Manifest) -> None:
        """Create or change objects of a cluster."""
        if self.facts.get((cluster, "Cluster", "", cluster)) is None:
            self.cluster(cluster)
        self.facts.apply([fact(cluster, manifest, self.home.system_namespace) for manifest in manifests])

    def delete(self, cluster: str, *manifests: Manifest) -> None:
        """Delete objects of a cluster."""
        self.facts.apply([(fact(cluster, manifest)[0], None) for manifest in manifests])

    def leave(self, cluster: str) -> None:
        """Take a cluster away with everything in it."""
        self.facts.replace((cluster,), ())

    def resolve(self, name: str, *addresses: str, reason: str = "", pending: bool = False) -> None:
        """Look a DNS name up, with this result."""
        self.facts.apply([(name_key(name), ResolvedName(addresses, reason, pending))])

    def ask(self, *views: View) -> None:
        """Ask for more views than those of ztunnels, from the next step on."""
        asked = self._views.setdefault(self.pipeline.interest, {})
        asked.update({view.key: view for view in views})

    def told(self, view: View) -> dict[str, dict[str, Any]]:
        """What a view holds now, by resource name, in JSON form."""
        return {
            name: golden.decode(view.type_url, resource.body)
            for (where, name), resource in self.resources.items()
            if where == view.name
        }

    def step(self, more: Mapping[Any, Any] | None = None, steps: int | None = None) -> Pass:
        """One pass over what changed, and `more` input by source; returns what it published."""
        inputs: dict[Any, Any] = dict(self.pipeline.facts(self._cursor.take().changes))
        inputs.update(self._views)
        inputs.update(more or {})
        self._views = {}
        self.graph.begin(inputs, self.now)
        result: Pass | None = None
        while result is None:
            result = self.graph.run(steps)
        for name, changes in result.published.items():
            kept = self.published.setdefault(name, {})
            for key, value in changes.items():
                if value is None:
                    kept.pop(key, None)
                else:
                    kept[key] = value
        self.resources = self.published.get(RESOURCES, {})
        return result

    def addresses(self) -> dict[str, dict[str, Any]]:
        """What ztunnels are told now, by resource name, in JSON form."""
        return self.told(ztunnel.ADDRESSES)

    def authorizations(self) -> dict[str, dict[str, Any]]:
        """The policies ztunnels are told now, by resource name, in JSON form without their type."""
        told = self.told(ztunnel.AUTHORIZATIONS)
        return {name: {key: value for key, value in one.items() if key != "@type"} for name, one in told.items()}

    def address(self, name: str) -> dict[str, Any]:
        """The workload or service of that name as ztunnels are told it; empty if they are not."""
        found = self.addresses().get(name, {})
        inner = found.get("workload", found.get("service", {}))
        assert isinstance(inner, dict)
        return inner

    def findings(self) -> list[Finding]:
        """All findings, sorted."""
        return sorted(finding for found in self.published.get("findings", {}).values() for finding in found)

    def versions(self, view: View = ztunnel.ADDRESSES) -> dict[str, str]:
        """Resource name -> version, in one view."""
        return {name: resource.version for (where, name), resource in self.resources.items() if where == view.name}


def world_of(scenario: golden.Scenario) -> World:
    """The world of a golden scenario after one pass."""
    world = World(scenario.local_cluster)
    for cluster, directory in scenario.directories.items():
        world.apply(cluster, *manifests_of(directory))
    world.step()
    return world


def changed_names(result: Pass) -> set[str]:
    """Names of the resources that a pass changed."""
    changes: Mapping[tuple[str, str], Any] = result.published.get(RESOURCES, {})
    return {key[1] for key in changes}
