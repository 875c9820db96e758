"""Services as each cluster declares them, before any merging.

Scope is judged by the cluster's own labels: endpoints are shared only if the object in their own cluster says so. What
a remote cluster does not share ends here. A Service that is exported is declared a second time, under its host name of
the cluster set. Selectors are kept in an index by one of their labels, so that finding the
services of a pod looks at the few that could match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Withheld
from aggregator.mesh.addresses import pack
from aggregator.mesh.home import Home, Mesh, is_global
from aggregator.mesh.networks import network_of
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.mesh.service_exports import Exported, age
from aggregator.mesh.waypoints import Asked, Attached, Refused, Waypoints, ingress_uses
from aggregator.order import rank
from watchers.facts.core import Namespace, Service, ServicePort
from watchers.facts.keys import Labels, ObjectKey, label
from watchers.facts.multicluster import ServiceImport

DISTRIBUTION_ANNOTATION = "networking.istio.io/traffic-distribution"

_CLOSE = ("NETWORK", "REGION", "ZONE")
_SAME_NODE = ("NETWORK", "REGION", "ZONE", "SUBZONE", "NODE")
_PREFERENCES = {"preferclose": _CLOSE, "prefersamezone": _CLOSE, "prefersamenode": _SAME_NODE}
_WELL_KNOWN_TCP = frozenset({25, 53, 3306, 27017})
_PROTOCOLS = {
    "kubernetes.io/h2c": "HTTP2",
    "kubernetes.io/ws": "HTTP11",
    "kubernetes.io/wss": "TLS",
    "http": "HTTP11",
    "http2": "HTTP2",
    "grpc": "GRPC",
    "grpc-web": "HTTP11",
    "https": "TLS",
    "tls": "TLS",
    "tcp": "TCP",
    "mongo": "TCP",
    "mysql": "TCP",
    "redis": "TCP",
}


class Port(msgspec.Struct, frozen=True, gc=False):
    """One port of a service: its number, the port behind it (0 when named), and the protocol spoken ("" unknown).

    A target that is not given is the port itself, as the Kubernetes API defaults it.

    `name` and `target_name` serve matching only: the port's name in slices and the container port a name stands for,
    which may be missing where the name is `optional_name`: then the target stands.
    """

    number: int
    target: int
    protocol: str = ""
    name: str = ""
    target_name: str = ""
    transport: str = "TCP"
    optional_name: bool = False


class Balancing(msgspec.Struct, frozen=True, gc=False):
    """How clients choose among endpoints: scopes in falling order of preference, and STRICT or FAILOVER; or else
    PASSTHROUGH, which leaves the choice to the destination that was asked for.
    """

    preference: tuple[str, ...] = ()
    mode: str = ""


class Declared(msgspec.Struct, frozen=True, gc=False):
    """A service as one cluster declares it. `key` is `<namespace>/<hostname>`, the name it has in every cluster.

    `addresses` are IP addresses, or ranges as address/length. `identities` are SPIFFE names that may answer for it, as
    far as its object says so; `kind` is that of the object: an exported Service is that of its ServiceExport, whose
    age counts. `attached` is its waypoint, through which traffic of
    ingress gateways goes as well if `ingress_waypoint`. What has no address may be given one if it `allocates`;
    `allocated` are those it was given before, as its object says. `visibility` is PUBLIC, or NAMESPACE where only
    clients of its own namespace see it.
    """

    key: str
    cluster: str
    namespace: str
    name: str
    hostname: str
    created: str
    is_global: bool
    network: str
    addresses: tuple[str, ...]
    ports: tuple[Port, ...]
    selector: Labels
    ip_families: tuple[str, ...]
    balancing: Balancing
    allow_unready: bool
    kind: str = "Service"
    identities: tuple[str, ...] = ()
    attached: Attached | None = None
    ingress_waypoint: bool = False
    allocates: bool = False
    allocated: tuple[str, ...] = ()
    visibility: str = "PUBLIC"

    @property
    def object(self) -> ObjectKey:
        """Key of the object this was declared by."""
        return (self.cluster, self.kind, self.namespace, self.name)


class Services(msgspec.Struct, frozen=True):
    """Services of all clusters by key (`candidates`), and those of ServiceEntries that all see by hostname.

    Those that take part in what home sees as one service (`parts`): Kubernetes' by their objects, as they are exported
    by the ServiceExports, ServiceEntries' by object and host, and all of them by a label of their selector (cluster,
    namespace, label). What takes no part has no endpoints, however near they are.
    """

    parts: Collection[tuple[str, ...], Declared]
    by_selector: Index[tuple[str, str, tuple[str, str]], tuple[str, ...], Declared]
    candidates: Index[str, tuple[str, ...], Declared]
    by_hostname: Index[str, tuple[str, ...], Declared]


def declare(
    graph: Graph,
    home: Home,
    mesh: Callable[[At], Mesh],
    includes: Includes,
    networks: Collection[ObjectKey, str],
    namespaces: Source[ObjectKey, Namespace],
    waypoints: Waypoints,
    services: Source[ObjectKey, Service],
    exports: Collection[ObjectKey, Exported],
    imports: Source[ObjectKey, ServiceImport],
) -> tuple[Collection[ObjectKey, Declared], Collection[ObjectKey, Declared]]:
    """Declare the Kubernetes services of every cluster, and those that are exported."""

    def declared(at: At, key: ObjectKey, service: Service) -> Outcome[Declared]:
        cluster, _, namespace_name, name = key
        if service.type == "ExternalName":
            return Withheld("ServiceIsExternalName")
        if not includes(at, cluster, namespace_name):
            return UNSELECTED
        namespace = at.get(namespaces, home.namespace_key(cluster, namespace_name))
        shared = is_global(mesh(at).scopes, service.labels, namespace) or (
            not home.export_clusterset_only
            and at.get(exports, (cluster, "ServiceExport", namespace_name, name)) is not None
        )
        if cluster != home.cluster and not shared:
            return Withheld("ServiceIsNotGlobal")
        return of_object(at, key, service, namespace, shared=shared)

    def of_object(
        at: At, key: ObjectKey, service: Service, namespace: Namespace | None, *, shared: bool
    ) -> Declared:
        cluster, _, namespace_name, name = key
        addresses = []
        for number, address in enumerate(service.cluster_ips):
            if pack(address) is None:
                field = f"spec.clusterIPs[{number}]"
                at.note(key, Finding(key, "ServiceAddressInvalid", field, f"{address!r} is not an IP address"))
            else:
                addresses.append(address)
        hostname = f"{name}.{namespace_name}.svc.{home.domain_suffix}"
        return Declared(
            key=f"{namespace_name}/{hostname}",
            cluster=cluster,
            namespace=namespace_name,
            name=name,
            hostname=hostname,
            created=service.created,
            is_global=shared,
            network=network_of(at, networks, cluster),
            addresses=tuple(addresses),
            ports=tuple(_port(port) for port in service.ports),
            selector=service.selector,
            ip_families=service.ip_families or _families(addresses),
            balancing=_balancing(service, namespace),
            allow_unready=service.publish_not_ready,
            attached=attachment(at, waypoints, key, service.labels, service.annotations),
            ingress_waypoint=ingress_uses(service.labels, namespace),
        )

    collection = graph.derive("declared services", services, declared)

    def exported(at: At, key: ObjectKey, export: Exported) -> Outcome[Declared]:
        cluster, _, namespace_name, name = key
        service_key = (cluster, "Service", namespace_name, name)
        own = at.get(collection, service_key)
        if own is None:
            # Nobody else shares it; what is wrong with it is noted here then.
            service = at.get(services, service_key)
            if service is None:
                return Withheld("ExportWithoutService")
            namespace = at.get(namespaces, home.namespace_key(cluster, namespace_name))
            own = of_object(at, service_key, service, namespace, shared=True)
        hostname = f"{name}.{namespace_name}.svc.{home.clusterset_domain}"
        imported = at.get(imports, (home.cluster, "ServiceImport", namespace_name, name))
        return msgspec.structs.replace(
            own,
            key=f"{namespace_name}/{hostname}",
            hostname=hostname,
            created=export.created,
            is_global=True,
            kind="ServiceExport",
            # Those it has are of its own cluster.
            addresses=(),
            allocates=not export.headless,
            allocated=imported.spec.addresses if imported is not None and imported.owned else (),
        )

    return collection, graph.derive("exported services", exports, exported)


def index(
    graph: Graph,
    home: Home,
    declared: Collection[ObjectKey, Declared],
    exported: Collection[ObjectKey, Declared],
    entries: Collection[Any, Declared],
) -> Services:
    """Declare the indexes over services of Kubernetes, exported ones and those of ServiceEntries."""
    everything: tuple[Collection[Any, Declared], ...] = (declared, exported, entries)
    candidates = graph.index("candidates of services", everything, lambda _, one: (one.key,))

    def taking_part(
        _at: At, _service: str, some: Mapping[tuple[str, ...], Declared]
    ) -> Iterable[tuple[tuple[str, ...], Outcome[Declared]]]:
        together = {one.object for one in merged_from(home, some.values())}
        for key in sorted(some):
            one = some[key]
            decides = one.cluster == home.cluster and one.kind == "Service"
            yield key, one if decides or one.object in together else Withheld("ServiceIsNotGlobal")

    # Asked once per service, not once for each cluster that has it.
    parts = graph.expand("services that take part", candidates, taking_part)

    def hostnames(_key: tuple[str, ...], service: Declared) -> Iterable[str]:
        # Only ServiceEntries give hosts of one name to several namespaces.
        return (service.hostname,) if service.kind == "ServiceEntry" and service.visibility == "PUBLIC" else ()

    return Services(
        parts=parts,
        by_selector=graph.index("services by selector", parts, _selector_groups),
        candidates=candidates,
        by_hostname=graph.index("public entries by hostname", everything, hostnames),
    )


def merged_from(home: Home, candidates: Iterable[Declared]) -> list[Declared]:
    """The objects that make up one service as seen from home: the first decides, and counts alone if it is not global.

    Only home's own object gets here without being global. A host name of the cluster set belongs to those who export
    it, whatever ServiceEntries say of it.
    """
    candidates = list(candidates)
    exports = [one for one in candidates if one.kind == "ServiceExport"]
    if exports:
        return sorted(exports, key=lambda one: age(one.cluster, one.created, one.namespace, one.name))
    order = sorted(
        candidates, key=lambda one: rank(home.cluster, one.cluster, one.created, one.namespace, one.name)
    )
    base = order[0]
    return [base, *(one for one in order[1:] if one.is_global)] if base.is_global else [base]


def _selector_groups(_key: tuple[str, ...], service: Declared) -> Iterable[tuple[str, str, tuple[str, str]]]:
    """The label under which a selector is looked for: any one will do, the first is as good as another."""
    return ((service.cluster, service.namespace, service.selector[0]),) if service.selector else ()


def _port(port: ServicePort) -> Port:
    named = isinstance(port.target, str)
    return Port(
        number=port.port,
        target=0 if isinstance(port.target, str) else port.target or port.port,
        protocol=application_protocol(port),
        name=port.name,
        target_name=str(port.target) if named else "",
        transport=port.protocol or "TCP",
    )


def application_protocol(port: ServicePort) -> str:
    """The application protocol of a port: appProtocol, else the name's prefix, else what a well-known port speaks.

    Returns HTTP11, HTTP2, GRPC, TLS, TCP or "" where it is not known (Istio's protocol selection).
    """
    if port.protocol not in ("", "TCP"):
        return ""
    if port.app_protocol:
        return _PROTOCOLS.get(port.app_protocol.lower(), "")
    name = port.name.lower()
    found = _PROTOCOLS.get(name)
    if found is None and "-" in name:
        found = _PROTOCOLS["grpc-web"] if name.startswith("grpc-web-") else _PROTOCOLS.get(name.split("-", 1)[0])
    if found is None and port.port in _WELL_KNOWN_TCP:
        return "TCP"
    return found or ""


def _families(addresses: list[str]) -> tuple[str, ...]:
    """The families of a service that does not name any: those of its addresses, as the Kubernetes API defaults them."""
    return tuple(dict.fromkeys("IPv6" if ":" in address else "IPv4" for address in addresses))


def _balancing(service: Service, namespace: Namespace | None) -> Balancing:
    if service.internal_traffic_policy == "Local":
        return Balancing(("NODE",), "STRICT")
    return distribution(service.annotations, namespace, service.traffic_distribution)


def distribution(annotations: Labels, namespace: Namespace | None, asked: str = "") -> Balancing:
    """How traffic is distributed: as asked for, else by the object's annotation, else by that of its namespace."""
    asked = asked or label(annotations, DISTRIBUTION_ANNOTATION)
    if not asked and namespace is not None:
        asked = label(namespace.annotations, DISTRIBUTION_ANNOTATION)
    preference = _PREFERENCES.get(asked.lower())
    return Balancing(preference, "FAILOVER") if preference else Balancing()


def attachment(
    at: At, waypoints: Waypoints, key: ObjectKey, labels: Labels, annotations: Labels, *, private: bool = False
) -> Attached | None:
    """The waypoint of a service, which is told of where it asks for one that it cannot have."""
    found = waypoints.of(at, Asked(key[0], key[2], labels, annotations, "service", private))
    if isinstance(found, Refused):
        at.note(key, Finding(key, found.reason, "metadata.labels", found.detail))
        return None
    if found is not None and found.without_canary is not None:
        wrong = found.without_canary
        at.note(key, Finding(key, wrong.reason, "metadata.labels", wrong.detail))
    return found


def protocol_of(declared: str) -> str:
    """The application protocol of a port whose protocol an object of Istio declares; "" where it is not known."""
    return _PROTOCOLS.get(declared.lower(), "")
