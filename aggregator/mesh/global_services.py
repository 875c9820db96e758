"""Services as seen from home: one per `<namespace>/<hostname>`, merged over the clusters that share it.

The home object decides where there is one; a service that home does not share stays home's alone. Without a home object
the first cluster in order stands in for it. Addresses and ports are the union, each endpoint is offered only under the
ports it serves, and the order in which clusters were heard of changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome
from aggregator.mesh.allocated_addresses import AllocatedAddresses
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.identities import accounts_elsewhere, spiffe_id
from aggregator.mesh.networks import network_of
from aggregator.mesh.services import Balancing, Declared, Port, Services, merged_from
from aggregator.mesh.waypoints import Attached
from aggregator.mesh.workload import ServiceInNetwork
from aggregator.mesh.workloads import Workloads
from aggregator.order import Rank, rank
from watchers.facts.keys import ObjectKey


class Service(msgspec.Struct, frozen=True, gc=False):
    """A service as home's proxies should know it. `key` is `<namespace>/<hostname>`, `base` the object that decides.

    `addresses` are (network, IP) pairs of every sharing cluster, `identities` the SPIFFE names that may answer for it
    from other networks; both sorted. `clusters` are the ids of the clusters merged here, sorted. `allocated` are those
    of the addresses that only home knows, since they were given here. `visibility` is that of its base.
    Whoever asks for the hostname in no namespace means the one that is `canonical`. `attached` is the waypoint of its
    base, through which ingress gateways go as well if `ingress_waypoint`.
    """

    key: str
    namespace: str
    name: str
    hostname: str
    base: ObjectKey
    is_global: bool
    clusters: tuple[str, ...]
    addresses: tuple[tuple[str, str], ...]
    ports: tuple[Port, ...]
    ip_families: tuple[str, ...]
    balancing: Balancing
    allow_unready: bool
    identities: tuple[str, ...]
    canonical: bool = True
    attached: Attached | None = None
    ingress_waypoint: bool = False
    allocated: tuple[tuple[str, str], ...] = ()
    visibility: str = "PUBLIC"


class GlobalServices(msgspec.Struct, frozen=True):
    """The part of the graph this module declares."""

    services: Collection[str, Service]
    networks_of_service: Index[str, ServiceInNetwork, Mapping[object, int]]


def declare(
    graph: Graph,
    home: Home,
    mesh: Callable[[At], Mesh],
    networks: Collection[ObjectKey, str],
    services: Services,
    allocated: AllocatedAddresses,
    workloads: Workloads,
) -> GlobalServices:
    """Declare the services as seen from home."""
    by_service = graph.index("networks of services", workloads.by_service, lambda key, _: (key[1],))

    def accounts(
        at: At, _service: str, members: Mapping[ServiceInNetwork, Mapping[object, int]]
    ) -> tuple[tuple[str, str], ...]:
        return accounts_elsewhere(members, network_of(at, networks, home.cluster))

    elsewhere = graph.derive("accounts elsewhere", by_service, accounts)

    def canonical(at: At, base: Declared) -> bool:
        """Whether a hostname stands for this service where nobody says which namespace is meant."""
        if base.kind == "Service":
            return True
        if base.visibility != "PUBLIC":
            return False
        rivals = at.group(services.by_hostname, base.hostname).values()
        if at.get(services.declared, _service_named(home, base.hostname)) is not None:
            return False
        return base == min(rivals, key=lambda one: _rank(home, one), default=base)

    def merged(at: At, key: str, candidates: Mapping[tuple[str, ...], Declared]) -> Outcome[Service]:
        sharing = merged_from(home, candidates.values())
        base = sharing[0]
        own_network = network_of(at, networks, home.cluster)
        given = tuple([(own_network, address) for address in allocated.of(at, base)])
        if not base.is_global:
            return _service(base, sharing, given, base.ports, base.identities, canonical=canonical(at, base))
        trust_domain = mesh(at).trust_domain
        found = {spiffe_id(trust_domain, namespace, name) for namespace, name in at.get(elsewhere, key) or ()}
        # Behind another network's gateway a waypoint may answer in the place of the pods.
        for one in sharing:
            if one.attached is not None and one.network != own_network:
                found.update(_waypoints(trust_domain, one.attached))
        identities = tuple(sorted(found.union(*(one.identities for one in sharing))))
        ports = _union(sharing)
        disagreement = _disagreement(sharing)
        if disagreement:
            at.note(base.object, Finding(base.object, "ServicePortConflict", "spec.ports", disagreement))
        return _service(base, sharing, given, ports, identities, canonical=canonical(at, base))

    return GlobalServices(graph.derive("services", services.candidates, merged), by_service)


def _waypoints(trust_domain: str, attached: Attached) -> list[str]:
    """The identities of the waypoints of a service."""
    both = (attached.waypoint, attached.canary)
    return [spiffe_id(trust_domain, one.namespace, one.account) for one in both if one is not None]


def _rank(home: Home, one: Declared) -> Rank:
    return rank(home.cluster, one.cluster, one.created, one.namespace, one.name)


def _service_named(home: Home, hostname: str) -> ObjectKey:
    """The key of the Kubernetes Service of home that a hostname is the one of, if it is any's."""
    name, _, rest = hostname.partition(".")
    return (home.cluster, "Service", rest.removesuffix(f".svc.{home.domain_suffix}"), name)


def _service(
    base: Declared,
    sharing: list[Declared],
    allocated: tuple[tuple[str, str], ...],
    ports: tuple[Port, ...],
    identities: tuple[str, ...],
    *,
    canonical: bool,
) -> Service:
    declared = {(one.network, address) for one in sharing for address in one.addresses}
    return Service(
        key=base.key,
        namespace=base.namespace,
        name=base.name,
        hostname=base.hostname,
        base=base.object,
        is_global=base.is_global,
        clusters=tuple(sorted(one.cluster for one in sharing)),
        addresses=tuple(sorted(declared.union(allocated))),
        ports=ports,
        ip_families=base.ip_families,
        balancing=base.balancing,
        allow_unready=base.allow_unready,
        identities=identities,
        canonical=canonical,
        attached=base.attached,
        ingress_waypoint=base.ingress_waypoint and base.attached is not None,
        allocated=allocated,
        visibility=base.visibility,
    )


def _union(sharing: list[Declared]) -> tuple[Port, ...]:
    """The ports of the base in its own order, then those that only others have, by number."""
    base = {port.number: port for port in sharing[0].ports}
    added: dict[int, Port] = {}
    for service in sharing[1:]:
        for port in service.ports:
            if port.number not in base:
                added.setdefault(port.number, port)
    return (*sharing[0].ports, *(added[number] for number in sorted(added)))


def _disagreement(sharing: list[Declared]) -> str:
    """What clusters say about the ports, if they do not all say the same about number, name and protocol."""
    said = {
        one.cluster: tuple(sorted((port.number, port.name, port.protocol) for port in one.ports)) for one in sharing
    }
    if len(set(said.values())) < 2:
        return ""
    return "; ".join(
        f"{cluster} has {', '.join(f'{number} {name}'.strip() for number, name, _ in ports) or 'none'}"
        for cluster, ports in sorted(said.items())
    )
