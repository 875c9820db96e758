"""What east-west gateways are told: how tunnels from other networks reach the endpoints of this one.

A tunnel for a global service ends at the gateway. Its inner bytes, again a tunnel, from the client to the destination,
go to a pod of the gateway's own network, to the port where tunnels to it end; the gateway has no key to them.

This is the graph: which listeners, clusters and assignments there are for whom. How they are written depends on what
the proxy is built with: `east_west_stock` and `east_west_istio`, which are given the same. For a stock Envoy a service
is its cluster and its assignment and nothing else, so a new one costs the same however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Protocol, TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.exposure import ExposedPort, Exposure
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.trust_domains import TrustDomains, accepted
from aggregator.mesh.waypoints import MANAGED_LABEL, MANAGED_WAYPOINT
from aggregator.mesh.workload import ServiceInNetwork, Workload, WorkloadKey
from aggregator.mesh.workloads import Workloads
from aggregator.views import east_west_istio, east_west_stock
from aggregator.views.view import ResourceKey, View, ViewKey
from watchers.facts.core import Node
from watchers.facts.gateway_api import Gateway
from watchers.facts.keys import ObjectKey, label
from xds.encoded import Encoded, Resource, wrap
from xds.messages.addressing import Locality
from xds.messages.assignment import (
    ASSIGNMENT_TYPE,
    Group,
    TunnelEndpoint,
    encode_assignment,
    encode_endpoint,
)
from xds.messages.cluster import CLUSTER_TYPE, Cluster, encode_cluster
from xds.messages.connect_terminate import CONNECT_TERMINATE, connect_terminate
from xds.messages.hbone import Profile
from xds.messages.listener import LISTENER_TYPE, Listener, SocketAddress, encode_listener

ROLE = "east-west"

BoundPort: TypeAlias = tuple[str, str]
"""(view name, authority): one exposed port in one view."""


class Form(Protocol):
    """How one profile of proxies is written to."""

    def internal_listeners(
        self, _ports: Iterable[ExposedPort], _network: str, _log_file: str, /
    ) -> tuple[Listener, ...]:
        """The listeners that find the cluster of a tunnel and pass its bytes on; `log_file` is where tunnels are
        written down.
        """

    def constant_clusters(self) -> tuple[Cluster, ...]:
        """The clusters that are there whatever is exposed."""

    def cluster_name(self, port: ExposedPort) -> str:
        """The name of the cluster of an exposed port."""

    def service_cluster(self, port: ExposedPort) -> Cluster:
        """The cluster of an exposed port."""

    def endpoint(self, _port: ExposedPort, _workload: Workload, _target: int, /) -> TunnelEndpoint:
        """One of its endpoints: a port of a workload."""

    def waypoint_endpoints(self, _port: ExposedPort, /) -> tuple[TunnelEndpoint, ...]:
        """Those of its endpoints that lead to waypoints."""


_FORMS: Mapping[str, Form] = {Profile.STOCK: east_west_stock, Profile.ISTIO: east_west_istio}


class Sources(msgspec.Struct, frozen=True):
    """What the messages are made from."""

    mesh: Callable[[At], Mesh]
    trust_domains: TrustDomains
    gateways: Source[ObjectKey, Gateway]
    nodes: Source[ObjectKey, Node]
    workloads: Workloads
    exposure: Exposure


class Bound(msgspec.Struct, frozen=True, gc=False):
    """An exposed port in a view, for its cluster or for its assignment."""

    view: View
    port: ExposedPort


class Reached(msgspec.Struct, frozen=True, gc=False):
    """A workload near that serves a service in the network of a view."""

    bound: Bound
    workload: Workload


class Behind(msgspec.Struct, frozen=True, gc=False):
    """An endpoint as one view tells it. `destination` is its address and port, as text."""

    locality: tuple[str, str, str]
    destination: str
    message: Encoded
    weight: int = 1


def view_of(type_url: str, *, gateway: str, bind: str, network: str, profile: Profile) -> View | None:
    """The view that a gateway's subscription reads; None for types such gateways are not told.

    `gateway` is the Gateway it is a proxy of, `<namespace>/<name>`; `bind` the IP address its listeners are to be on.
    """
    written = ("profile", profile.value)
    if type_url == CLUSTER_TYPE:
        return View(ROLE, type_url, (written,))
    if type_url == ASSIGNMENT_TYPE:
        return View(ROLE, type_url, (("network", network), written))
    if type_url == LISTENER_TYPE:
        own = (("bind", bind), ("gateway", gateway))
        # Only one form has addresses in its listeners, which mean something in one network only.
        return View(ROLE, type_url, (*own, *((("network", network),) if profile is Profile.ISTIO else ()), written))
    return None


def declare(
    graph: Graph, home: Home, views: Source[ViewKey, View], model: Sources
) -> list[Collection[ResourceKey, Resource]]:
    """Declare the gateways' resources; the result is what there is to publish."""
    exposure = model.exposure
    named = graph.expand(
        "views of east-west gateways", views, lambda _, __, view: ((view.name, view),) if view.role == ROLE else ()
    )
    by_type = graph.index("views of east-west gateways by type", named, lambda _, view: (view.type_url,))
    exposed = graph.index("exposed ports by type", exposure.ports, lambda _, __: (CLUSTER_TYPE, ASSIGNMENT_TYPE))

    def listeners(at: At, name: str, view: View) -> Iterable[tuple[ResourceKey, Outcome[Resource]]]:
        if view.type_url != LISTENER_TYPE:
            return
        profile = Profile(view.feature("profile"))
        form = _FORMS[profile]
        mesh = model.mesh(at)
        port = _tunnel_port(at, home, model.gateways, view.feature("gateway"))
        if isinstance(port, Withheld):
            yield (name, CONNECT_TERMINATE), port
        else:
            address = SocketAddress(view.feature("bind"), port)
            trusted = accepted(mesh.trust_domain, model.trust_domains.others(at))
            yield _listener(name, connect_terminate(address, profile, trusted, mesh.access_log_file))
        # The one derivation that reads all exposed ports, and only for proxies that need a chain for each.
        ports = at.group(exposed, CLUSTER_TYPE).values() if profile is Profile.ISTIO else ()
        for listener in form.internal_listeners(ports, view.feature("network"), mesh.access_log_file):
            yield _listener(name, listener)

    def constant_clusters(_at: At, name: str, view: View) -> Iterable[tuple[ResourceKey, Outcome[Resource]]]:
        if view.type_url == CLUSTER_TYPE:
            for cluster in _FORMS[view.feature("profile")].constant_clusters():
                yield (name, cluster.name), wrap(CLUSTER_TYPE, cluster.name, encode_cluster(cluster))

    bound = graph.pair(
        "exposed ports of east-west gateways", by_type, exposed, lambda _, view, __, port: Bound(view, port)
    )

    # Endpoints.
    def served(_key: BoundPort, one: Bound) -> Iterable[ServiceInNetwork]:
        assigned = one.view.type_url == ASSIGNMENT_TYPE
        return [(one.view.feature("network"), one.port.service.key)] if assigned else ()

    reached = graph.pair(
        "workloads behind east-west gateways",
        graph.index("exposed ports of east-west gateways by service", bound, served),
        model.workloads.near,
        lambda _, one, __, workload: Reached(one, workload),
    )

    def endpoint(at: At, _key: tuple[BoundPort, WorkloadKey], one: Reached) -> Outcome[Behind]:
        port, workload = one.bound.port, one.workload
        target = next(
            (
                target
                for service, ports in workload.services
                if service == port.service.key
                for number, target in ports
                if number == port.number
            ),
            0,
        )
        if not target:
            return Withheld("PortNotServed")
        if not _takes_tunnels(port, workload):
            base, detail = port.service.base, "some of its endpoints are not in the mesh"
            at.note(base, Finding(base, "EndpointTakesNoTunnels", "spec.selector", detail))
            return Withheld("EndpointTakesNoTunnels")
        if not (workload.healthy or port.service.allow_unready):
            return Withheld("EndpointNotReady")
        message = _FORMS[one.bound.view.feature("profile")].endpoint(port, workload, target)
        return Behind(_locality(at, model.nodes, workload), message.destination, encode_endpoint(message))

    behind = graph.index(
        "endpoints of exposed ports",
        graph.derive("endpoints behind east-west gateways", reached, endpoint),
        lambda key, _: (key[0],),
    )

    def service(at: At, key: BoundPort, one: Bound) -> Iterable[tuple[ResourceKey, Outcome[Resource]]]:
        form = _FORMS[one.view.feature("profile")]
        name = form.cluster_name(one.port)
        if one.view.type_url == CLUSTER_TYPE:
            unknown = [name for name, _ in one.port.service.waypoints if at.get(exposure.ports, name) is None]
            if unknown:
                base, detail = one.port.service.base, f"clients elsewhere cannot get to its waypoint {unknown[0]}"
                at.note(base, Finding(base, "WaypointHasNoService", "metadata.labels", detail))
            yield (key[0], name), wrap(CLUSTER_TYPE, name, encode_cluster(form.service_cluster(one.port)))
        else:
            groups = _groups((*at.group(behind, key).values(), *_waypoints(form, one.port)))
            yield (key[0], name), wrap(ASSIGNMENT_TYPE, name, encode_assignment(name, groups))

    return [
        graph.expand("listeners of east-west gateways", named, listeners),
        graph.expand("constant clusters of east-west gateways", named, constant_clusters),
        graph.expand("services of east-west gateways", bound, service),
    ]


def _listener(view: str, listener: Listener) -> tuple[ResourceKey, Resource]:
    return (view, listener.name), wrap(LISTENER_TYPE, listener.name, encode_listener(listener))


def _tunnel_port(at: At, home: Home, gateways: Source[ObjectKey, Gateway], name: str) -> int | Withheld:
    """The port on which a Gateway takes tunnels."""
    namespace, _, own = name.partition("/")
    gateway = at.get(gateways, (home.cluster, "Gateway", namespace, own))
    if gateway is None:
        return Withheld("GatewayNotFound", name)
    port = next((listener.port for listener in gateway.listeners if listener.protocol == "HBONE"), None)
    return port if port is not None else Withheld("GatewayTakesNoTunnels", name)


def _takes_tunnels(port: ExposedPort, workload: Workload) -> bool:
    """Whether tunnels end at a workload: at its node's proxy, or at itself as waypoints do without saying so."""
    is_waypoint = port.service.is_waypoint or label(workload.traits.labels, MANAGED_LABEL) == MANAGED_WAYPOINT
    return bool(workload.tunnel) or is_waypoint


def _waypoints(form: Form, port: ExposedPort) -> Iterable[Behind]:
    for one in form.waypoint_endpoints(port):
        yield Behind(("", "", ""), one.destination, encode_endpoint(one), one.weight)


def _locality(at: At, nodes: Source[ObjectKey, Node], workload: Workload) -> tuple[str, str, str]:
    node = at.get(nodes, (workload.traits.cluster, "Node", "", workload.node)) if workload.node else None
    return (node.region, node.zone, node.subzone) if node is not None else ("", "", "")


def _groups(endpoints: Iterable[Behind]) -> Iterable[Group]:
    """By locality, everything in order."""
    ordered = sorted(endpoints, key=lambda one: (one.locality, one.destination))
    for locality, members in groupby(ordered, key=lambda one: one.locality):
        these = tuple(members)
        messages = tuple(one.message for one in these)
        yield Group(messages, sum(one.weight for one in these), Locality(*locality) if any(locality) else None)
