"""The state of a ztunnel and how one response changes it.

Input are the updates and removals of a response that passed `validation`, in order; output is the changed stores and
the oddities that show only beside other resources. As in ztunnel, workloads and services change one by one (upserts,
then removals), while endpoints are collected over the whole response and applied at its end, to each service once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.kit.ztunnel.readings import Oddity, PolicyUpdate, ServiceUpdate, Trait, WorkloadUpdate
from tests.kit.ztunnel.records import (
    Endpoint,
    NamespacedHostname,
    NetworkAddress,
    NetworkMode,
    Service,
    Workload,
)
from tests.kit.ztunnel.stores import PolicyStore, ServiceStore, WorkloadStore


class State:
    """Everything a ztunnel knows of the mesh."""

    def __init__(self) -> None:
        self.workloads = WorkloadStore()
        self.services = ServiceStore()
        self.policies = PolicyStore()

    def find_address(self, address: NetworkAddress, namespace: str | None) -> Workload | Service | None:
        """What is at an address: a workload if there is one, so a Pod's address hides an equal virtual address."""
        return self.workloads.find_address(address) or self.services.best_by_vip(address, namespace)

    def find_hostname(self, key: NamespacedHostname) -> Service | Workload | None:
        """What a gateway or waypoint named by hostname is."""
        return self.services.get(key) or self.workloads.find_hostname(key)

    def apply_addresses(
        self, updates: Iterable[WorkloadUpdate | ServiceUpdate], removals: Sequence[str]
    ) -> tuple[Oddity, ...]:
        """Takes in one response of type Address."""
        changes = _EndpointChanges()
        workloads: dict[str, Workload] = {}
        displaced: list[tuple[NetworkAddress, NamespacedHostname, NamespacedHostname]] = []
        for update in updates:
            match update:
                case WorkloadUpdate(workload=workload, endpoints=endpoints):
                    self._take_out(workload.uid, changes)
                    self.workloads.insert(workload)
                    changes.add(workload.uid, endpoints)
                    workloads[workload.uid] = workload
                case ServiceUpdate(service=service):
                    displaced.extend(self._displaced_by(service))
                    self.services.insert(service)
        for name in removals:
            if not self._take_out(name, changes):
                self._remove_service(name)
        changes.apply(self.services)
        return (*self._shared_addresses(workloads.values()), *self._shared_vips(displaced))

    def apply_policies(self, updates: Iterable[tuple[str, PolicyUpdate]], removals: Iterable[str]) -> None:
        """Takes in one response of type Authorization; `updates` come with their resource names."""
        for name, update in updates:
            self.policies.insert(name, update.policy)
        for name in removals:
            self.policies.remove(name)

    def _take_out(self, uid: str, changes: _EndpointChanges) -> bool:
        workload = self.workloads.remove(uid)
        if workload is None:
            return False
        changes.remove(uid, workload.services)
        return True

    def _remove_service(self, name: str) -> None:
        """Removes the service called `namespace/hostname`; any other name means nothing."""
        namespace, slash, hostname = name.partition("/")
        if slash and "/" not in hostname:
            self.services.remove(NamespacedHostname(namespace, hostname))

    def _shared_addresses(self, workloads: Iterable[Workload]) -> Iterator[Oddity]:
        for workload in workloads:
            if workload.network_mode is NetworkMode.HOST_NETWORK:
                continue
            for address in (NetworkAddress(workload.network, ip) for ip in workload.addresses):
                for other in self.workloads.at(address):
                    if other.uid != workload.uid:
                        yield Oddity(workload.uid, Trait.SHARED_ADDRESS, f"{address} is also {other.uid}")

    def _displaced_by(
        self, service: Service
    ) -> Iterator[tuple[NetworkAddress, NamespacedHostname, NamespacedHostname]]:
        """Virtual addresses that `service` is about to take from another service of its namespace, and which."""
        for vip in service.vips:
            for other in self.services.at(vip):
                if other.namespace == service.namespace and other.hostname != service.hostname:
                    yield vip, service.key, other.key

    def _shared_vips(
        self, displaced: Iterable[tuple[NetworkAddress, NamespacedHostname, NamespacedHostname]]
    ) -> Iterator[Oddity]:
        """Of the addresses taken, those that both services still hold at the end of the response."""
        for vip, taker, other in displaced:
            holders = [service for service in (self.services.get(taker), self.services.get(other)) if service]
            if len(holders) == 2 and all(vip in service.vips for service in holders):
                yield Oddity(str(taker), Trait.SHARED_VIP, f"{vip} is also {other}")


class _EndpointChanges:
    """Endpoints that one response adds and removes, by service."""

    def __init__(self) -> None:
        self._upserts: dict[NamespacedHostname, dict[str, Endpoint]] = {}
        self._removals: dict[NamespacedHostname, set[str]] = {}

    def add(self, uid: str, endpoints: Iterable[tuple[NamespacedHostname, Endpoint]]) -> None:
        for service, endpoint in endpoints:
            self._upserts.setdefault(service, {})[uid] = endpoint

    def remove(self, uid: str, services: Iterable[NamespacedHostname]) -> None:
        for service in services:
            self._removals.setdefault(service, set()).add(uid)

    def apply(self, services: ServiceStore) -> None:
        """Removals go before upserts whatever their order was: a workload sent and removed in one response stays."""
        for service in dict.fromkeys((*self._removals, *self._upserts)):
            services.apply_endpoints(service, self._upserts.get(service, {}), self._removals.get(service, ()))
