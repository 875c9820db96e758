"""Where each Ingress is served: its status shows the addresses of the gateway, for people and for external-dns.

The addresses are those of the Service in front of the gateway, as its load balancer has them, and those the settings
name. While there are none yet, what an Ingress shows stays: a Service that is being made anew must not take DNS records
down. An Ingress that is ours no more, and all of them once the settings name nothing, lose what we wrote.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home, cluster_key
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.traffic.ingress_classes import Judge
from watchers.facts.cluster import Cluster
from watchers.facts.conditions import Addresses
from watchers.facts.core import Service
from watchers.facts.keys import ObjectKey
from watchers.facts.networking import Ingress
from watchers.writes import IngressStatus, WriteKey


class Front(msgspec.Struct, frozen=True):
    """What stands before the gateways of Ingresses: addresses, and whether the settings name any place to find them."""

    addresses: Addresses
    named: bool


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    clusters: Source[ObjectKey, Cluster],
    services: Source[ObjectKey, Service],
    ingresses: Source[ObjectKey, Ingress],
    judge: Judge,
) -> Collection[WriteKey, IngressStatus]:
    """Declare what home's Ingresses are to be told."""

    def front_of(at: At, key: ObjectKey, cluster: Cluster) -> Outcome[Front]:
        if key[0] != home.cluster:
            return Withheld("NotOfHome", key[0])
        if cluster.state != "synced":
            return Withheld("HomeNotSynced")
        addresses = set(home.ingress_addresses)
        if home.ingress_service is not None:
            service = at.get(services, (home.cluster, "Service", *home.ingress_service))
            addresses.update(service.balancer if service is not None else ())
        return Front(tuple(sorted(addresses)), bool(home.ingress_addresses or home.ingress_service))

    # One item, so that a thousand Ingresses are not looked at when something else of the Service or of home changes.
    fronts = graph.derive("addresses of ingress gateways", clusters, front_of)

    def status(at: At, key: ObjectKey, ingress: Ingress) -> Iterable[tuple[WriteKey, Outcome[IngressStatus]]]:
        yield (*key, "status"), told(at, key, ingress)

    def told(at: At, key: ObjectKey, ingress: Ingress) -> Outcome[IngressStatus]:
        if key[0] != home.cluster:
            return Withheld("NotOfHome", key[0])
        front = at.get(fronts, cluster_key(home.cluster))
        if front is None:
            return Withheld("HomeNotSynced")
        if not front.named:
            return IngressStatus(()) if ingress.told else Withheld("AddressNotNamed")
        refusal = judge(at, ingress) if includes(at, key[0], key[2]) else UNSELECTED
        if refusal is not None:
            return IngressStatus(()) if ingress.told else refusal
        if not front.addresses:
            return Withheld("AddressPending")
        if front.addresses == ingress.addresses:
            return Withheld("StatusCurrent")
        return IngressStatus(front.addresses)

    return graph.expand("status of ingresses", ingresses, status)
