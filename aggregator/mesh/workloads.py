"""Workloads: pods of every cluster, and endpoints of slices that no pod stands behind.

Which services a pod belongs to, and which network, depends on its labels alone, so it is worked out once per set of
labels (the pods of a Deployment share one) and read by each pod. A pod reads nothing that is its own, so that pods
share their records of reads; where its node is (locality) is left to those who tell it. Sums per network and service,
of capacity, ports and identities, are all that the rest of the mesh ever needs of workloads elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeAlias, cast

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Sums, Withheld
from aggregator.mesh.addresses import pack
from aggregator.mesh.home import Home
from aggregator.mesh.networks import NETWORK_LABEL, network_of
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.mesh.services import Declared, Port, Services
from aggregator.mesh.standing import UNREACHABLE, Standing, StandingOf
from watchers.facts.core import Pod
from watchers.facts.discovery import EndpointSlice
from watchers.facts.keys import Labels, ObjectKey, label

REDIRECTION_ANNOTATION = "ambient.istio.io/redirection"
TUNNEL_LABEL = "networking.istio.io/tunnel"
WORKLOAD_NAME_LABEL = "service.istio.io/workload-name"

ServicePorts: TypeAlias = tuple[tuple[int, int], ...]
"""(service port, target port) of the ports one workload serves of one service."""
WorkloadKey: TypeAlias = tuple[str, ...]
"""The Pod's ObjectKey; for an endpoint of a slice, the EndpointSlice's ObjectKey and the first address."""
ServiceInNetwork: TypeAlias = tuple[str, str]
"""(network, service key)."""

READY, TOTAL, PORTS, ACCOUNT = "ready", "total", "ports", "account"
READY_REDUCED, REDUCED = "ready reduced", "reduced"
LabelSet: TypeAlias = tuple[str, str, Labels]


class Workload(msgspec.Struct, frozen=True, gc=False):
    """Something that serves: where it is, who it is and what it serves, as far as any proxy is concerned.

    `services` pairs service keys with the ports served of each. `tunnel` is "HBONE" where the node's proxy or the pod
    itself (`native_tunnel`) terminates tunnels, else "". `at_home`: it is in home's network, where home's proxies reach
    it without a gateway. `reduced`: its cluster has that standing.
    """

    cluster: str
    namespace: str
    name: str
    network: str
    at_home: bool
    addresses: tuple[str, ...]
    services: tuple[tuple[str, ServicePorts], ...]
    healthy: bool
    service_account: str = ""
    node: str = ""
    host_network: bool = False
    tunnel: str = ""
    native_tunnel: bool = False
    is_pod: bool = True
    workload_name: str = ""
    canonical_name: str = ""
    canonical_revision: str = ""
    labels: Labels = ()
    reduced: bool = False


class Profile(msgspec.Struct, frozen=True, gc=False):
    """All that pods of a cluster and namespace with one set of labels have in common.

    The services that select them (`served` is ready to use unless some target port is `named`), their network and
    whether that is home's, whether they terminate tunnels, and the names labels give them ("" where they give none).
    Of a namespace that does not count there is nothing else to say: they are not `selected`.
    """

    services: tuple[tuple[str, tuple[Port, ...]], ...]
    served: tuple[tuple[str, ServicePorts], ...]
    named: bool
    network: str
    at_home: bool
    standing: Standing = "full"
    selected: bool = True
    native_tunnel: bool = False
    workload_name: str = ""
    canonical_name: str = ""
    canonical_revision: str = ""


_UNSELECTED = Profile((), (), named=False, network="", at_home=False, selected=False)


class Attachment(msgspec.Struct, frozen=True, gc=False):
    """An EndpointSlice of a service without selector that names a pod: the pod serves that service."""

    namespace: str
    pod: str
    service: str
    ports: ServicePorts


class Workloads(msgspec.Struct, frozen=True):
    """The part of the graph this module declares.

    `by_service` are sums of all workloads, `near` the workloads themselves: of those in home's network or cluster,
    which are the ones that home's gateways reach without another gateway.
    """

    label_sets: Collection[LabelSet, Sums]
    pods: Collection[WorkloadKey, Workload]
    endpoints: Collection[WorkloadKey, Workload]
    by_service: Collection[ServiceInNetwork, Sums]
    near: Index[ServiceInNetwork, WorkloadKey, Workload]


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    standing: StandingOf,
    networks: Collection[ObjectKey, str],
    services: Services,
    pods: Source[ObjectKey, Pod],
    slices: Source[ObjectKey, EndpointSlice],
) -> Workloads:
    """Declare workloads and their sums per network and service."""
    label_sets = graph.fold(
        "label sets of pods", pods, lambda key, pod: (((key[0], key[2], pod.labels), TOTAL, 1),) if pod.labels else ()
    )

    def is_home(at: At, network: str) -> bool:
        return network == network_of(at, networks, home.cluster)

    def without_labels(at: At, cluster: str, namespace: str) -> Profile:
        if not includes(at, cluster, namespace):
            return _UNSELECTED
        network = network_of(at, networks, cluster)
        return Profile(
            (), (), named=False, network=network, at_home=is_home(at, network), standing=standing(at, cluster)
        )

    def profile(at: At, key: LabelSet, _count: Sums) -> Profile:
        cluster, namespace, labels = key
        if not includes(at, cluster, namespace):
            return _UNSELECTED
        present = set(labels)
        found = [
            service
            for pair in labels
            for service in at.group(services.by_selector, (cluster, namespace, pair)).values()
            if present.issuperset(service.selector)
        ]
        found.sort(key=lambda service: service.key)
        network = label(labels, NETWORK_LABEL) or network_of(at, networks, cluster)
        return Profile(
            services=tuple((service.key, service.ports) for service in found),
            served=tuple((one.key, tuple((port.number, port.target) for port in one.ports)) for one in found),
            named=any(port.target_name for service in found for port in service.ports),
            network=network,
            at_home=is_home(at, network),
            standing=standing(at, cluster),
            native_tunnel="http" in label(labels, TUNNEL_LABEL).split(","),
            workload_name=label(labels, WORKLOAD_NAME_LABEL),
            canonical_name=_first(labels, "service.istio.io/canonical-name", "app.kubernetes.io/name", "app"),
            canonical_revision=_first(
                labels, "service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"
            ),
        )

    profiles = graph.derive("profiles of label sets", label_sets, profile)

    def slice_service(at: At, key: ObjectKey, endpoints: EndpointSlice) -> Declared | None:
        """The service a slice serves, if that service takes its endpoints from slices."""
        if not endpoints.service or endpoints.address_type == "FQDN":
            return None
        service = at.get(services.declared, (key[0], "Service", key[2], endpoints.service))
        return service if service is not None and not service.selector else None

    def not_served(at: At, key: ObjectKey) -> Withheld:
        return Withheld("SliceNotServed") if includes(at, key[0], key[2]) else UNSELECTED

    def attachments(
        at: At, key: ObjectKey, endpoints: EndpointSlice
    ) -> Iterable[tuple[WorkloadKey, Outcome[Attachment]]]:
        service = slice_service(at, key, endpoints)
        if service is None:
            yield key, not_served(at, key)
            return
        for endpoint in {one.target_name: one for one in endpoints.endpoints if one.target_kind == "Pod"}.values():
            served = tuple((port.number, port.target) for port in service.ports)
            yield (*key, endpoint.target_name), Attachment(key[2], endpoint.target_name, service.key, served)

    attached = graph.index(
        "pods named by slices",
        graph.expand("slices that name pods", slices, attachments),
        lambda key, one: ((key[0], one.namespace),),
    )

    def endpoint_workloads(
        at: At, key: ObjectKey, endpoints: EndpointSlice
    ) -> Iterable[tuple[WorkloadKey, Outcome[Workload]]]:
        service = slice_service(at, key, endpoints)
        if service is None:
            yield key, not_served(at, key)
            return
        by_name = {port.name: port.port for port in endpoints.ports if port.protocol in ("", "TCP")}
        served = tuple((port.number, by_name[port.name]) for port in service.ports if port.name in by_name)
        network, relied_on = network_of(at, networks, key[0]), standing(at, key[0])
        if relied_on == "withdrawn":
            yield key, UNREACHABLE
            return
        seen = set()
        for endpoint in endpoints.endpoints:
            if endpoint.target_kind == "Pod":
                yield key, Withheld("EndpointOfPod", endpoint.target_name)
                continue
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
                    cluster=key[0],
                    namespace=key[2],
                    name=key[3],
                    network=network,
                    at_home=is_home(at, network),
                    addresses=endpoint.addresses,
                    services=((service.key, served),),
                    healthy=endpoint.ready,
                    host_network=True,
                    is_pod=False,
                    reduced=relied_on == "reduced",
                ),
            )

    def pod_workload(at: At, key: ObjectKey, pod: Pod) -> Outcome[Workload]:
        cluster, _, namespace, name = key
        if pod.phase in ("Succeeded", "Failed"):
            return Withheld("PodFinished", pod.phase)
        said = at.get(profiles, (cluster, namespace, pod.labels)) or without_labels(at, cluster, namespace)
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
        named_by_slices = at.group(attached, (cluster, namespace))
        if named_by_slices:
            served = _with_attachments(served, name, named_by_slices.values())
        owner = said.workload_name or controller_name(name, pod)
        captured = label(pod.annotations, REDIRECTION_ANNOTATION) == "enabled"
        return Workload(
            cluster=cluster,
            namespace=namespace,
            name=name,
            network=said.network,
            at_home=said.at_home,
            addresses=pod.addresses,
            services=served,
            healthy=pod.ready and not pod.deleting,
            service_account=pod.service_account,
            node=pod.node,
            host_network=pod.host_network,
            tunnel="HBONE" if said.native_tunnel or captured else "",
            native_tunnel=said.native_tunnel,
            workload_name=owner,
            canonical_name=said.canonical_name or owner,
            canonical_revision=said.canonical_revision or "latest",
            labels=pod.labels,
            reduced=said.standing == "reduced",
        )

    pod_workloads = cast("Collection[WorkloadKey, Workload]", graph.derive("workloads of pods", pods, pod_workload))
    endpoints = graph.expand("workloads of slices", slices, endpoint_workloads)
    by_service = graph.fold("workloads by network and service", (pod_workloads, endpoints), contributions)

    def services_near(_key: WorkloadKey, workload: Workload) -> Iterable[ServiceInNetwork]:
        near = workload.at_home or workload.cluster == home.cluster
        return [(workload.network, service) for service, _ in workload.services] if near else ()

    near = graph.index("workloads near by service", (pod_workloads, endpoints), services_near)
    return Workloads(label_sets, pod_workloads, endpoints, by_service, near)


def contributions(_key: WorkloadKey, workload: Workload) -> Iterable[tuple[ServiceInNetwork, Hashable, int]]:
    """What a workload adds to each of its services in its network.

    Tags: TOTAL and READY count workloads, (PORTS, numbers) those that serve just these ports, and
    (ACCOUNT, namespace, service account) those that run as it. (REDUCED, cluster) and (READY_REDUCED, cluster) count
    those again that are of a cluster whose endpoints count half.
    """
    brought: list[tuple[ServiceInNetwork, Hashable, int]] = []
    for service, ports in workload.services:
        group = (workload.network, service)
        brought += ((group, TOTAL, 1), (group, (PORTS, tuple([number for number, _ in ports])), 1))
        if workload.healthy:
            brought.append((group, READY, 1))
        if workload.reduced:
            brought.append((group, (REDUCED, workload.cluster), 1))
            if workload.healthy:
                brought.append((group, (READY_REDUCED, workload.cluster), 1))
        if workload.is_pod:
            brought.append((group, (ACCOUNT, workload.namespace, workload.service_account or "default"), 1))
    return brought


def _resolve(profile: Profile, pod: Pod) -> tuple[tuple[str, ServicePorts], ...]:
    """Target ports of this very pod: a named one is the container port of that name, or the port is left out."""
    named = {}
    for container in reversed(pod.ports):
        if container.protocol in ("", "TCP"):
            named[container.name] = container.port
    return tuple(
        (
            service,
            tuple(
                (port.number, named.get(port.target_name, 0) if port.target_name else port.target)
                for port in ports
                if not port.target_name or port.target_name in named
            ),
        )
        for service, ports in profile.services
    )


def _with_attachments(
    served: tuple[tuple[str, ServicePorts], ...], pod: str, attachments: Iterable[Attachment]
) -> tuple[tuple[str, ServicePorts], ...]:
    added = {one.service: one.ports for one in attachments if one.pod == pod}
    return tuple(sorted({**added, **dict(served)}.items())) if added else served


def _first(labels: Labels, *keys: str) -> str:
    return next((value for value in (label(labels, key) for key in keys) if value), "")


def controller_name(name: str, pod: Pod) -> str:
    """The name of the workload a pod belongs to: its controller's name without generated parts.

    Of a ReplicaSet the pod template hash goes, of a Job the schedule's number (8 to 10 digits); a
    ReplicationController of a DeploymentConfig gives that one's name. Pods not made from a template keep their own.
    """
    if not pod.generate_name or not pod.owner_name:
        return name
    if pod.owner_kind == "ReplicaSet":
        for key in ("pod-template-hash", "rollouts-pod-template-hash"):
            template = label(pod.labels, key)
            if template and pod.owner_name.endswith(f"-{template}"):
                return pod.owner_name[: -len(template) - 1]
    if pod.owner_kind == "ReplicationController":
        return label(pod.labels, "deploymentconfig") or pod.owner_name
    if pod.owner_kind == "Job":
        stem, _, number = pod.owner_name.rpartition("-")
        if stem and number.isdigit() and 8 <= len(number) <= 10:
            return stem
    return pod.owner_name
