"""Pods of every cluster as workloads.

A pod reads nothing that is its own, so that pods share their records of reads; where its node is (locality) is left to
those who tell it.
"""

from __future__ import annotations

from typing import cast

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.addresses import pack
from aggregator.mesh.profiles import Profile, ProfileOf
from aggregator.mesh.selection import UNSELECTED
from aggregator.mesh.services import Port
from aggregator.mesh.slices import AttachedTo
from aggregator.mesh.standing import UNREACHABLE
from aggregator.mesh.workload import ServicePorts, Workload, WorkloadKey, controller_name, tunnel_of
from watchers.facts.core import Pod
from watchers.facts.keys import ObjectKey


def declare(
    graph: Graph,
    profile_of: ProfileOf,
    attached: AttachedTo,
    pods: Source[ObjectKey, Pod],
) -> Collection[WorkloadKey, Workload]:
    """Declare the workloads of pods."""

    def pod_workload(at: At, key: ObjectKey, pod: Pod) -> Outcome[Workload]:
        cluster, _, namespace, name = key
        if pod.phase in ("Succeeded", "Failed"):
            return Withheld("PodFinished", pod.phase)
        said = profile_of(at, cluster, namespace, pod.labels)
        if not said.selected:
            return UNSELECTED
        if said.standing == "withdrawn":
            return UNREACHABLE
        if not pod.addresses:
            return Withheld("PodHasNoAddress")
        for number, address in enumerate(pod.addresses):
            if pack(address) is None:
                field = f"status.podIPs[{number}]"
                at.note(key, Finding(key, "PodAddressInvalid", field, f"{address!r} is not an IP address"))
                return Withheld("AddressInvalid", address)
        served = said.served if not said.named else _resolve(said, pod)
        added = {service: ports for one in attached(at, cluster, namespace, name) for service, ports in one.services}
        if added:
            served = tuple(sorted({**added, **dict(served)}.items()))
        owner = said.workload_name or controller_name(name, pod)
        return Workload(
            said.traits,
            name,
            pod.addresses,
            served,
            healthy=pod.ready and not pod.deleting,
            service_account=pod.service_account,
            node=pod.node,
            host_network=pod.host_network,
            tunnel=tunnel_of(pod.annotations, native=said.traits.native_tunnel),
            workload_name=owner,
        )

    return cast("Collection[WorkloadKey, Workload]", graph.derive("workloads of pods", pods, pod_workload))


def _resolve(profile: Profile, pod: Pod) -> tuple[tuple[str, ServicePorts], ...]:
    """Target ports of this very pod: a named one is the container port of that name, or the port is left out."""
    named = {}
    for container in reversed(pod.ports):
        if container.protocol in ("", "TCP"):
            named[container.name] = container.port

    def target(port: Port) -> int:
        otherwise = port.target if port.optional_name or not port.target_name else 0
        return named.get(port.target_name, otherwise) if port.target_name else otherwise

    return tuple(
        [
            (service, tuple([(port.number, number) for port in ports if (number := target(port))]))
            for service, ports in profile.services
        ]
    )
