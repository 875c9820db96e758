"""EndpointSlices of services without selector: pods they name, and endpoints that no pod stands behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.addresses import pack
from aggregator.mesh.home import Home
from aggregator.mesh.networks import network_of
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.mesh.services import Declared, Services
from aggregator.mesh.standing import UNREACHABLE, StandingOf
from aggregator.mesh.workload import ServicePorts, Traits, Workload, WorkloadKey
from watchers.facts.discovery import EndpointSlice
from watchers.facts.keys import ObjectKey


class Attachment(msgspec.Struct, frozen=True, gc=False):
    """An EndpointSlice of a service without selector that names a pod: the pod serves that service."""

    namespace: str
    pod: str
    services: tuple[tuple[str, ServicePorts], ...]


AttachedTo: TypeAlias = Callable[[At, str, str, str], Iterable[Attachment]]
"""Reads, inside a derivation, what slices say of a pod of a cluster, a namespace and a name."""


class Slices(msgspec.Struct, frozen=True):
    """The part of the graph this module declares; `attached` reads what slices say of a pod."""

    attached: AttachedTo
    endpoints: Collection[WorkloadKey, Workload]


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    standing: StandingOf,
    networks: Collection[ObjectKey, str],
    services: Services,
    slices: Source[ObjectKey, EndpointSlice],
) -> Slices:
    """Declare what slices say."""

    def slice_services(at: At, key: ObjectKey, endpoints: EndpointSlice) -> list[Declared]:
        """The services a slice serves, if they take their endpoints from slices: one, and that as it is exported."""
        if not endpoints.service or endpoints.address_type == "FQDN":
            return []
        own = at.get(services.parts, (key[0], "Service", key[2], endpoints.service))
        exported = at.get(services.parts, (key[0], "ServiceExport", key[2], endpoints.service))
        return [one for one in (own, exported) if one is not None and not one.selector]

    def not_served(at: At, key: ObjectKey) -> Withheld:
        return Withheld("SliceNotServed") if includes(at, key[0], key[2]) else UNSELECTED

    def attachments(
        at: At, key: ObjectKey, endpoints: EndpointSlice
    ) -> Iterable[tuple[WorkloadKey, Outcome[Attachment]]]:
        found = slice_services(at, key, endpoints)
        if not found:
            yield key, not_served(at, key)
            return
        by_name = _ports(endpoints)
        # A named target is a port of the pod's, which the slice gives the number of.
        targets = [(port.number, port.target or by_name.get(port.name, 0)) for port in found[0].ports]
        ports = tuple([(number, target) for number, target in targets if target])
        served = tuple([(service.key, ports) for service in found])
        for pod in endpoints.pods:
            yield (*key, pod), Attachment(key[2], pod, served)

    naming = graph.expand("slices that name pods", slices, attachments)
    by_pod = graph.index("pods named by slices", naming, lambda key, one: ((key[0], one.namespace, one.pod),))
    by_namespace = graph.index("slices by namespace", naming, lambda key, one: ((key[0], one.namespace),))
    some = graph.derive("namespaces whose pods slices name", by_namespace, lambda _at, _key, _slices: True)

    def attached(at: At, cluster: str, namespace: str, pod: str) -> Iterable[Attachment]:
        # Nearly all namespaces have none: their pods share what they read.
        if at.get(some, (cluster, namespace)) is None:
            return ()
        return at.group(by_pod, (cluster, namespace, pod)).values()

    def endpoint_workloads(
        at: At, key: ObjectKey, endpoints: EndpointSlice
    ) -> Iterable[tuple[WorkloadKey, Outcome[Workload]]]:
        found = slice_services(at, key, endpoints)
        if not found:
            yield key, not_served(at, key)
            return
        by_name = _ports(endpoints)
        ports = tuple((port.number, by_name[port.name]) for port in found[0].ports if port.name in by_name)
        served = tuple(sorted((service.key, ports) for service in found))
        network, relied_on = network_of(at, networks, key[0]), standing(at, key[0])
        if relied_on == "withdrawn":
            yield key, UNREACHABLE
            return
        for pod in endpoints.pods:
            yield key, Withheld("EndpointOfPod", pod)
        at_home = network == network_of(at, networks, home.cluster)
        traits = Traits(key[0], key[2], network, at_home, canonical_revision="", reduced=relied_on == "reduced")
        seen = set()
        for endpoint in endpoints.endpoints:
            wrong = next((one for one in endpoint.addresses if pack(one) is None), None)
            if wrong is not None or not endpoint.addresses:
                detail = f"{wrong!r} is not an IP address" if endpoint.addresses else "one has no address"
                at.note(key, Finding(key, "EndpointAddressInvalid", "endpoints", detail))
                yield key, Withheld("AddressInvalid", detail)
                continue
            if endpoint.addresses[0] in seen:
                continue
            seen.add(endpoint.addresses[0])
            yield (
                (*key, endpoint.addresses[0]),
                Workload(
                    traits,
                    key[3],
                    endpoint.addresses,
                    served,
                    healthy=endpoint.ready,
                    host_network=True,
                    kind="EndpointSlice",
                    identified=False,
                ),
            )

    return Slices(attached, graph.expand("workloads of slices", slices, endpoint_workloads))


def _ports(endpoints: EndpointSlice) -> dict[str, int]:
    """The numbers of a slice's TCP ports, by name."""
    return {port.name: port.port for port in endpoints.ports if port.protocol in ("", "TCP")}
