"""What ztunnels are told: workloads and services of the home network, gateways, and ways to other networks.

All ztunnels of a home share two views, Address and Authorization; whoever asks for the type Workload is told the
workloads among the addresses. The messages follow Istio's workload API so closely
that a fleet can move between control planes without churn: equal names, equal uids, equal fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.addresses import pack
from aggregator.mesh.global_services import GlobalServices, Service
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.networks import HBONE_PORT, NetworkGateway, Networks, Way
from aggregator.mesh.services import Port
from aggregator.mesh.split_horizon import Key, SplitHorizon
from aggregator.mesh.waypoints import Attached, Waypoint
from aggregator.mesh.workload import ServicePorts, Workload, WorkloadKey
from aggregator.mesh.workloads import Workloads
from aggregator.security.authorization_policies import Policies
from aggregator.security.peer_authentication import PeerAuthentications
from aggregator.security.policy_references import References
from aggregator.views import ztunnel_policies
from aggregator.views.view import ResourceKey, View, ViewKey
from watchers.facts.core import Node
from watchers.facts.keys import ObjectKey
from xds.encoded import ADMITS_ALL, ADMITS_HEALTHY, Resource, Ties, wrap
from xds.messages import addressing, service, workload
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.workload import ADDRESS_TYPE, WORKLOAD_TYPE, bare_workload

ROLE = "ztunnel"
ADDRESSES = View(ROLE, ADDRESS_TYPE)
AUTHORIZATIONS = View(ROLE, AUTHORIZATION_TYPE)
VIEWS = (ADDRESSES, AUTHORIZATIONS)
"""What every ztunnel asks for."""
WORKLOADS = View(ROLE, WORKLOAD_TYPE)

_PROTOCOLS = {
    "": addressing.AppProtocol.UNKNOWN,
    "HTTP11": addressing.AppProtocol.HTTP11,
    "HTTP2": addressing.AppProtocol.HTTP2,
    "GRPC": addressing.AppProtocol.GRPC,
    "TCP": addressing.AppProtocol.TCP,
    "TLS": addressing.AppProtocol.TLS,
}
_NO_TUNNEL, _HBONE = workload.TunnelProtocol.NONE, workload.TunnelProtocol.HBONE
_DEPLOYMENT, _POD = workload.WorkloadType.DEPLOYMENT, workload.WorkloadType.POD
_HEALTHY, _UNHEALTHY = workload.WorkloadStatus.HEALTHY, workload.WorkloadStatus.UNHEALTHY
_OWN_ADDRESS, _HOST_NETWORK = workload.NetworkMode.STANDARD, workload.NetworkMode.HOST_NETWORK
_FAMILIES = {
    (): service.IPFamilies.AUTOMATIC,
    ("IPv4",): service.IPFamilies.IPV4_ONLY,
    ("IPv6",): service.IPFamilies.IPV6_ONLY,
}
# Ranks of a split answer: services, workloads, services behind a waypoint, workloads that a gateway, a waypoint or
# their health makes depend on one of these.
_PLAIN_WORKLOAD, _BEHIND_WAYPOINT, _DEPENDENT_WORKLOAD = 1, 2, 3
_SERVICE_TIES = {
    (unready, waypoint): Ties(
        admits=ADMITS_ALL if unready else ADMITS_HEALTHY, rank=_BEHIND_WAYPOINT if waypoint else 0
    )
    for unready in (False, True)
    for waypoint in (False, True)
}

_GROUPS = {
    "Pod": "",
    "EndpointSlice": "discovery.k8s.io",
    "WorkloadEntry": "networking.istio.io",
    "ServiceEntry": "networking.istio.io",
}


class Sources(msgspec.Struct, frozen=True):
    """What the messages are made from."""

    mesh: Callable[[At], Mesh]
    nodes: Source[ObjectKey, Node]
    networks: Networks
    workloads: Workloads
    services: GlobalServices
    split_horizon: Collection[Key, SplitHorizon]
    policies: Policies
    authentications: PeerAuthentications
    policies_of: References


def view_of(type_url: str) -> View | None:
    """The view a ztunnel's subscription to `type_url` reads; None for types ztunnels are not served."""
    return next((view for view in (*VIEWS, WORKLOADS) if view.type_url == type_url), None)


def declare(
    graph: Graph, home: Home, views: Source[ViewKey, View], model: Sources
) -> list[Collection[ResourceKey, Resource]]:
    """Declare ztunnels' resources; the result is what there is to publish."""
    networks = model.networks

    def trust_domain(at: At, own: str = "") -> str:
        """As workloads carry it, of those that have one of their ``own``: the default one goes without saying."""
        domain = own or model.mesh(at).trust_domain
        return "" if domain == "cluster.local" else domain

    def locality(_at: At, _key: ObjectKey, node: Node) -> Outcome[addressing.Locality]:
        if node.region or node.zone or node.subzone:
            return addressing.Locality(node.region, node.zone, node.subzone)
        return Withheld("NodeHasNoTopology")

    localities = graph.derive("localities of nodes", model.nodes, locality)

    def of_workload(at: At, key: WorkloadKey, one: Workload) -> tuple[tuple[str, Outcome[Resource]]]:
        name, traits = uid(key), one.traits
        if not traits.at_home:
            return ((name, Withheld("InRemoteNetwork", traits.network)),)
        message = workload.Workload(
            uid=name,
            name=one.name,
            namespace=traits.namespace,
            addresses=tuple([packed for address in one.addresses if (packed := pack(address)) is not None]),
            network=traits.network,
            tunnel_protocol=_HBONE if one.tunnel else _NO_TUNNEL,
            trust_domain=trust_domain(at, traits.trust_domain),
            service_account=one.service_account,
            node=one.node,
            canonical_name=one.canonical_name,
            canonical_revision=traits.canonical_revision,
            workload_type=_DEPLOYMENT if one.kind == "EndpointSlice" else _POD,
            workload_name=one.workload_name,
            native_tunnel=traits.native_tunnel,
            services=_services(one.services),
            status=_HEALTHY if one.healthy else _UNHEALTHY,
            cluster_id=traits.cluster,
            locality=addressing.Locality(*one.locality)
            if one.locality
            else at.get(localities, (traits.cluster, "Node", "", one.node))
            if one.node
            else None,
            network_mode=_HOST_NETWORK if one.host_network else _OWN_ADDRESS,
            authorization_policies=model.policies_of(at, traits.cluster, traits.namespace, traits.labels)
            if one.kind != "EndpointSlice"
            else (),
            hostname=one.hostname,
            capacity=one.weight if one.weight > 1 else None,
            waypoint=_waypoint(traits.waypoint) if traits.waypoint else None,
            application_tunnel=None
            if one.kind != "Pod" or traits.proxied < 0
            else workload.ApplicationTunnel(workload.ApplicationTunnelProtocol.PROXY, traits.proxied),
        )
        ties = _joins(one.services, _PLAIN_WORKLOAD if one.healthy and not traits.waypoint else _DEPENDENT_WORKLOAD)
        return ((name, wrap(ADDRESS_TYPE, name, workload.encode_workload(message), ties=ties)),)

    def of_gateway(at: At, way: Way, gateway: NetworkGateway) -> Iterable[tuple[str, Outcome[Resource]]]:
        name = gateway_uid(gateway)
        message = workload.Workload(
            uid=name,
            name=name,
            namespace=gateway.namespace,
            addresses=(gateway.packed,),
            network=gateway.network,
            trust_domain=trust_domain(at, gateway.trust_domain),
            service_account=gateway.service_account,
        )
        yield name, wrap(ADDRESS_TYPE, name, workload.encode_workload(message))

    def of_split(at: At, key: Key, split: SplitHorizon) -> Iterable[tuple[str, Outcome[Resource]]]:
        gateway = split.gateway
        name = split_uid(split)
        message = workload.Workload(
            uid=name,
            name=name,
            namespace=split.namespace,
            network=split.network,
            tunnel_protocol=workload.TunnelProtocol.HBONE,
            trust_domain=trust_domain(at),
            network_gateway=addressing.GatewayAddress(
                addressing.NetworkAddress(gateway.network, gateway.packed), gateway.port
            ),
            workload_type=workload.WorkloadType.POD,
            services=((split.service, _ports(split.ports)),),
            status=workload.WorkloadStatus.HEALTHY if split.healthy else workload.WorkloadStatus.UNHEALTHY,
            cluster_id=gateway.cluster,
            capacity=split.capacity,
        )
        ties = _joins(((split.service, ()),), _DEPENDENT_WORKLOAD)
        yield name, wrap(ADDRESS_TYPE, name, workload.encode_workload(message), ties=ties)

    def of_service(_at: At, key: str, one: Service) -> Resource:
        balancing = None
        if one.balancing.mode or one.allow_unready:
            balancing = service.LoadBalancing(
                routing_preference=tuple(service.Scope[scope] for scope in one.balancing.preference),
                mode=service.Mode[one.balancing.mode] if one.balancing.mode else service.Mode.UNSPECIFIED,
                health_policy=service.HealthPolicy.ALLOW_ALL
                if one.allow_unready
                else service.HealthPolicy.ONLY_HEALTHY,
            )
        message = service.Service(
            name=one.name,
            namespace=one.namespace,
            hostname=one.hostname,
            addresses=tuple([_vip(network, address) for network, address in one.addresses]),
            ports=_ports(one.ports),
            subject_alt_names=one.identities,
            load_balancing=balancing,
            ip_families=_FAMILIES.get(one.ip_families, service.IPFamilies.DUAL),
            canonical=one.canonical,
            visibility=service.Visibility[one.visibility],
            ingress_use_waypoint=one.ingress_waypoint,
            waypoint=_waypoint(one.attached.waypoint) if one.attached else None,
            weighted_waypoints=_weighted(one.attached) if one.attached else (),
        )
        ties = _SERVICE_TIES[one.allow_unready, one.attached is not None]
        return wrap(ADDRESS_TYPE, key, service.encode_service(message), ties=ties)

    named = graph.expand("ztunnel views", views, lambda _, __, view: ((view.name, view),) if view.role == ROLE else ())
    views_by_type = graph.index(
        "ztunnel views by type",
        named,
        lambda _, view: (AUTHORIZATION_TYPE if view.type_url == AUTHORIZATION_TYPE else ADDRESS_TYPE,),
    )
    messages: list[Collection[str, Resource]] = [
        *(
            graph.expand(f"messages of {one.name}", one, of_workload, unless=lambda _, one: not one.traits.at_home)
            for one in model.workloads.collections
        ),
        graph.expand("messages of gateways", networks.gateways, of_gateway),
        graph.expand("messages of split horizon", model.split_horizon, of_split),
        graph.derive("messages of services", model.services.services, of_service),
    ]
    addresses = graph.index("addresses", tuple(messages), lambda _, __: (ADDRESS_TYPE,))
    policies = graph.index(
        "authorizations",
        tuple(ztunnel_policies.declare(graph, model.policies, model.authentications)),
        lambda _, __: (AUTHORIZATION_TYPE,),
    )
    return [
        graph.pair("addresses of ztunnels", views_by_type, addresses, _address),
        graph.pair("authorizations of ztunnels", views_by_type, policies, _resource),
    ]


@lru_cache(4096)
def _services(services: tuple[tuple[str, ServicePorts], ...]) -> tuple[tuple[str, tuple[addressing.Port, ...]], ...]:
    """What a workload serves, as its message says it: the same for all pods of a Deployment."""
    return tuple((name, tuple(addressing.Port(number, target) for number, target in ports)) for name, ports in services)


@lru_cache(4096)
def _joins(services: tuple[tuple[str, ServicePorts], ...], rank: int) -> Ties:
    """The services a workload is an endpoint of: one object for all pods of a Deployment."""
    return Ties(tuple([name for name, _ in services]), rank=rank)


def _address(_view: str, what: View, _name: str, resource: Resource) -> Outcome[Resource]:
    """A workload or service in the type of the view."""
    if what.type_url == ADDRESS_TYPE:
        return resource
    return bare_workload(resource) or Withheld("ServiceIsNoWorkload")


def _resource(_view: str, _what: View, _name: str, resource: Resource) -> Resource:
    return resource


def _waypoint(one: Waypoint) -> addressing.GatewayAddress:
    return addressing.GatewayAddress(
        addressing.NamespacedHostname(one.namespace, one.hostname)
        if one.hostname
        else addressing.NetworkAddress(one.network, pack(one.address) or b""),
        HBONE_PORT,
    )


def _weighted(attached: Attached) -> tuple[service.WeightedWaypoint, ...]:
    """The waypoints of a service that has a canary."""
    if attached.canary is None:
        return ()
    return (
        service.WeightedWaypoint(_waypoint(attached.waypoint), 100 - attached.canary_weight),
        service.WeightedWaypoint(_waypoint(attached.canary), attached.canary_weight),
    )


def _vip(network: str, address: str) -> addressing.NetworkAddress:
    """An address of a service, or a range of them."""
    host, _, length = address.partition("/")
    return addressing.NetworkAddress(network, pack(host) or b"", int(length) if length else None)


def _ports(ports: tuple[Port, ...]) -> tuple[addressing.Port, ...]:
    return tuple(addressing.Port(port.number, port.target, _PROTOCOLS[port.protocol]) for port in ports)


def uid(key: WorkloadKey) -> str:
    """The uid of a workload: `<cluster>/<API group>/<kind>/<namespace>/<name>` of its object, and the address behind if
    the object lists several.
    """
    cluster, kind = key[:2]
    return f"{cluster}/{_GROUPS[kind]}/{'/'.join(key[1:])}"


def is_of_cluster(name: str, cluster: str) -> bool:
    """Whether a resource name is that of a workload of the cluster, made from its objects alone."""
    return name.startswith(tuple(f"{cluster}/{group}/{kind}/" for kind, group in _GROUPS.items()))


def is_gateway(name: str) -> bool:
    """Whether a resource name is that of a gateway of a network."""
    return name.startswith("NetworkGateway/")


def gateway_uid(gateway: NetworkGateway) -> str:
    """`NetworkGateway/<network>/<address>/<port>`; as in Istio, the usual port of a remote gateway is written 0."""
    port = 0 if gateway.port == HBONE_PORT and not gateway.stand_in else gateway.port
    return f"NetworkGateway/{gateway.network}/{gateway.address}/{port}"


def split_uid(split: SplitHorizon) -> str:
    """`<network>/SplitHorizonWorkload/<gateway>/<address>/<service>`; an unusual port stands behind the address."""
    gateway = split.gateway
    address = gateway.address if gateway.port == HBONE_PORT else f"{gateway.address}:{gateway.port}"
    return f"{split.network}/SplitHorizonWorkload/{gateway.namespace}/{gateway.name}/{address}/{split.service}"
