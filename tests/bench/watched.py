"""A mesh behind API servers, and changes in it by chance, for benchmarks of what reads them.

Each cluster is as tests.bench.mesh makes it, its Pods as large as real ones, behind an API server of its own. A change
is one event: a Pod's readiness turns.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tests.bench import mesh
from tests.bench.api_servers import ApiServers
from tests.bench.latency import BURST
from tests.kit.manifests import Manifest
from watchers.facts.keys import ObjectKey


class Size(msgspec.Struct, frozen=True):
    """How much is measured. `seconds` is how long each rhythm of changes lasts, `rest` how long nothing happens before
    memory is at rest.
    """

    remotes: int
    services: int
    pods: int
    seconds: float
    rest: float
    joins: int
    rotations: int


APART = 300
"""Between two changes of one resource lie so many of others, so that each can be told from the one before."""


def wire(manifest: Manifest) -> Manifest:
    """A Pod as kubectl applied it and a network plugin annotated it: about 6 KB, most of which nobody here reads."""
    padded = mesh.padded(manifest)
    network = msgspec.json.encode([{"name": "pods", "interface": "eth0", "ips": ["192.0.2.1"], "default": True}])
    annotations = {
        **padded["metadata"]["annotations"],
        "kubectl.kubernetes.io/last-applied-configuration": msgspec.json.encode(manifest).decode(),
        "k8s.v1.cni.cncf.io/network-status": network.decode() * 6,
    }
    return {**padded, "metadata": {**padded["metadata"], "annotations": annotations}}


def objects(cluster: int, services: int, pods: int) -> Iterator[Manifest]:
    """All objects of a cluster."""
    for one in mesh.objects(cluster, services, 0):
        if one["kind"] != "EndpointSlice":
            yield one
    for number in range(services):
        yield mesh.endpoint_slice(cluster, services, pods, number)
    for number in range(pods):
        yield wire(mesh.pod(cluster, services, number))


class Change(msgspec.Struct, frozen=True):
    """A pod's readiness turns; `told` is the name of what ztunnels are told."""

    cluster: str
    document: Manifest
    key: ObjectKey
    ready: bool
    told: str


class Mesh:
    """The clusters behind API servers, and changes in them by chance."""

    def __init__(self, servers: ApiServers, size: Size) -> None:
        self.servers = servers
        self.size = size
        self.clusters = range(size.remotes + 1)
        self._chance = random.Random(7)
        self._unready: set[tuple[int, int]] = set()
        self._recent: deque[str] = deque(maxlen=min(APART, size.remotes * size.services // 2))
        for number in self.clusters:
            servers.start(mesh.cluster_name(number), objects(number, size.services, size.pods))

    def names(self) -> list[str]:
        """Of all clusters, home first."""
        return [mesh.cluster_name(number) for number in self.clusters]

    def register(self, directory: Path, clusters: Iterable[str], token: str = "token") -> None:
        """Writes kubeconfigs, each whole or not at all."""
        for cluster in clusters:
            staged = directory / f".{cluster}"
            staged.write_bytes(self.servers.kubeconfig(cluster, token))
            staged.rename(directory / cluster)

    def turn(self, cluster: int, number: int) -> Change:
        """That pod's readiness turns."""
        pod, services = (cluster, number), self.size.services
        ready = pod in self._unready
        self._unready ^= {pod}
        key, told = mesh.pod_key(cluster, services, number), mesh.told_name(cluster, services, number)
        document = wire(mesh.pod(cluster, services, number, ready=ready))
        return Change(mesh.cluster_name(cluster), document, key, ready, told)

    def some(self, count: int, clusters: Sequence[int]) -> list[Change]:
        """Changes of pods in these clusters by chance, no two near each other of one resource."""
        changes: list[Change] = []
        while len(changes) < count:
            cluster, number = self._chance.choice(clusters), self._chance.randrange(self.size.pods)
            told = mesh.told_name(cluster, self.size.services, number)
            if told not in self._recent:
                self._recent.append(told)
                changes.append(self.turn(cluster, number))
        return changes

    def burst(self, clusters: Sequence[int]) -> list[Change]:
        """Changes of different pods, as many as a burst has."""
        pods = [(cluster, number) for cluster in clusters for number in range(self.size.pods)]
        return [self.turn(*pod) for pod in self._chance.sample(pods, min(BURST, len(pods)))]


def happen(servers: ApiServers, changes: Sequence[Change], gaps: Sequence[float] = ()) -> list[int]:
    """The changes happen; when, in ns."""
    return servers.change([(change.cluster, change.document) for change in changes], gaps)
