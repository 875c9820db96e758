"""ServiceEntries: services that no cluster runs, under names of their own, and where they are served.

A ServiceEntry declares a service for each of its hosts. Within a namespace a host belongs to a Kubernetes Service of
that name, else to the oldest ServiceEntry; what another one says of the host is left out, with its endpoints. Those of
home count; those of remote clusters only if this process is told to read them, and only the global ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import ip_network
from typing import TypeAlias

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Withheld
from aggregator.mesh.addresses import is_host_name, pack
from aggregator.mesh.home import Home, Mesh, is_global, visibility_of
from aggregator.mesh.networks import network_of
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.mesh.services import Balancing, Declared, Port, Services, attachment, distribution, protocol_of
from aggregator.mesh.standing import UNREACHABLE, StandingOf
from aggregator.mesh.trust_domains import TrustDomains
from aggregator.mesh.waypoints import Asked, Attached, Waypoints, ingress_uses
from aggregator.mesh.workload import (
    Traits,
    Workload,
    WorkloadKey,
    canonical_name,
    canonical_revision,
    ends_tunnels,
    locality_of,
    tunnel_of,
)
from aggregator.order import rank
from watchers.facts.core import Namespace, Service
from watchers.facts.istio_networking import EntryEndpoint, ServiceEntry
from watchers.facts.keys import Labels, ObjectKey, label

AUTO_ALLOCATE_LABEL = "networking.istio.io/enable-autoallocate-ip"

EntryKey: TypeAlias = tuple[str, str, str, str, str]
"""(cluster, "ServiceEntry", namespace, name, host)."""

_BY_DNS = ("DNS", "DNS_ROUND_ROBIN", "DYNAMIC_DNS")


def declare(
    graph: Graph,
    home: Home,
    mesh: Callable[[At], Mesh],
    includes: Includes,
    networks: Collection[ObjectKey, str],
    namespaces: Source[ObjectKey, Namespace],
    waypoints: Waypoints,
    services: Source[ObjectKey, Service],
    entries: Source[ObjectKey, ServiceEntry],
) -> Collection[EntryKey, Declared]:
    """Declare the services of ServiceEntries."""
    suffix = f".svc.{home.domain_suffix}"

    def claims(key: ObjectKey, entry: ServiceEntry) -> Iterable[tuple[str, str, str]]:
        return [(key[0], key[2], host) for host in entry.hosts]

    claimed: Index[tuple[str, str, str], ObjectKey, ServiceEntry] = graph.index("hosts of entries", entries, claims)

    def refusal(at: At, key: ObjectKey, entry: ServiceEntry) -> Withheld | None:
        cluster, _, namespace, _ = key
        if cluster != home.cluster and not home.remote_entries:
            return Withheld("EntryOfRemoteCluster")
        if not home.serves(entry.revision):
            return Withheld("ObjectOfOtherRevision", entry.revision)
        if not includes(at, cluster, namespace):
            return UNSELECTED
        place = at.get(namespaces, home.namespace_key(cluster, namespace))
        if cluster != home.cluster and not is_global(mesh(at).scopes, entry.labels, place):
            return Withheld("ServiceIsNotGlobal")
        if visibility_of(mesh(at).entry_visibility, place) == "NONE":
            return Withheld("EntryIsForNobody")
        return None

    def owner(at: At, key: ObjectKey, host: str) -> str:
        """What has the host in this namespace, if it is another object: its kind and name."""
        cluster, kind, namespace, _ = key
        name = host.removesuffix(f".{namespace}{suffix}")
        service = at.get(services, (cluster, "Service", namespace, name)) if name != host else None
        if service is not None and service.type != "ExternalName":
            return f"Service {namespace}/{name}"
        rivals = at.group(claimed, (cluster, namespace, host))
        first = min(
            (
                rank(home.cluster, cluster, one.created, other[2], other[3])
                for other, one in rivals.items()
                if home.serves(one.revision)
            ),
            default=None,
        )
        return "" if first is None or first[-1] == key[3] else f"{kind} {namespace}/{first[-1]}"

    def declared(at: At, key: ObjectKey, entry: ServiceEntry) -> Iterable[tuple[EntryKey, Outcome[Declared]]]:
        refused = refusal(at, key, entry)
        if refused is not None:
            yield (*key, ""), refused
            return
        cluster, _, namespace, name = key
        place = at.get(namespaces, home.namespace_key(cluster, namespace))
        given = _addresses(at, key, entry)
        visibility = visibility_of(mesh(at).entry_visibility, place)
        private = visibility != "PUBLIC"
        attached = attachment(at, waypoints, key, entry.labels, entry.annotations, private=private)
        for host in dict.fromkeys(entry.hosts):
            other = owner(at, key, host)
            if other:
                at.note(key, Finding(key, "HostClaimed", "spec.hosts", f"{host!r} is that of {other}"))
                yield (*key, host), Withheld("HostClaimed", other)
                continue
            if attached is None and not given and host.startswith("*"):
                at.note(key, Finding(key, "NoWaypointForWildcardService", "spec.hosts", f"{host!r} has none"))
            yield (
                (*key, host),
                Declared(
                    key=f"{namespace}/{host}",
                    cluster=cluster,
                    namespace=namespace,
                    name=name,
                    hostname=host,
                    created=entry.created,
                    is_global=is_global(mesh(at).scopes, entry.labels, place),
                    network=network_of(at, networks, cluster),
                    addresses=given,
                    ports=tuple(
                        [
                            Port(
                                number=port.number,
                                target=port.target or port.number,
                                protocol=protocol_of(port.protocol),
                                name=port.name,
                                target_name=port.name,
                                optional_name=True,
                                transport="UDP" if port.protocol == "UDP" else "TCP",
                            )
                            for port in entry.ports
                        ]
                    ),
                    selector=entry.selector,
                    ip_families=(),
                    balancing=Balancing((), "PASSTHROUGH")
                    if entry.resolution == "NONE"
                    else distribution(entry.annotations, place),
                    allow_unready=entry.resolution == "NONE",
                    kind="ServiceEntry",
                    identities=entry.identities,
                    attached=attached,
                    ingress_waypoint=ingress_uses(entry.labels, place),
                    # What an entry of another cluster names is of use there.
                    allocates=allocates(entry, host) and (cluster != home.cluster or not entry.addresses),
                    visibility=visibility,
                    allocated=tuple([one for of, one in entry.allocated if of in ("", host)]),
                ),
            )

    return graph.expand("services of entries", entries, declared)


def workloads(
    graph: Graph,
    home: Home,
    standing: StandingOf,
    trust_domains: TrustDomains,
    networks: Collection[ObjectKey, str],
    waypoints: Waypoints,
    services: Services,
    entries: Source[ObjectKey, ServiceEntry],
) -> Collection[WorkloadKey, Workload]:
    """Declare the workloads that ServiceEntries list themselves."""

    def endpoints(at: At, key: ObjectKey, entry: ServiceEntry) -> Iterable[tuple[WorkloadKey, Outcome[Workload]]]:
        hosts = [host for host in dict.fromkeys(entry.hosts) if at.get(services.parts, (*key, host)) is not None]
        if not hosts:
            yield (*key, ""), Withheld("EntryServesNothing")
            return
        cluster, _, namespace, name = key
        relied_on = standing(at, cluster)
        if relied_on == "withdrawn":
            yield (*key, ""), UNREACHABLE
            return
        own_network, home_network = network_of(at, networks, cluster), network_of(at, networks, home.cluster)
        native = ends_tunnels(entry.labels)
        found: dict[tuple[str, Labels], Traits] = {}

        def traits(network: str, labels: Labels) -> Traits:
            """Of its endpoints in a network that have these labels of their own."""
            known = found.get((network, labels))
            if known is None:
                attached = waypoints.of(at, Asked(cluster, namespace, labels, (), "workload"))
                known = found[network, labels] = Traits(
                    cluster,
                    namespace,
                    network,
                    at_home=network == home_network,
                    labels=entry.labels,
                    native_tunnel=native,
                    canonical_name=canonical_name(entry.labels),
                    canonical_revision=canonical_revision(entry.labels) or "latest",
                    reduced=relied_on == "reduced",
                    waypoint=attached.waypoint if isinstance(attached, Attached) else None,
                    trust_domain=trust_domains.of(at, cluster),
                )
            return known

        def workload(one: EntryEndpoint, served_hosts: list[str]) -> Workload:
            by_name = dict(one.ports)
            ports = tuple(
                [
                    (port.number, by_name.get(port.name) or port.target or port.number)
                    for port in entry.ports
                    if port.protocol != "UDP"
                ]
            )
            packed = pack(one.address) is not None
            return Workload(
                traits(one.network or own_network, one.labels),
                name,
                (one.address,) if packed else (),
                tuple([(f"{namespace}/{host}", ports) for host in sorted(served_hosts)]),
                healthy=True,
                service_account=one.account,
                tunnel=tunnel_of(entry.annotations, native=native),
                workload_name=name,
                kind="ServiceEntry",
                identified=bool(one.account),
                hostname="" if packed else one.address,
                locality=locality_of(one.locality),
                weight=one.weight or 1,
            )

        if not entry.endpoints:
            if entry.resolution in _BY_DNS and not entry.selector:
                for host in hosts:
                    if not host.startswith("*"):
                        yield (*key, host), workload(EntryEndpoint(host), [host])
            yield (*key, ""), Withheld("EntryListsNoEndpoints")
            return
        seen: set[str] = set()
        for number, one in enumerate(entry.endpoints):
            field = f"spec.endpoints[{number}].address"
            if pack(one.address) is None and not is_host_name(one.address):
                at.note(key, Finding(key, "EndpointAddressInvalid", field, f"{one.address[:80]!r} is no address"))
            elif one.address in seen:
                at.note(key, Finding(key, "EndpointAddressRepeated", field, f"{one.address!r} was listed before"))
            else:
                seen.add(one.address)
                yield (*key, one.address), workload(one, hosts)

    return graph.expand("workloads of entries", entries, endpoints)


def _addresses(at: At, key: ObjectKey, entry: ServiceEntry) -> tuple[str, ...]:
    """The addresses a ServiceEntry names, ranges brought to their prefix."""
    found: dict[str, None] = {}
    for number, text in enumerate(entry.addresses):
        if ":" not in text and pack(text) is not None:
            found[text] = None  # One IPv4 address has one form; ip_network takes 50 times as long to say so.
            continue
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            detail = f"{text[:80]!r} is no IP address and no range"
            at.note(key, Finding(key, "ServiceAddressInvalid", f"spec.addresses[{number}]", detail))
            continue
        whole = network.prefixlen == network.max_prefixlen
        found[str(network.network_address) if whole else str(network)] = None
    return tuple(found)


def allocates(entry: ServiceEntry, host: str) -> bool:
    """Whether a host of an entry that names no address is given one (Istio's rules for automatic allocation)."""
    if entry.resolution == "NONE" or label(entry.labels, AUTO_ALLOCATE_LABEL) == "false":
        return False
    return not host.startswith("*") or entry.resolution == "DYNAMIC_DNS"
