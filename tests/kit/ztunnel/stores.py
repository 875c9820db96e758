"""ztunnel's three indexes: workloads, services and policies, with its rules for who wins an ambiguous lookup.

`state` writes them, `routing`, `inbound`, `authorization` and `config_dump` read them. Rules of order are kept as they
are, including those that surprise: they are what a control plane has to live with. Where ztunnel iterates over a hash
map the order here is that of arrival.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from tests.kit.ztunnel.records import (
    Endpoint,
    NamespacedHostname,
    NetworkAddress,
    NetworkMode,
    NetworkPrefix,
    Policy,
    PolicyScope,
    Protocol,
    Service,
    Workload,
)

_Key = TypeVar("_Key", bound=Hashable)


class WorkloadStore:
    """Workloads by uid and by (network, address)."""

    def __init__(self) -> None:
        self.by_uid: dict[str, Workload] = {}
        self._by_address: dict[NetworkAddress, list[Workload]] = {}

    def insert(self, workload: Workload) -> None:
        """Adds a workload in place of the one of the same uid. Workloads on the host's network get no address."""
        self.remove(workload.uid)
        self.by_uid[workload.uid] = workload
        for address in _own_addresses(workload):
            self._by_address.setdefault(address, []).append(workload)

    def remove(self, uid: str) -> Workload | None:
        """Takes a workload out; None if there was none."""
        workload = self.by_uid.pop(uid, None)
        if workload is not None:
            for address in _own_addresses(workload):
                left = [other for other in self._by_address.get(address, ()) if other.uid != uid]
                if left:
                    self._by_address[address] = left
                else:
                    self._by_address.pop(address, None)
        return workload

    def at(self, address: NetworkAddress) -> tuple[Workload, ...]:
        """All workloads that claim an address."""
        return tuple(self._by_address.get(address, ()))

    def find_address(self, address: NetworkAddress) -> Workload | None:
        """The workload at an address: a Pod rather than anything else, then one that takes HBONE, then the last one."""

        def rank(indexed: tuple[int, Workload]) -> tuple[bool, bool, int]:
            index, workload = indexed
            return "//Pod/" in workload.uid, workload.protocol is Protocol.HBONE, index

        found = max(enumerate(self._by_address.get(address, ())), key=rank, default=None)
        return None if found is None else found[1]

    def find_hostname(self, key: NamespacedHostname) -> Workload | None:
        """A workload that is reached by DNS name."""
        for workload in self.by_uid.values():
            if workload.hostname == key.hostname and workload.namespace == key.namespace:
                return workload
        return None


class ServiceStore:
    """Services by hostname and by virtual address, and the endpoints that wait for their service."""

    def __init__(self) -> None:
        self.staged: dict[NamespacedHostname, dict[str, Endpoint]] = {}
        self._by_host: dict[str, list[Service]] = {}
        self._by_vip: dict[NetworkAddress, list[Service]] = {}
        self._by_prefix: list[tuple[NetworkPrefix, Service]] = []

    def __iter__(self) -> Iterator[Service]:
        for host in sorted(self._by_host):
            yield from self._by_host[host]

    def get(self, key: NamespacedHostname) -> Service | None:
        """The service of exactly this key."""
        for service in self._by_host.get(key.hostname, ()):
            if service.namespace == key.namespace:
                return service
        return None

    def at(self, address: NetworkAddress) -> tuple[Service, ...]:
        """All services that hold a virtual address, at most one of each namespace."""
        return tuple(self._by_vip.get(address, ()))

    def best_by_host(self, hostname: str, namespace: str) -> Service | None:
        """What a client in `namespace` means by a hostname: its namespace's, then a canonical one, then the first."""
        return _best(self._by_host.get(hostname, ()), namespace)

    def best_by_vip(self, address: NetworkAddress, namespace: str | None) -> Service | None:
        """What a client in `namespace` means by an address.

        Exact addresses come before ranges. Among ranges the client's namespace counts more than the longest prefix,
        that more than a canonical service. With namespace None visibility is not asked for.
        """
        return _best(self._by_vip.get(address, ()), namespace) or self._best_by_prefix(address, namespace)

    def _best_by_prefix(self, address: NetworkAddress, namespace: str | None) -> Service | None:
        def covers(entry: NetworkPrefix, service: Service) -> bool:
            visible = namespace is None or service.visible_to(namespace)
            return visible and entry.network == address.network and address.address in entry.prefix.network

        def rank(found: tuple[NetworkPrefix, Service]) -> tuple[bool, int, bool]:
            entry, service = found
            return service.namespace == namespace, entry.prefix.network.prefixlen, service.canonical

        best = max((found for found in self._by_prefix if covers(*found)), key=rank, default=None)
        return None if best is None else best[1]

    def insert(self, service: Service) -> None:
        """Adds a service, or puts a new version in place of the old one, which passes its endpoints on.

        Endpoints that waited for the service join. All of them are checked against the new version's health policy:
        those dropped earlier do not come back by this.
        """
        key = service.key
        previous = self.get(key)
        endpoints = dict(previous.endpoints) if previous is not None else {}
        endpoints.update(self.staged.pop(key, {}))
        kept = {uid: endpoint for uid, endpoint in endpoints.items() if service.takes(endpoint.status)}
        self.remove(key)
        self._index(msgspec.structs.replace(service, endpoints=kept))

    def remove(self, key: NamespacedHostname) -> bool:
        """Takes a service out together with its endpoints; whether there was one.

        Other services of the namespace that share a virtual address lose it too.
        """
        service = self.get(key)
        if service is None:
            return False
        _drop(self._by_host, key.hostname, key.namespace)
        for vip in service.vips:
            _drop(self._by_vip, vip, key.namespace)
        self._by_prefix = [(entry, other) for entry, other in self._by_prefix if other.key != key]
        self.staged.pop(key, None)
        return True

    def apply_endpoints(
        self, key: NamespacedHostname, upserts: Mapping[str, Endpoint], removals: Iterable[str]
    ) -> None:
        """Changes the endpoints of one service, removals first; without the service they are kept aside for it."""
        service = self.get(key)
        if service is None:
            gone = set(removals)
            kept = {uid: endpoint for uid, endpoint in self.staged.get(key, {}).items() if uid not in gone}
            if kept or upserts:
                self.staged[key] = {**kept, **upserts}
            else:
                self.staged.pop(key, None)
            return
        present = service.endpoints.keys() & set(removals)
        accepted = {uid: endpoint for uid, endpoint in upserts.items() if service.takes(endpoint.status)}
        if present or accepted:
            kept = {uid: endpoint for uid, endpoint in service.endpoints.items() if uid not in present}
            self._index(msgspec.structs.replace(service, endpoints={**kept, **accepted}))

    def _index(self, service: Service) -> None:
        """Enters a version of a service. Ranges keep the entry of the version before, and the older one is found first.

        So endpoints that change alone never reach a service found by a range, until the service itself is sent again.
        """
        _put(self._by_host.setdefault(service.hostname, []), service)
        for vip in service.vips:
            _put(self._by_vip.setdefault(vip, []), service)
        self._by_prefix.extend((entry, service) for entry in service.vip_prefixes)


class PolicyStore:
    """Policies by resource name, and which of them apply without being named by a workload."""

    def __init__(self) -> None:
        self.by_name: dict[str, Policy] = {}

    def insert(self, name: str, policy: Policy) -> None:
        """Adds a policy under its resource name in place of the one before."""
        self.by_name[name] = policy

    def remove(self, name: str) -> None:
        """Takes a policy out, if there is one."""
        self.by_name.pop(name, None)

    def automatic(self, namespace: str) -> tuple[str, ...]:
        """Names of the policies that apply to all workloads of a namespace: its own, then those of the whole mesh."""
        own = [
            name
            for name, policy in self.by_name.items()
            if policy.scope is PolicyScope.NAMESPACE and policy.namespace == namespace
        ]
        mesh = [name for name, policy in self.by_name.items() if policy.scope is PolicyScope.GLOBAL]
        return tuple(sorted(own) + sorted(mesh))


def _own_addresses(workload: Workload) -> Iterator[NetworkAddress]:
    if workload.network_mode is NetworkMode.STANDARD:
        for address in dict.fromkeys(workload.addresses):
            yield NetworkAddress(workload.network, address)


def _best(services: Iterable[Service], namespace: str | None) -> Service | None:
    """Among services of one name or address: the client's namespace, else the last canonical one, else the first."""
    first: Service | None = None
    canonical: Service | None = None
    for service in services:
        if namespace is not None and not service.visible_to(namespace):
            continue
        if service.namespace == namespace:
            return service
        first = first or service
        canonical = service if service.canonical else canonical
    return canonical or first


def _put(services: list[Service], service: Service) -> None:
    """At most one service of a namespace has a place in a list; a later one takes it over."""
    for index, other in enumerate(services):
        if other.namespace == service.namespace:
            services[index] = service
            return
    services.append(service)


def _drop(index: dict[_Key, list[Service]], key: _Key, namespace: str) -> None:
    left = [service for service in index.get(key, ()) if service.namespace != namespace]
    if left:
        index[key] = left
    else:
        index.pop(key, None)
