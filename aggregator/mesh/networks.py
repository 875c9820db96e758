"""Networks: which one each cluster is in, and every gateway that leads into one.

A cluster's network is the label topology.istio.io/network of its system namespace; a pod's own label goes before it.
Remote clusters' east-west Gateways lead into their networks; at home a Gateway of class istio-remote stands for a
gateway elsewhere. Every usable address of every such Gateway counts, each on the port its HBONE listener names.

A gateway may be known by a DNS name, as those behind the load balancers of some clouds are. The name is resolved here,
for everyone, and counts as the addresses it stands for: proxies are never told the name, though ztunnels could resolve
it (docs/decisions/0009-gateway-names-are-resolved-once.md). While it has none nobody is sent there, and the Gateway has
a finding. When its addresses change, the old go and the new come in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Sums, Withheld
from aggregator.mesh.addresses import is_dns_name, pack
from aggregator.mesh.home import Home, cluster_key
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.mesh.standing import UNREACHABLE, StandingOf
from aggregator.mesh.trust_domains import TrustDomains
from aggregator.order import rank
from watchers.facts.cluster import Cluster
from watchers.facts.core import Namespace, Pod
from watchers.facts.gateway_api import Gateway, GatewayClass
from watchers.facts.keys import ObjectKey, label
from watchers.facts.names import ResolvedName, name_key

NETWORK_LABEL = "topology.istio.io/network"
ACCOUNT_ANNOTATION = "gateway.istio.io/service-account"
HBONE_PORT = 15008

ROLES = {
    "istio.io/eastwest-controller": "east-west",
    "isthmus.dev/east-west-gateway": "east-west",
    "istio.io/unmanaged-gateway": "remote",
    "isthmus.dev/unmanaged-gateway": "remote",
}
"""What the Gateways of a controller are: ways into the network they are in, or stand-ins for such ways elsewhere."""
_BUILT_IN_CLASSES = {
    "istio-east-west": "istio.io/eastwest-controller",
    "isthmus-east-west": "isthmus.dev/east-west-gateway",
    "istio-remote": "istio.io/unmanaged-gateway",
}


class NetworkGateway(msgspec.Struct, frozen=True, gc=False):
    """One way into a network: a Gateway's address, the port of its HBONE listener, and who answers there.

    `cluster` holds the Gateway object, which need not be where its pods run. `address` is an IP address; `hostname` the
    DNS name it was resolved from, "" if it stands in the Gateway itself. `stand_in` tells a Gateway of class
    istio-remote at home from an east-west Gateway in a remote cluster. `trust_domain` is "" for home's.
    """

    network: str
    cluster: str
    namespace: str
    name: str
    created: str
    address: str
    hostname: str
    port: int
    service_account: str
    stand_in: bool
    trust_domain: str = ""

    @property
    def packed(self) -> bytes:
        """The 4 or 16 bytes of the address."""
        return pack(self.address) or b""


class Declared(msgspec.Struct, frozen=True, gc=False):
    """A Gateway that leads into a network, before its names are resolved.

    `addresses` and `hostnames` are those of its status that may be used, each with the field it stands in.
    """

    network: str
    created: str
    port: int
    service_account: str
    stand_in: bool
    addresses: tuple[tuple[str, str], ...]
    hostnames: tuple[tuple[str, str], ...]


Way: TypeAlias = tuple[str, str, int]
"""What a gateway is claimed by: (network, address, port)."""
Hostname: TypeAlias = tuple[str]
"""A DNS name, alone in its key."""
UNANSWERED = "names without an answer"
"""The one group of `Networks.unanswered`."""


class Networks(msgspec.Struct, frozen=True):
    """The part of the graph this module declares.

    `hostnames` are the names to be resolved, each with the Gateways that are known by it; `unanswered` those of which
    it is not known yet what they stand for.
    """

    of_cluster: Collection[ObjectKey, str]
    declared: Index[str, ObjectKey, Declared]
    gateways: Collection[Way, NetworkGateway]
    ways_into: Index[str, Way, NetworkGateway]
    hostnames: Collection[Hostname, tuple[ObjectKey, ...]]
    unanswered: Index[str, Hostname, bool]


def network_of(at: At, networks: Collection[ObjectKey, str], cluster: str) -> str:
    """The network of a cluster; "" while it has none."""
    return at.get(networks, cluster_key(cluster)) or ""


def controller_of(at: At, home: Home, classes: Source[ObjectKey, GatewayClass], class_name: str) -> str:
    """The controller of a class of Gateways, as home has it; those that are built in exist without being made."""
    declared = at.get(classes, (home.cluster, "GatewayClass", "", class_name))
    return declared.controller if declared is not None else _BUILT_IN_CLASSES.get(class_name, "")


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    standing: StandingOf,
    trust_domains: TrustDomains,
    clusters: Source[ObjectKey, Cluster],
    namespaces: Source[ObjectKey, Namespace],
    gateways: Source[ObjectKey, Gateway],
    gateway_classes: Source[ObjectKey, GatewayClass],
    pods: Source[ObjectKey, Pod],
    resolved_names: Source[ObjectKey, ResolvedName],
) -> Networks:
    """Declare networks of clusters and the gateways into networks."""

    def cluster_network(at: At, key: ObjectKey, _cluster: Cluster) -> str:
        namespace = at.get(namespaces, home.namespace_key(key[0], home.system_namespace))
        return label(namespace.labels, NETWORK_LABEL) if namespace else ""

    def declaration(at: At, key: ObjectKey, gateway: Gateway) -> Outcome[Declared]:
        cluster, _, namespace, name = key
        role = ROLES.get(controller_of(at, home, gateway_classes, gateway.class_name))
        stand_in = role == "remote"
        network = label(gateway.labels, NETWORK_LABEL)
        if role is None or stand_in != (cluster == home.cluster) or not network:
            return Withheld("NotANetworkGateway", f"class {gateway.class_name!r}, network {network!r}")
        if namespace != home.system_namespace and not includes(at, cluster, namespace):
            return UNSELECTED
        listener = next(
            (one for one in gateway.listeners if one.protocol == "HBONE" and (stand_in or one.tls_mode == "Terminate")),
            None,
        )
        if listener is None:
            return Withheld("NotANetworkGateway", "no HBONE listener")
        account = label(gateway.annotations, ACCOUNT_ANNOTATION) or (f"{name}-istio-remote" if stand_in else name)
        addresses: dict[str, str] = {}
        hostnames: dict[str, str] = {}
        for number, given in enumerate(gateway.addresses):
            field = f"status.addresses[{number}]"
            hostname = given.value.lower().removesuffix(".")
            if given.type not in ("", "IPAddress", "Hostname"):
                problem = "is not usable"
            elif pack(given.value) is not None:
                addresses.setdefault(given.value, field)
                continue
            elif not is_dns_name(hostname) or hostname.rpartition(".")[2].isdigit():
                problem = "is not usable"
            elif not stand_in and hostname.endswith(local_suffix):
                problem = "is a name that only its own cluster resolves"
            else:
                hostnames.setdefault(hostname, field)
                continue
            at.note(key, Finding(key, "GatewayAddressInvalid", field, f"{given.type} {given.value!r} {problem}"))
        return Declared(
            network,
            gateway.created,
            listener.port,
            account,
            stand_in,
            tuple((address, field) for address, field in addresses.items()),
            tuple((hostname, field) for hostname, field in hostnames.items()),
        )

    def gateway_ways(
        at: At, key: ObjectKey, declared: Declared
    ) -> Iterable[tuple[tuple[ObjectKey, str], Outcome[NetworkGateway]]]:
        cluster, _, namespace, name = key
        found = {address: "" for address, _ in declared.addresses}
        for hostname, field in declared.hostnames:
            resolved = at.get(resolved_names, name_key(hostname)) or _NOT_YET
            addresses, problem = _within_reach(resolved, at.get(families, _HOME_PODS))
            if not addresses:
                at.note(key, Finding(key, "GatewayAddressNotResolved", field, f"{hostname}: {problem}"))
                yield (key, hostname), Withheld("GatewayAddressNotResolved", f"{hostname}: {problem}")
            elif problem:
                detail = f"{hostname}: {problem}; used: {', '.join(addresses)}"
                at.note(key, Finding(key, "GatewayNameFails", field, detail))
            for address in addresses:
                found.setdefault(address, hostname)
        for address, hostname in found.items():
            yield (
                (key, address),
                NetworkGateway(
                    declared.network,
                    cluster,
                    namespace,
                    name,
                    declared.created,
                    address,
                    hostname,
                    declared.port,
                    declared.service_account,
                    declared.stand_in,
                    trust_domains.of(at, cluster),
                ),
            )

    def unanswered(at: At, hostname: Hostname, _wanted_by: tuple[ObjectKey, ...]) -> Outcome[bool]:
        resolved = at.get(resolved_names, name_key(hostname[0]))
        return True if resolved is None or resolved.pending else Withheld("NameAnswered")

    def first_claim(at: At, way: Way, claims: Mapping[tuple[ObjectKey, str], NetworkGateway]) -> NetworkGateway:
        order = sorted(
            claims.values(), key=lambda one: rank(home.cluster, one.cluster, one.created, one.namespace, one.name)
        )
        winner = order[0]
        for loser in order[1:]:
            key = (loser.cluster, "Gateway", loser.namespace, loser.name)
            by = f"{winner.namespace}/{winner.name} in {winner.cluster}"
            detail = f"{way[1]}:{way[2]} of network {way[0]} is already claimed by Gateway {by}"
            at.note(key, Finding(key, "GatewayAddressTaken", "status.addresses", detail))
        return winner

    def relied(at: At, way: Way, gateway: NetworkGateway) -> Outcome[NetworkGateway]:
        if standing(at, gateway.cluster) == "withdrawn":
            # A network that several clusters share goes on being reached by the others' gateways; by this one, whose
            # pods may well be there, only if there is no other.
            others = at.group(every_way, way[0]).values()
            if any(standing(at, other.cluster) != "withdrawn" for other in others):
                return UNREACHABLE
        return gateway

    def elsewhere(key: ObjectKey, _pod: Pod) -> bool:
        return key[0] != home.cluster

    local_suffix = f".svc.{home.domain_suffix}"
    of_cluster = graph.derive("networks of clusters", clusters, cluster_network)
    declarations = graph.derive("gateways into networks", gateways, declaration)
    by_network = graph.index("gateways of networks", declarations, lambda _, one: (one.network,))

    wanted = graph.index(
        "names of gateways", declarations, lambda _, one: [(hostname,) for hostname, _ in one.hostnames]
    )
    hostnames = graph.derive("names to resolve", wanted, lambda _, __, members: tuple(sorted(members)))
    unknown = graph.derive("unanswered names", hostnames, unanswered)
    by_want = graph.index("names without an answer", unknown, lambda _, __: (UNANSWERED,))

    counted = graph.fold(
        "addresses of home by family",
        pods,
        lambda _, pod: _counted(pod.addresses),
        unless=elsewhere,
    )
    families = graph.derive("address families of home", counted, _families)

    offered = graph.expand("gateway addresses", declarations, gateway_ways)
    claims = graph.index("claims of gateway addresses", offered, lambda _, one: ((one.network, one.address, one.port),))
    chosen = graph.derive("network gateways", claims, first_claim)
    every_way = graph.index("gateways by network", chosen, lambda way, _: (way[0],))
    relied_on = graph.derive("gateways that are relied on", chosen, relied)
    ways_into = graph.index("relied-on gateways by network", relied_on, lambda way, _: (way[0],))
    return Networks(of_cluster, by_network, relied_on, ways_into, hostnames, by_want)


_NOT_YET = ResolvedName((), "it has not been looked up yet", pending=True)
_HOME_PODS = "pods of home"


_IPV4, _IPV6 = ((_HOME_PODS, False, 1),), ((_HOME_PODS, True, 1),)


def _counted(addresses: tuple[str, ...]) -> Iterable[tuple[str, bool, int]]:
    """What a pod of home adds to the families: asked with every change of any pod, so nothing is made for most."""
    if len(addresses) == 1:
        return _IPV6 if ":" in addresses[0] else _IPV4
    return [(_HOME_PODS, ":" in address, 1) for address in addresses]


def _families(_at: At, _key: str, sums: Sums) -> frozenset[bool]:
    """The families that home's pods have addresses of; True is IPv6."""
    return frozenset(family is True for family in sums)


def _within_reach(resolved: ResolvedName, families: frozenset[bool] | None) -> tuple[tuple[str, ...], str]:
    """The addresses of a name that home's pods can dial, and what is wrong with it.

    Names of dual-stack load balancers have addresses of both families; a pod of one family would lose every connection
    that goes to the other. Addresses that stand in a Gateway are not judged so: somebody wrote them there.
    """
    if not families or not resolved.addresses:
        return resolved.addresses, resolved.reason
    reached = tuple(address for address in resolved.addresses if (":" in address) in families)
    if not reached:
        family = "IPv4" if True in families else "IPv6"
        return (), f"it has {family} addresses only, and pods of home have none"
    return reached, resolved.reason
