"""Three clusters on networks of their own, and one beside home: the stage for what operators have met in such meshes.

quay is home; mesa and fjord are reached through their east-west gateways, atoll is on home's network. The service
`shop/orders` is global in all of them. `everything` is a mesh with something of every kind in it.

As a module it prints name and version of everything that ztunnels and gateways are told of that mesh, so that processes
can be compared.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from typing import Any

from aggregator.views import east_west_gateway, ingress_gateway
from tests.kit import manifests as m
from tests.kit.manifests import Manifest
from tests.kit.world import World, fact
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.hbone import Profile
from xds.messages.scope import SCOPED_ROUTE_TYPE

Object = tuple[str, Manifest]
"""A cluster and an object of it."""

HOST = "orders.shop.svc.cluster.local"
ORDERS = f"shop/{HOST}"
APP = {"app": "orders"}
NUMBERS = {"quay": 1, "mesa": 2, "fjord": 3, "atoll": 4}
PODS = {"quay": ("10.1.0.5",), "mesa": ("10.2.0.5", "10.2.0.6"), "fjord": ("10.3.0.5",), "atoll": ("10.4.0.5",)}

INGRESS_TYPES = (CLUSTER_TYPE, ASSIGNMENT_TYPE, SCOPED_ROUTE_TYPE)
VIEWS = (
    *(view for one in INGRESS_TYPES if (view := ingress_gateway.view_of(one, lambda _: "")) is not None),
    *(
        view
        for one in (CLUSTER_TYPE, ASSIGNMENT_TYPE)
        if (
            view := east_west_gateway.view_of(
                one, gateway="istio-system/edge", bind="0.0.0.0", network="net-quay", profile=Profile.STOCK
            )
        )
        is not None
    ),
)
"""What gateways of home ask for."""

USE_WAYPOINT = {"istio.io/use-waypoint": "wp"}


def network(cluster: str) -> str:
    """The network a cluster is on."""
    return "net-quay" if cluster == "atoll" else f"net-{cluster}"


def orders(cluster: str, *, name: str = "shop/orders", is_global: bool = True, **fields: Any) -> Manifest:
    """The Service of a cluster."""
    return m.service(name, f"10.{NUMBERS[cluster]}0.0.11", selector=APP, is_global=is_global, **fields)


def pod(cluster: str, number: int = 0, **fields: Any) -> Manifest:
    """One of the pods of a cluster."""
    own = {"labels": APP, "account": "orders", **fields}
    return m.pod(f"shop/orders-{number}", f"10.{NUMBERS[cluster]}.0.{5 + number}", **own)


def gateway(cluster: str) -> Manifest:
    """The way into a cluster's network."""
    return m.east_west_gateway("istio-system/edge", f"198.51.100.{NUMBERS[cluster]}0", network=network(cluster))


def cluster_of(cluster: str, *, service: Manifest | None = None, labelled: bool = True) -> list[Object]:
    """All objects of a cluster, with this Service in the place of the usual one."""
    return [
        (cluster, m.namespace("istio-system", network=network(cluster) if labelled else "")),
        (cluster, m.namespace("shop")),
        (cluster, service or orders(cluster)),
        *((cluster, pod(cluster, number)) for number in range(len(PODS[cluster]))),
        (cluster, gateway(cluster)),
    ]


def world_of(objects: Iterable[Object], home: str = "quay", **settings: Any) -> World:
    """The world of these objects after one pass."""
    world = World(home, **settings)
    for cluster, manifest in objects:
        world.apply(cluster, manifest)
    world.step()
    return world


def reach(world: World, cluster: str, service: str = ORDERS) -> int | None:
    """How many endpoints of a service are told to be behind a cluster's gateway; None if none is told of."""
    address = f"198.51.100.{NUMBERS[cluster]}0"
    told = world.address(f"{network(cluster)}/SplitHorizonWorkload/istio-system/edge/{address}/{service}")
    return told.get("capacity") if told else None


def everything() -> list[Object]:
    """A mesh with something of every kind, every object once."""
    waypoint = m.gateway("shop/wp", addresses=[("Hostname", "wp.shop.svc.cluster.local")])
    front = {"from": [{"source": {"namespaces": ["front-*"]}}], "to": [{"operation": {"ports": ["8080"]}}]}
    mesh: list[Object] = [one for cluster in NUMBERS for one in cluster_of(cluster)]
    mesh += [(cluster, waypoint) for cluster in ("quay", "mesa", "fjord")]
    mesh += [(cluster, orders(cluster, labels=USE_WAYPOINT)) for cluster in ("mesa", "fjord")]
    mesh += [
        (cluster, m.service("shop/wp", f"10.{number}0.0.99", is_global=True, ports={"mesh": 15008}))
        for cluster, number in NUMBERS.items()
    ]
    mesh += [
        ("quay", m.mesh_config_map(trust_domain="quay.example")),
        ("quay", m.node("n1", region="eu", zone="eu-1")),
        ("quay", m.pod("shop/web-1", "10.1.0.9", labels={"app": "web"}, account="web", node="n1")),
        ("quay", m.service("shop/web", "10.10.0.12", selector={"app": "web"}, labels=USE_WAYPOINT)),
        ("quay", m.service("shop/outside", "10.10.0.13")),
        ("quay", m.slice_("shop/outside-1", m.endpoint("192.0.2.7"), service="outside")),
        ("quay", m.remote_gateway("istio-system/fjord-2", "198.51.100.31", network="net-fjord")),
        ("quay", m.service_entry("shop/db", "db.example", "db2.example", resolution="DNS", is_global=True)),
        ("quay", m.service_entry("shop/api", "api.example", addresses=["240.1.1.1"], endpoints=["192.0.2.8"])),
        ("quay", m.workload_entry("shop/vm", "10.1.0.20", labels=APP, account="vm", weight=3)),
        ("quay", m.workload_entry("shop/far", "10.3.0.20", labels=APP, account="vm", weight=2, network="net-fjord")),
        ("quay", m.authorization_policy("shop/front", front, selector=APP)),
        ("quay", m.authorization_policy("istio-system/all", front, action="DENY")),
        ("quay", m.peer_authentication("istio-system/default", "STRICT")),
        ("quay", m.peer_authentication("shop/web", "UNSET", selector={"app": "web"}, ports={8080: "PERMISSIVE"})),
        ("quay", m.ingress("shop/site", "shop.example", "orders")),
        ("mesa", m.service("shop/ledger", "10.20.0.14", selector={"app": "ledger"}, is_global=True)),
        ("mesa", m.pod("shop/ledger-1", "10.2.0.9", labels={"app": "ledger"}, account="ledger")),
        ("fjord", m.pod("shop/orders-9", "10.3.0.9", labels={**APP, "topology.istio.io/network": "net-mesa"})),
        ("fjord", m.pod("shop/orders-8", "10.3.0.8", labels=APP, ready=False)),
    ]
    return once(mesh)


def once(objects: Iterable[Object]) -> list[Object]:
    """The last of each object."""
    return list({fact(cluster, manifest)[0]: (cluster, manifest) for cluster, manifest in objects}.values())


def grow(world: World, objects: Iterable[Object], every: int = 3) -> World:
    """Lets these objects come one after the other, with a pass after every few of them, and views of every role."""
    world.ask(*VIEWS)
    for number, (cluster, manifest) in enumerate(objects):
        world.apply(cluster, manifest)
        if number % every == 0:
            world.step()
    world.step()
    return world


def main(seed: str) -> None:
    """Prints name and version of everything that is told, of objects that come in an order by `seed`."""
    objects = everything()
    random.Random(seed).shuffle(objects)
    world = grow(World("quay", remote_entries=True), objects)
    versions = {"|".join(key): resource.version for key, resource in world.resources.items()}
    json.dump(dict(sorted(versions.items())), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
