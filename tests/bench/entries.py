"""Ten thousand entries to measure on: services outside of any cluster, and changes of one thing among them.

`Listed` are ServiceEntries that list two endpoints each; `Selected` are WorkloadEntries, and ServiceEntries that select
ten of them each. Both are objects of home alone. A change is one write, and the names of what a ztunnel is told for it,
as far as all control planes of Istio's API name it alike: a service by namespace and host, a workload by its object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from tests.bench import mesh
from tests.kit import manifests
from tests.kit.manifests import Manifest

NAMESPACE = "entries"
_ENDPOINTS = 2
_SELECTED = 10


class Change(msgspec.Struct, frozen=True):
    """A write, and the names under which it is told, without the cluster they begin with."""

    manifest: Manifest
    told: tuple[str, ...]


class Entries(Protocol):
    """Entries of one kind, by their number."""

    name: str
    """Of this kind of world, for figures."""
    services: int
    workloads: int

    def objects(self) -> Iterator[Manifest]:
        """All there are at first."""

    def names(self) -> tuple[str, ...]:
        """Of all workloads at first."""

    def endpoint(self, number: int) -> Change:
        """One more endpoint of a service."""

    def service(self, number: int) -> Change:
        """One more service."""

    def policy(self, number: int) -> Change:
        """An AuthorizationPolicy for the workloads of a service."""


def told_name(resource: str) -> str:
    """The name of a resource of ztunnels without what says whose it is."""
    return resource.rpartition("networking.istio.io/")[2]


def strict(*, on: bool) -> Manifest:
    """Whether every workload of the mesh takes mutual TLS alone."""
    return manifests.peer_authentication("istio-system/default", "STRICT" if on else "PERMISSIVE")


def _address(first: int, number: int) -> str:
    return f"{first + number // 62_500}.{number // 250 % 250}.{number % 250 + 1}"


def _labels(number: int) -> dict[str, str]:
    return {"app": f"s{number}"}


def _policy(number: int) -> Manifest:
    rule = {"from": [{"source": {"namespaces": ["shop"]}}]}
    return manifests.authorization_policy(f"{NAMESPACE}/p-{number}", rule, selector=_labels(number))


def _infrastructure() -> Iterator[Manifest]:
    yield from mesh.infrastructure(0)
    yield manifests.namespace(NAMESPACE)


class Listed:
    """ServiceEntries with their endpoints in themselves."""

    name = "listed"

    def __init__(self, services: int) -> None:
        self.services = services
        self.workloads = services * _ENDPOINTS

    def objects(self) -> Iterator[Manifest]:
        """See Entries."""
        yield from _infrastructure()
        for number in range(self.services):
            yield self._entry(number)

    def names(self) -> tuple[str, ...]:
        """See Entries."""
        return tuple(name for number in range(self.services) for name in self._told(number, range(_ENDPOINTS)))

    def endpoint(self, number: int) -> Change:
        """See Entries."""
        return Change(self._entry(number, _ENDPOINTS + 1), self._told(number, [_ENDPOINTS]))

    def service(self, number: int) -> Change:
        """See Entries."""
        new = self.services + number
        return Change(self._entry(new), (f"{NAMESPACE}/s{new}.example", *self._told(new, range(_ENDPOINTS))))

    def policy(self, number: int) -> Change:
        """See Entries."""
        return Change(_policy(number), self._told(number, range(_ENDPOINTS)))

    @staticmethod
    def _endpoint(number: int, place: int) -> str:
        return f"10.{_address(100 + 50 * (place // _ENDPOINTS), number * _ENDPOINTS + place % _ENDPOINTS)}"

    def _told(self, number: int, places: range | list[int]) -> tuple[str, ...]:
        return tuple(f"ServiceEntry/{NAMESPACE}/se-{number}/{self._endpoint(number, one)}" for one in places)

    def _entry(self, number: int, endpoints: int = _ENDPOINTS) -> Manifest:
        some = [{"address": self._endpoint(number, one), "network": "n0"} for one in range(endpoints)]
        return manifests.service_entry(
            f"{NAMESPACE}/se-{number}",
            f"s{number}.example",
            endpoints=some,
            labels=_labels(number),  # that of its workloads, for policies
            addresses=[f"240.{_address(0, number)}"],
            location="MESH_INTERNAL",
        )


class Selected:
    """WorkloadEntries, and ServiceEntries that select them by a label."""

    name = "selected"

    def __init__(self, services: int) -> None:
        self.services = services
        self.workloads = services * _SELECTED

    def objects(self) -> Iterator[Manifest]:
        """See Entries."""
        yield from _infrastructure()
        for number in range(self.services):
            yield self._service(number, number)
        for number in range(self.workloads):
            yield self._workload(number)

    def names(self) -> tuple[str, ...]:
        """See Entries."""
        return tuple(self._told(number) for number in range(self.workloads))

    def endpoint(self, number: int) -> Change:
        """See Entries."""
        # Dealt out in turn, so that this is one of the service of that number.
        new = self.workloads + number
        return Change(self._workload(new), (self._told(new),))

    def service(self, number: int) -> Change:
        """See Entries."""
        new = self.services + number
        return Change(self._service(new, number), (f"{NAMESPACE}/s{new}.example", *self._members(number)))

    def policy(self, number: int) -> Change:
        """See Entries."""
        return Change(_policy(number), self._members(number))

    def _members(self, service: int) -> tuple[str, ...]:
        return tuple(self._told(one) for one in range(service, self.workloads, self.services))

    @staticmethod
    def _told(number: int) -> str:
        return f"WorkloadEntry/{NAMESPACE}/we-{number}"

    @staticmethod
    def _service(number: int, selected: int) -> Manifest:
        return manifests.service_entry(
            f"{NAMESPACE}/se-{number}",
            f"s{number}.example",
            selector=_labels(selected),
            addresses=[f"240.{_address(0, number)}"],
            location="MESH_INTERNAL",
        )

    def _workload(self, number: int) -> Manifest:
        app = number % self.services
        name, address = f"{NAMESPACE}/we-{number}", f"10.{_address(100, number)}"
        return manifests.workload_entry(name, address, labels=_labels(app), account=f"s{app}", network="n0")
