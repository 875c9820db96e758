"""WorkloadEntries: workloads that are no pods, such as virtual machines, selected by labels as pods are.

Each is one workload, of the cluster whose object it is. Those of home count; those of remote clusters only if this
process is told to read them.
"""

from __future__ import annotations

from typing import cast

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.addresses import is_host_name, pack
from aggregator.mesh.home import Home
from aggregator.mesh.networks import network_of
from aggregator.mesh.profiles import Profile, ProfileOf
from aggregator.mesh.selection import UNSELECTED
from aggregator.mesh.services import Port
from aggregator.mesh.standing import UNREACHABLE
from aggregator.mesh.workload import ServicePorts, Workload, WorkloadKey, locality_of, tunnel_of
from watchers.facts.istio_networking import REGISTRATION_GROUP, WorkloadEntry
from watchers.facts.keys import ObjectKey, label


def declare(
    graph: Graph,
    home: Home,
    networks: Collection[ObjectKey, str],
    profile_of: ProfileOf,
    entries: Source[ObjectKey, WorkloadEntry],
) -> Collection[WorkloadKey, Workload]:
    """Declare the workloads of WorkloadEntries."""

    def workload(at: At, key: ObjectKey, entry: WorkloadEntry) -> Outcome[Workload]:
        cluster, _, namespace, name = key
        if cluster != home.cluster and not home.remote_entries:
            return Withheld("EntryOfRemoteCluster")
        if not home.serves(entry.revision):
            return Withheld("ObjectOfOtherRevision", entry.revision)
        said = profile_of(at, cluster, namespace, entry.labels)
        if not said.selected:
            return UNSELECTED
        if said.standing == "withdrawn":
            return UNREACHABLE
        one = entry.endpoint
        packed = pack(one.address) is not None
        if not packed and not is_host_name(one.address):
            at.note(key, Finding(key, "EndpointAddressInvalid", "spec.address", f"{one.address[:80]!r} is no address"))
            return Withheld("AddressInvalid", one.address)
        traits = said.traits
        network = one.network or network_of(at, networks, cluster)
        if network != traits.network:
            at_home = network == network_of(at, networks, home.cluster)
            traits = msgspec.structs.replace(traits, network=network, at_home=at_home)
        own = label(entry.annotations, REGISTRATION_GROUP) or said.workload_name or name
        return Workload(
            traits,
            name,
            (one.address,) if packed else (),
            _served(said, dict(one.ports)),
            healthy=True,
            service_account=one.account,
            tunnel=tunnel_of(entry.annotations, native=traits.native_tunnel),
            workload_name=own,
            kind="WorkloadEntry",
            identified=bool(one.account),
            hostname="" if packed else one.address,
            locality=locality_of(one.locality),
            weight=one.weight or 1,
        )

    found = graph.derive("workloads of workload entries", entries, workload)
    return cast("Collection[WorkloadKey, Workload]", found)


def _served(said: Profile, ports: dict[str, int]) -> tuple[tuple[str, ServicePorts], ...]:
    """What it serves. Its own ports, by the names of the services' ports, go before those that services name."""

    def target(port: Port) -> int:
        if port.target_name and not port.optional_name:
            return ports.get(port.target_name, 0)
        return ports.get(port.name) or port.target

    return tuple(
        [
            (service, tuple([(port.number, number) for port in found if (number := target(port))]))
            for service, found in said.services
        ]
    )
