"""Services as seen from home: one per `<namespace>/<hostname>`, merged over the clusters that share it.

The home object decides where there is one; a service that home does not share stays home's alone. Without a home object
the first cluster in order stands in for it. Addresses and ports are the union, each endpoint is offered only under the
ports it serves, and the order in which clusters were heard of changes nothing.

A waypoint guards the way to endpoints, so which one clients at home go through is decided where that way is decided:

- Home's object says it for everybody at home, "none" included. Endpoints behind another network's gateway are not left
  unguarded by that: the gateway sends clients through the waypoint that its own cluster's object asks for, and home's
  waypoint, where there is one, straight to them.
- Without a home object the first one of home's network says it, since its endpoints are reached without a gateway.
- Where all are elsewhere the base says it, as far as home's proxies know the waypoint's service; otherwise no waypoint
  is told, and the gateway there does the rest. A waypoint that nobody at home can find would break every connection.

Whether ingress gateways go through it is said by the same object. Clusters of home's network that ask for another
waypoint than the one that counts have it bypassed, which is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Withheld
from aggregator.mesh.allocated_addresses import AllocatedAddresses
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.identities import Account, accounts_elsewhere, spiffe_id
from aggregator.mesh.networks import network_of
from aggregator.mesh.service_exports import united
from aggregator.mesh.services import Balancing, Declared, Port, Services, merged_from
from aggregator.mesh.trust_domains import TrustDomains
from aggregator.mesh.waypoints import Attached, Waypoint, hostname_of
from aggregator.mesh.workload import ServiceInNetwork
from aggregator.mesh.workloads import Workloads
from aggregator.order import Rank, rank
from watchers.facts.keys import ObjectKey


class Service(msgspec.Struct, frozen=True, gc=False):
    """A service as home's proxies should know it. `key` is `<namespace>/<hostname>`, `base` the object that decides.

    `addresses` are (network, IP) pairs of every sharing cluster, sorted unless they are all of one object, which has an
    order of its own; `identities` the SPIFFE names that may answer for it from other networks, sorted. `clusters` are
    the ids of the clusters merged here, sorted. `allocated` are those of the addresses that only home knows, since they
    were given here. `visibility` is that of its base. Whoever asks for the hostname in no namespace means the one that
    is `canonical`. `attached` is its waypoint, through which ingress gateways go as well if `ingress_waypoint`.
    `disagreements` are what its clusters contradict each other in, as (code of the catalogue, details).
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
    disagreements: tuple[tuple[str, str], ...] = ()


class Shared(msgspec.Struct, frozen=True, gc=False):
    """What of a global Service decides how its endpoints in other networks are reached.

    A record of its own, so that a cluster that joins or leaves is no news to the ways into all the others.
    """

    namespace: str
    base: ObjectKey
    ports: tuple[Port, ...]
    allow_unready: bool


class GlobalServices(msgspec.Struct, frozen=True):
    """The part of the graph this module declares."""

    services: Collection[str, Service]
    shared: Collection[str, Shared]
    networks_of_service: Index[str, ServiceInNetwork, Mapping[object, int]]


def declare(
    graph: Graph,
    home: Home,
    mesh: Callable[[At], Mesh],
    trust_domains: TrustDomains,
    networks: Collection[ObjectKey, str],
    services: Services,
    allocated: AllocatedAddresses,
    workloads: Workloads,
) -> GlobalServices:
    """Declare the services as seen from home."""
    by_service = graph.index("networks of services", workloads.by_service, lambda key, _: (key[1],))

    def accounts(
        at: At, _service: str, members: Mapping[ServiceInNetwork, Mapping[object, int]]
    ) -> tuple[Account, ...]:
        return accounts_elsewhere(members, network_of(at, networks, home.cluster))

    elsewhere = graph.derive("accounts elsewhere", by_service, accounts)

    def canonical(at: At, base: Declared) -> bool:
        """Whether a hostname stands for this service where nobody says which namespace is meant."""
        if base.kind != "ServiceEntry":
            return True
        if base.visibility != "PUBLIC":
            return False
        rivals = at.group(services.by_hostname, base.hostname).values()
        if at.get(services.parts, _service_named(home, base.hostname)) is not None:
            return False
        return base == min(rivals, key=lambda one: _rank(home, one), default=base)

    def is_known(at: At, waypoint: Waypoint) -> bool:
        """Whether home's proxies know the service of a waypoint elsewhere."""
        known = at.group(services.candidates, f"{waypoint.namespace}/{hostname_of(waypoint, home)}").values()
        if waypoint.hostname:
            return bool(known)
        return any(one.network == waypoint.network and waypoint.address in one.addresses for one in known)

    def guard(at: At, sharing: list[Declared], own_network: str) -> Declared:
        """The object that says through which waypoint clients at home go, with what of that they can follow."""
        base = sharing[0]
        if base.cluster == home.cluster:
            return base
        near = next((one for one in sharing if one.network == own_network), None)
        attached = base.attached
        if near is not None or attached is None:
            return near or base
        if not is_known(at, attached.waypoint):
            return msgspec.structs.replace(base, attached=None)
        if attached.canary is not None and not is_known(at, attached.canary):
            return msgspec.structs.replace(base, attached=Attached(attached.waypoint))
        return base

    def merged(at: At, key: str, candidates: Mapping[tuple[str, ...], Declared]) -> Outcome[Service]:
        sharing = merged_from(home, candidates.values())
        base = sharing[0]
        own_network = network_of(at, networks, home.cluster)
        given = tuple([(own_network, address) for address in allocated.of(at, base)])
        if not base.is_global:
            return _service(base, sharing, given, base.ports, base.identities, base, canonical=canonical(at, base))
        own = mesh(at).trust_domain
        found = {spiffe_id(domain or own, namespace, name) for domain, namespace, name in at.get(elsewhere, key) or ()}
        # Behind another network's gateway a waypoint may answer in the place of the pods.
        for one in sharing:
            if one.attached is not None and one.network != own_network:
                found.update(_waypoints(trust_domains.of(at, one.cluster) or own, one.attached))
        identities = tuple(sorted(found.union(*(one.identities for one in sharing))))
        ports = _united(sharing) if base.kind == "ServiceExport" else _union(sharing)
        guarded = guard(at, sharing, own_network)
        disagreements = []
        # Of exports the conditions of their objects tell.
        if base.kind != "ServiceExport" and (detail := _disagreement(sharing)):
            disagreements.append(("ServicePortConflict", detail))
            at.note(base.object, Finding(base.object, "ServicePortConflict", "spec.ports", detail))
        if detail := _bypassed(sharing, guarded, own_network):
            disagreements.append(("WaypointsDiffer", detail))
            at.note(base.object, Finding(base.object, "WaypointsDiffer", "metadata.labels", detail))
        service = _service(base, sharing, given, ports, identities, guarded, canonical=canonical(at, base))
        return msgspec.structs.replace(service, disagreements=tuple(disagreements)) if disagreements else service

    def shared(_at: At, _key: str, one: Service) -> Outcome[Shared]:
        if not one.is_global:
            return Withheld("ServiceIsNotGlobal")
        return Shared(one.namespace, one.base, one.ports, one.allow_unready)

    found = graph.derive("services", services.candidates, merged)
    return GlobalServices(found, graph.derive("services that are shared", found, shared), by_service)


def _waypoints(trust_domain: str, attached: Attached) -> list[str]:
    """The identities of the waypoints of a service."""
    both = (attached.waypoint, attached.canary)
    return [spiffe_id(trust_domain, one.namespace, one.account) for one in both if one is not None]


def _bypassed(sharing: list[Declared], guard: Declared, own_network: str) -> str:
    """Which clusters of home's network ask for another waypoint than the one that clients at home go through."""
    chosen = _waypoint_name(guard)
    others = sorted({(one.cluster, _waypoint_name(one)) for one in sharing if one.network == own_network})
    different = [f"{cluster} asks for {name}" for cluster, name in others if name not in ("", chosen)]
    return f"clients at home go through {chosen or 'none'}; {'; '.join(different)}" if different else ""


def _waypoint_name(one: Declared) -> str:
    return f"{one.attached.waypoint.namespace}/{one.attached.waypoint.name}" if one.attached is not None else ""


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
    guard: Declared,
    *,
    canonical: bool,
) -> Service:
    # One object's own are in its order, in which the first may mean more than the others.
    declared = list(dict.fromkeys((one.network, address) for one in sharing for address in one.addresses))
    addresses = (*sorted(allocated), *declared) if len(sharing) == 1 else sorted({*declared, *allocated})
    return Service(
        key=base.key,
        namespace=base.namespace,
        name=base.name,
        hostname=base.hostname,
        base=base.object,
        is_global=base.is_global,
        clusters=tuple(sorted(one.cluster for one in sharing)),
        addresses=tuple(addresses),
        ports=ports,
        ip_families=base.ip_families,
        balancing=base.balancing,
        allow_unready=base.allow_unready,
        identities=identities,
        canonical=canonical,
        attached=guard.attached,
        ingress_waypoint=guard.ingress_waypoint and guard.attached is not None,
        allocated=allocated,
        visibility=base.visibility,
    )


def _united(exports: list[Declared]) -> tuple[Port, ...]:
    """The ports of an exported service, as `service_exports` has them."""
    return tuple(united((one.ports for one in exports), lambda port: (port.name, (port.number, port.transport))))


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
