"""Address book: which resources of the view of addresses a name stands for, and what is needed with each.

In: the resources of the view, one by one as they change. Out: answers to what a ztunnel asks that is told only what it
asks for: names by uid, by service and by address, endpoints of services, gateways and waypoints. About 0.5 KB for each
resource, so it is kept only while such a ztunnel is connected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aggregator.views.ztunnel import is_gateway
from xds.encoded import Resource
from xds.messages.address_entry import AddressEntry, address_name, read_address_name, read_entry


class AddressBook:
    """The book. `home` is the cluster whose nodes ztunnels run on."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._entries: dict[str, AddressEntry] = {}
        self._joins: dict[str, tuple[str, ...]] = {}
        self._workloads: dict[str, dict[str, None]] = {}
        """Workloads by address."""
        self._services: dict[str, dict[str, None]] = {}
        """Services by address, those with ranges of addresses left out."""
        self._ranged: dict[str, AddressEntry] = {}
        """Services with ranges of addresses: few."""
        self._endpoints: dict[str, dict[str, None]] = {}
        self._nodes: dict[str, dict[str, None]] = {}
        self._gateways: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, name: str, resource: Resource | None) -> None:
        """A resource as it is from now on; None: it is gone."""
        self._take_out(name)
        if resource is None:
            return
        entry = self._entries[name] = read_entry(resource)
        by_address = self._services if entry.is_service else self._workloads
        for address in entry.addresses:
            by_address.setdefault(address, {})[name] = None
        if entry.ranges:
            self._ranged[name] = entry
        if entry.is_service:
            return
        self._joins[name] = resource.ties.joins
        for service in resource.ties.joins:
            self._endpoints.setdefault(service, {})[name] = None
        if is_gateway(name):
            self._gateways[name] = None
        elif entry.node and entry.cluster == self._home:
            self._nodes.setdefault(entry.node, {})[name] = None

    def find(self, asked: str) -> tuple[str, ...]:
        """The resources a name stands for: a workload by its uid, the workloads at an address, a service by its name,
        the services at an address, the longest range last of those that hold it first. None of them: nothing.
        """
        entry = self._entries.get(asked)
        if entry is not None and not entry.is_service:
            return (asked,)
        where = read_address_name(asked)
        spelled = address_name(*where) if where else ""
        if workloads := self._workloads.get(spelled):
            return tuple(sorted(workloads, key=self._preference))
        if entry is not None:
            return (asked,)
        if where is None:
            return ()
        # A client of another namespace than the best one's may mean another of them: it has rules of its own.
        return (*self._services.get(spelled, ()), *self._ranges_around(*where))

    def members(self, service: str) -> Iterable[str]:
        """The workloads that are endpoints of a service."""
        return self._endpoints.get(service, ())

    def needs(self, name: str) -> Iterator[str]:
        """The gateways and waypoints that a resource names."""
        entry = self._entries.get(name)
        for needed in entry.needs if entry is not None else ():
            yield from self.find(needed)

    def sought(self, name: str) -> tuple[str, ...]:
        """The names by which one asks for a resource, but for its own: its addresses and its services."""
        entry = self._entries.get(name)
        return () if entry is None else (*entry.addresses, *self._joins.get(name, ()))

    def spans(self, name: str) -> bool:
        """Whether a resource has ranges of addresses, so that not all names one asks by can be listed."""
        return name in self._ranged

    def aliases(self, name: str) -> tuple[str, ...]:
        """The other names of a resource: `<network>/<address>`, and for a range the number of bits behind it."""
        entry = self._entries.get(name)
        if entry is None:
            return ()
        ranges = (f"{address_name(network, address)}/{bits}" for network, address, bits in entry.ranges)
        return (*entry.addresses, *ranges)

    def stands(self, name: str, node: str) -> bool:
        """Whether the ztunnel of a node is told of a resource unasked."""
        return name in self._gateways or (bool(node) and name in self._nodes.get(node, ()))

    def standing(self, node: str) -> Iterable[str]:
        """All that it is told unasked: the gateways of networks, and the workloads of its node."""
        return (*self._gateways, *(self._nodes.get(node, ()) if node else ()))

    def _take_out(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        by_address = self._services if entry.is_service else self._workloads
        for address in entry.addresses:
            _drop(by_address, address, name)
        self._ranged.pop(name, None)
        for service in self._joins.pop(name, ()):
            _drop(self._endpoints, service, name)
        self._gateways.pop(name, None)
        if entry.node:
            _drop(self._nodes, entry.node, name)

    def _preference(self, name: str) -> tuple[bool, bool, str]:
        """As a ztunnel chooses among workloads of one address: a pod, then what takes tunnels."""
        return "//Pod/" not in name, not self._entries[name].tunnel, name

    def _ranges_around(self, network: str, address: bytes) -> list[str]:
        found = [
            (-bits, name)
            for name, entry in self._ranged.items()
            for where, first, bits in entry.ranges
            if where == network and _within(address, first, bits)
        ]
        return [name for _, name in sorted(found)]


def _drop(groups: dict[str, dict[str, None]], group: str, name: str) -> None:
    members = groups.get(group)
    if members is not None:
        members.pop(name, None)
        if not members:
            del groups[group]


def _within(address: bytes, first: bytes, bits: int) -> bool:
    size = 8 * len(address)
    if len(first) != len(address) or bits > size:
        return False
    return int.from_bytes(address) >> (size - bits) == int.from_bytes(first) >> (size - bits)
