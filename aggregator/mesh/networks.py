"""Networks: which one each cluster is in, and every gateway that leads into one.

A cluster's network is the label topology.istio.io/network of its system namespace; a pod's own label goes before it.
Remote clusters' east-west Gateways lead into their networks; at home a Gateway of class istio-remote stands for a
gateway elsewhere. Every usable address of every such Gateway counts, each on the port its HBONE listener names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Withheld
from aggregator.mesh.addresses import is_dns_name, pack
from aggregator.mesh.home import Home
from aggregator.order import rank
from watchers.facts.cluster import Cluster
from watchers.facts.core import Namespace
from watchers.facts.gateway_api import Gateway, GatewayClass
from watchers.facts.keys import ObjectKey, label

NETWORK_LABEL = "topology.istio.io/network"
ACCOUNT_ANNOTATION = "gateway.istio.io/service-account"
HBONE_PORT = 15008

_ROLES = {
    "istio.io/eastwest-controller": "east-west",
    "isthmus.dev/east-west-gateway": "east-west",
    "istio.io/unmanaged-gateway": "remote",
    "isthmus.dev/unmanaged-gateway": "remote",
}
_BUILT_IN_CLASSES = {"istio-east-west": "east-west", "isthmus-east-west": "east-west", "istio-remote": "remote"}


class NetworkGateway(msgspec.Struct, frozen=True, gc=False):
    """One way into a network: a Gateway's address, the port of its HBONE listener, and who answers there.

    `cluster` holds the Gateway object, which need not be where its pods run. `address` is an IP address or a DNS name.
    `stand_in` tells a Gateway of class istio-remote at home from an east-west Gateway in a remote cluster.
    """

    network: str
    cluster: str
    namespace: str
    name: str
    created: str
    address: str
    port: int
    service_account: str
    stand_in: bool


Way: TypeAlias = tuple[str, str, int]
"""What a gateway is claimed by: (network, address, port)."""


class Networks(msgspec.Struct, frozen=True):
    """The part of the graph this module declares."""

    of_cluster: Collection[ObjectKey, str]
    gateways: Collection[Way, NetworkGateway]
    ways_into: Index[str, Way, NetworkGateway]


def network_of(at: At, networks: Collection[ObjectKey, str], cluster: str) -> str:
    """The network of a cluster; "" while it has none."""
    return at.get(networks, (cluster, "Cluster", "", cluster)) or ""


def declare(
    graph: Graph,
    home: Home,
    clusters: Source[ObjectKey, Cluster],
    namespaces: Source[ObjectKey, Namespace],
    gateways: Source[ObjectKey, Gateway],
    gateway_classes: Source[ObjectKey, GatewayClass],
) -> Networks:
    """Declare networks of clusters and the gateways into networks."""

    def cluster_network(at: At, key: ObjectKey, _cluster: Cluster) -> str:
        namespace = at.get(namespaces, home.namespace_key(key[0], home.system_namespace))
        return label(namespace.labels, NETWORK_LABEL) if namespace else ""

    def gateway_ways(
        at: At, key: ObjectKey, gateway: Gateway
    ) -> Iterable[tuple[tuple[ObjectKey, str], Outcome[NetworkGateway]]]:
        cluster, _, namespace, name = key
        declared = at.get(gateway_classes, (home.cluster, "GatewayClass", "", gateway.class_name))
        role = _ROLES.get(declared.controller) if declared else _BUILT_IN_CLASSES.get(gateway.class_name)
        stand_in = role == "remote"
        network = label(gateway.labels, NETWORK_LABEL)
        if role is None or stand_in != (cluster == home.cluster) or not network:
            yield (key, ""), Withheld("NotANetworkGateway", f"class {gateway.class_name!r}, network {network!r}")
            return
        listener = next(
            (one for one in gateway.listeners if one.protocol == "HBONE" and (stand_in or one.tls_mode == "Terminate")),
            None,
        )
        if listener is None:
            yield (key, ""), Withheld("NotANetworkGateway", "no HBONE listener")
            return
        account = label(gateway.annotations, ACCOUNT_ANNOTATION) or (f"{name}-istio-remote" if stand_in else name)
        for number, given in enumerate(gateway.addresses):
            is_ip = pack(given.value) is not None
            if given.type not in ("", "IPAddress", "Hostname") or not (is_ip or is_dns_name(given.value)):
                field = f"status.addresses[{number}]"
                at.note(
                    key, Finding(key, "GatewayAddressInvalid", field, f"{given.type} {given.value!r} is not usable")
                )
                continue
            yield (
                (key, given.value),
                NetworkGateway(
                    network, cluster, namespace, name, gateway.created, given.value, listener.port, account, stand_in
                ),
            )

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

    of_cluster = graph.derive("networks of clusters", clusters, cluster_network)
    offered = graph.expand("gateway addresses", gateways, gateway_ways)
    claims = graph.index("claims of gateway addresses", offered, lambda _, one: ((one.network, one.address, one.port),))
    chosen = graph.derive("network gateways", claims, first_claim)
    ways_into = graph.index("gateways by network", chosen, lambda way, _: (way[0],))
    return Networks(of_cluster, chosen, ways_into)
