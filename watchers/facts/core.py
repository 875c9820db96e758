"""Facts of the core API group: Namespace, Node, Pod, Service.

Each kind is one frozen fact (what the product keeps) beside the wire struct it is read from. Readers take the wire
struct and the cluster's id, return key and fact, and raise InvalidObject. They drop by form only: whether a pod is
worth anything is judged elsewhere. Fields at their API default equal absent ones, so every spelling of an object is
the same fact.
"""

from __future__ import annotations

from sys import intern
from typing import Annotated

import msgspec

from watchers.facts.conditions import (
    Addresses,
    ConditionObject,
    Conditions,
    LoadBalancedStatus,
    ManagedStatus,
    Written,
    read_addresses,
    read_conditions,
    read_written,
)
from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import (
    Labels,
    ObjectKey,
    Shared,
    repeated_dns_label,
    repeated_subdomain,
    shared_annotations,
    shared_labels,
)
from watchers.facts.metadata import (
    Name,
    ObjectMeta,
    cluster_key,
    created,
    labels_of,
    namespaced_key,
    service_key,
)

PortNumber = Annotated[int, msgspec.Meta(ge=1, le=65535)]
"""A port as objects may name it."""

REDIRECTION = "ambient.istio.io/redirection"
CANARY_WEIGHT = "istio.io/use-waypoint-canary-weight"
TRAFFIC_DISTRIBUTION = "networking.istio.io/traffic-distribution"


class Namespace(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Namespace"):
    """A namespace; of its annotations those that are defaults for the objects in it.

    It is ``deleting`` once it has a deletionTimestamp: nothing new may come into it then.
    """

    labels: Labels
    annotations: Labels
    deleting: bool = False


class Node(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Node"):
    """Where a node is: its labels topology.kubernetes.io/region and /zone, and topology.istio.io/subzone."""

    region: str
    zone: str
    subzone: str


class ContainerPort(msgspec.Struct, frozen=True, gc=False):
    """A named port of a container: what a Service's named target port means for this pod."""

    name: str
    port: int
    protocol: str


class Pod(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Pod"):
    """A pod as the mesh sees it.

    ``addresses`` are those of status.podIPs (else podIP), unparsed, the primary one first. ``ready`` is its condition
    Ready, ``deleting`` whether it has a deletionTimestamp. ``ports`` are the named ports of its containers, then of its
    sidecars (init containers with restartPolicy Always). ``owner_kind`` and ``owner_name`` are of its controller.
    """

    labels: Labels
    annotations: Labels
    created: str
    service_account: str
    node: str
    host_network: bool
    phase: str
    ready: bool
    deleting: bool
    addresses: tuple[str, ...]
    ports: tuple[ContainerPort, ...]
    generate_name: str
    owner_kind: str
    owner_name: str


class ServicePort(msgspec.Struct, frozen=True, gc=False):
    """A port of a Service; ``target`` is the pods' port: a number, a name, or 0 where the Service does not say."""

    name: str
    port: int
    target: int | str
    protocol: str
    app_protocol: str


class Service(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Service"):
    """A Service of any type. ``cluster_ips`` are without "" and "None", the latter being ``headless``.

    ``balancer`` are the addresses of its load balancer, where it has one. ``affinity`` is spec.sessionAffinity, and
    ``affinity_seconds`` how long that of a client holds, 0 where the Service does not say. ``conditions`` are those of
    its status that meshes write, ``written`` what of the status we wrote; both are kept of home's Services alone.
    """

    labels: Labels
    annotations: Labels
    created: str
    type: str
    cluster_ips: tuple[str, ...]
    headless: bool
    selector: Labels
    ports: tuple[ServicePort, ...]
    ip_families: tuple[str, ...]
    internal_traffic_policy: str
    traffic_distribution: str
    publish_not_ready: bool
    external_name: str
    balancer: Addresses = ()
    affinity: str = "None"
    affinity_seconds: int = 0
    conditions: Conditions = ()
    written: Written = ()


# Namespace on the wire


class NamespaceAnnotations(msgspec.Struct, gc=False):
    """The annotations kept of a Namespace."""

    canary_weight: str | None = msgspec.field(default=None, name=CANARY_WEIGHT)
    traffic_distribution: str | None = msgspec.field(default=None, name=TRAFFIC_DISTRIBUTION)


class NamespaceMeta(ObjectMeta, gc=False):
    """``metadata`` of a Namespace."""

    annotations: NamespaceAnnotations | None = None
    deletion: str | None = msgspec.field(default=None, name="deletionTimestamp")


class NamespaceObject(msgspec.Struct, gc=False):
    """A Namespace on the wire."""

    metadata: NamespaceMeta


def read_namespace(wire: NamespaceObject, cluster: str) -> tuple[ObjectKey, Namespace]:
    """Key and fact of a Namespace."""
    metadata = wire.metadata
    own = metadata.annotations
    annotations = (
        shared_annotations(
            (CANARY_WEIGHT, own.canary_weight),
            (TRAFFIC_DISTRIBUTION, own.traffic_distribution),
        )
        if own
        else ()
    )
    # The name of a Namespace is one DNS label, unlike the names of most objects.
    name = repeated_dns_label(metadata.name, "metadata", "name")
    deleting = metadata.deletion is not None
    return (cluster, "Namespace", "", name), Namespace(labels_of(metadata), annotations, deleting)


# Node on the wire


class NodeLabels(msgspec.Struct, gc=False):
    """The labels kept of a Node: a heartbeat or another label never changes the fact."""

    region: str | None = msgspec.field(default=None, name="topology.kubernetes.io/region")
    zone: str | None = msgspec.field(default=None, name="topology.kubernetes.io/zone")
    subzone: str | None = msgspec.field(default=None, name="topology.istio.io/subzone")


class NodeMeta(Name, gc=False):
    """``metadata`` of a Node."""

    labels: NodeLabels | None = None


class NodeObject(msgspec.Struct, gc=False):
    """A Node on the wire."""

    metadata: NodeMeta


def read_node(wire: NodeObject, cluster: str) -> tuple[ObjectKey, Node]:
    """Key and fact of a Node."""
    labels = wire.metadata.labels or NodeLabels()
    return cluster_key(cluster, "Node", wire.metadata), Node(
        intern(labels.region or ""), intern(labels.zone or ""), intern(labels.subzone or "")
    )


# Pod on the wire


class PodAnnotations(msgspec.Struct, gc=False):
    """The annotations kept of a Pod."""

    redirection: str | None = msgspec.field(default=None, name=REDIRECTION)
    canary_weight: str | None = msgspec.field(default=None, name=CANARY_WEIGHT)


class OwnerReference(msgspec.Struct, gc=False):
    """One owner of an object; at most one is its controller."""

    kind: str | None = None
    name: str | None = None
    controller: bool | None = None


class PodMeta(ObjectMeta, gc=False):
    """``metadata`` of a Pod."""

    annotations: PodAnnotations | None = None
    generate_name: str | None = msgspec.field(default=None, name="generateName")
    owners: list[OwnerReference] | None = msgspec.field(default=None, name="ownerReferences")
    deletion: str | None = msgspec.field(default=None, name="deletionTimestamp")


class ContainerPortObject(msgspec.Struct, gc=False):
    """One entry of a container's ``ports``."""

    port: PortNumber = msgspec.field(name="containerPort")
    name: str | None = None
    protocol: str | None = None


class Container(msgspec.Struct, gc=False):
    """A container or init container."""

    ports: list[ContainerPortObject] | None = None
    restart_policy: str | None = msgspec.field(default=None, name="restartPolicy")


class PodSpec(msgspec.Struct, gc=False):
    """``spec`` of a Pod."""

    node_name: str | None = msgspec.field(default=None, name="nodeName")
    service_account: str | None = msgspec.field(default=None, name="serviceAccountName")
    host_network: bool | None = msgspec.field(default=None, name="hostNetwork")
    containers: list[Container] | None = None
    init_containers: list[Container] | None = msgspec.field(default=None, name="initContainers")


class Condition(msgspec.Struct, gc=False):
    """One of an object's conditions."""

    type: str | None = None
    status: str | None = None


class PodIP(msgspec.Struct, gc=False):
    """One entry of ``status.podIPs``."""

    ip: str | None = None


class PodStatus(msgspec.Struct, gc=False):
    """``status`` of a Pod."""

    phase: str | None = None
    conditions: list[Condition] | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    pod_ips: list[PodIP] | None = msgspec.field(default=None, name="podIPs")


class PodObject(msgspec.Struct, gc=False):
    """A Pod on the wire."""

    metadata: PodMeta
    spec: PodSpec | None = None
    status: PodStatus | None = None


_NO_SPEC = PodSpec()
_NO_STATUS = PodStatus()
_NO_OWNER = OwnerReference()

_container_ports: Shared[tuple[tuple[str, int, str], ...], tuple[ContainerPort, ...]] = Shared(4_096)


def read_pod(wire: PodObject, cluster: str) -> tuple[ObjectKey, Pod]:
    """Key and fact of a Pod."""
    metadata = wire.metadata
    spec = wire.spec or _NO_SPEC
    status = wire.status or _NO_STATUS
    own = metadata.annotations
    owner = _NO_OWNER
    for reference in metadata.owners or ():
        if reference.controller:
            owner = reference
    ready = False
    for condition in status.conditions or ():
        if condition.type == "Ready":
            ready = condition.status == "True"
    addresses = tuple([entry.ip for entry in status.pod_ips or () if entry.ip])
    if not addresses and status.pod_ip:
        addresses = (status.pod_ip,)
    account = spec.service_account
    node = spec.node_name
    return namespaced_key(cluster, "Pod", metadata), Pod(
        labels_of(metadata),
        shared_annotations((REDIRECTION, own.redirection), (CANARY_WEIGHT, own.canary_weight)) if own else (),
        created(metadata.creation),
        repeated_subdomain(account, "spec", "serviceAccountName") if account else "",
        repeated_subdomain(node, "spec", "nodeName") if node else "",
        bool(spec.host_network),
        intern(status.phase or ""),
        ready,
        metadata.deletion is not None,
        addresses,
        _named_ports(spec),
        intern(metadata.generate_name or ""),
        intern(owner.kind or ""),
        intern(owner.name or ""),
    )


def _named_ports(spec: PodSpec) -> tuple[ContainerPort, ...]:
    given = [
        (port.name, port.port, port.protocol or "TCP")
        for container in spec.containers or ()
        for port in container.ports or ()
        if port.name
    ]
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            given += [(port.name, port.port, port.protocol or "TCP") for port in container.ports or () if port.name]
    if not given:
        return ()
    key = tuple(given)
    return _container_ports.get(key) or _container_ports.add(
        key, tuple([ContainerPort(intern(name), port, intern(protocol)) for name, port, protocol in given])
    )


# Service on the wire


class ServiceAnnotations(msgspec.Struct, gc=False):
    """The annotations kept of a Service."""

    canary_weight: str | None = msgspec.field(default=None, name=CANARY_WEIGHT)
    traffic_distribution: str | None = msgspec.field(default=None, name=TRAFFIC_DISTRIBUTION)


class ServiceMeta(ObjectMeta, gc=False):
    """``metadata`` of a Service."""

    annotations: ServiceAnnotations | None = None
    managed: list[ManagedStatus] | None = msgspec.field(default=None, name="managedFields")


class ServicePortObject(msgspec.Struct, gc=False):
    """One entry of ``spec.ports`` of a Service."""

    port: PortNumber
    name: str | None = None
    target: int | str | None = msgspec.field(default=None, name="targetPort")
    protocol: str | None = None
    app_protocol: str | None = msgspec.field(default=None, name="appProtocol")


class ClientIP(msgspec.Struct, gc=False):
    """``sessionAffinityConfig.clientIP``."""

    seconds: int | None = msgspec.field(default=None, name="timeoutSeconds")


class AffinityConfig(msgspec.Struct, gc=False):
    """``sessionAffinityConfig`` of a Service or a ServiceImport."""

    client_ip: ClientIP | None = msgspec.field(default=None, name="clientIP")

    @property
    def affinity_seconds(self) -> int:
        """How long the affinity of a client holds, 0 where that is not said."""
        return (self.client_ip.seconds if self.client_ip else None) or 0


class ServiceSpec(msgspec.Struct, gc=False):
    """``spec`` of a Service."""

    type: str | None = None
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    cluster_ips: list[str] | None = msgspec.field(default=None, name="clusterIPs")
    selector: dict[str, str | None] | None = None
    ports: list[ServicePortObject] | None = None
    ip_families: list[str] | None = msgspec.field(default=None, name="ipFamilies")
    internal_traffic_policy: str | None = msgspec.field(default=None, name="internalTrafficPolicy")
    traffic_distribution: str | None = msgspec.field(default=None, name="trafficDistribution")
    publish_not_ready: bool | None = msgspec.field(default=None, name="publishNotReadyAddresses")
    external_name: str | None = msgspec.field(default=None, name="externalName")
    affinity: str | None = msgspec.field(default=None, name="sessionAffinity")
    affinity_config: AffinityConfig | None = msgspec.field(default=None, name="sessionAffinityConfig")


class ServiceStatus(LoadBalancedStatus, gc=False):
    """``status`` of a Service."""

    conditions: list[ConditionObject] | None = None


class ServiceObject(msgspec.Struct, gc=False):
    """A Service on the wire."""

    metadata: ServiceMeta
    spec: ServiceSpec | None = None
    status: ServiceStatus | None = None


_NO_SERVICE_SPEC = ServiceSpec()
_MESHES = ("istio.io/", "isthmus.dev/")


def read_service(wire: ServiceObject, cluster: str) -> tuple[ObjectKey, Service]:
    """Key and fact of a Service."""
    metadata = wire.metadata
    spec = wire.spec or _NO_SERVICE_SPEC
    own = metadata.annotations
    addresses = spec.cluster_ips or [spec.cluster_ip or ""]
    return service_key(cluster, metadata), Service(
        labels_of(metadata),
        shared_annotations((CANARY_WEIGHT, own.canary_weight), (TRAFFIC_DISTRIBUTION, own.traffic_distribution))
        if own
        else (),
        created(metadata.creation),
        intern(spec.type or "ClusterIP"),
        tuple([address for address in addresses if address not in ("", "None")]),
        "None" in addresses,
        shared_labels(spec.selector, "spec", "selector"),
        tuple([_service_port(port, position) for position, port in enumerate(spec.ports or ())]),
        tuple([intern(family) for family in spec.ip_families or ()]),
        intern(spec.internal_traffic_policy or "Cluster"),
        intern(spec.traffic_distribution or ""),
        bool(spec.publish_not_ready),
        spec.external_name or "",
        read_addresses(wire.status),
        intern(spec.affinity or "None"),
        spec.affinity_config.affinity_seconds if spec.affinity_config else 0,
        read_conditions(wire.status.conditions if wire.status else None, *_MESHES),
        read_written(metadata.managed),
    )


def _service_port(wire: ServicePortObject, position: int) -> ServicePort:
    target = wire.target or 0
    if isinstance(target, str):
        if target.isdigit():
            raise InvalidObject(
                ("spec", "ports", position, "targetPort"),
                f"is {target[:80]!r}: in quotes it is the name of a port, and no port has such a name",
                f"write the number without quotes: {target[:80]}",
            )
        target = intern(target)
    elif not 0 <= target <= 65535:
        raise InvalidObject(
            ("spec", "ports", position, "targetPort"), f"is {target}, which is no port", "use 1 to 65535, or a name"
        )
    return ServicePort(
        intern(wire.name or ""), wire.port, target, intern(wire.protocol or "TCP"), intern(wire.app_protocol or "")
    )
