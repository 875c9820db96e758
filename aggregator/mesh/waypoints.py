"""Waypoints: the proxies that traffic to a service or a workload goes through first, and who asked for which.

A Gateway with an address in its status is a waypoint for whatever names it with the label istio.io/use-waypoint: on the
object itself, or else on its namespace. What an object says itself decides alone: if that waypoint cannot be used, the
object has none, and the namespace's is not taken in its place. Every cluster's objects name Gateways of their own
cluster. Rules and labels are Istio's (ambient mode, waypoints).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.addresses import is_dns_name, pack
from aggregator.mesh.home import Home, matches
from aggregator.mesh.networks import network_of
from aggregator.mesh.selection import UNSELECTED, Includes
from watchers.facts.core import Namespace
from watchers.facts.gateway_api import INBOUND_BINDING, SERVICE_ACCOUNT, Gateway, GatewayClass
from watchers.facts.keys import Labels, ObjectKey, label
from watchers.facts.selectors import LabelSelector

USE_LABEL = "istio.io/use-waypoint"
USE_NAMESPACE_LABEL = "istio.io/use-waypoint-namespace"
CANARY_LABEL = "istio.io/use-waypoint-canary"
CANARY_NAMESPACE_LABEL = "istio.io/use-waypoint-canary-namespace"
CANARY_WEIGHT = "istio.io/use-waypoint-canary-weight"
FOR_LABEL = "istio.io/waypoint-for"
INGRESS_LABEL = "istio.io/ingress-use-waypoint"
MANAGED_LABEL = "gateway.istio.io/managed"
MANAGED_WAYPOINT = "istio.io-mesh-controller"
"""What that label says of waypoints."""
GATEWAY_LABEL = "gateway.networking.k8s.io/gateway-name"
NONE = "none"
"""The value of the label that asks for no waypoint."""

Traffic: TypeAlias = Literal["service", "workload"]
"""What goes through a waypoint: what is addressed to services, or to workloads themselves."""


class Waypoint(msgspec.Struct, frozen=True, gc=False):
    """A waypoint: its Gateway's namespace and name, and where it is reached, by a hostname or an address of `network`.

    `serves` is service, workload, all or none. `account` is the service account it runs as. `proxied` is the port at
    which it takes the PROXY protocol in place of tunnels: 0 for the port that was asked for, -1 if it takes tunnels.
    """

    namespace: str
    name: str
    hostname: str
    network: str
    address: str
    serves: str
    account: str
    allowed_from: str
    allowed: LabelSelector | None
    proxied: int

    def takes(self, traffic: Traffic) -> bool:
        """Whether such traffic goes through it."""
        return self.serves in (traffic, "all")


class Refused(msgspec.Struct, frozen=True, gc=False):
    """Why what an object asks for is not given: a reason of Istio's condition WaypointBound, and the details."""

    reason: str
    detail: str


class Attached(msgspec.Struct, frozen=True, gc=False):
    """The waypoint of an object; its `canary` has `canary_weight` percent of the traffic, or else why there is none."""

    waypoint: Waypoint
    canary: Waypoint | None = None
    canary_weight: int = 0
    without_canary: Refused | None = None


class Asked(msgspec.Struct, frozen=True, gc=False):
    """An object that may have a waypoint, by what it says of that. What is `private` only its own namespace sees."""

    cluster: str
    namespace: str
    labels: Labels
    annotations: Labels
    traffic: Traffic
    private: bool = False


Judge: TypeAlias = Callable[[At, Asked], Attached | Refused | None]
"""Finds, inside a derivation, the waypoint of an object; None where none is asked for."""


class Waypoints(msgspec.Struct, frozen=True):
    """The part of the graph this module declares."""

    gateways: Collection[ObjectKey, Waypoint]
    of: Judge


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    networks: Collection[ObjectKey, str],
    namespaces: Source[ObjectKey, Namespace],
    gateways: Source[ObjectKey, Gateway],
    gateway_classes: Source[ObjectKey, GatewayClass],
) -> Waypoints:
    """Declare the waypoints of all clusters."""

    def waypoint(at: At, key: ObjectKey, gateway: Gateway) -> Outcome[Waypoint]:
        cluster, _, namespace, name = key
        if not includes(at, cluster, namespace):
            return UNSELECTED
        hosts = [one.value.lower() for one in gateway.addresses if one.type == "Hostname"]
        host = next((one for one in hosts if is_dns_name(one)), "")
        address = next(
            (one.value for one in gateway.addresses if one.type == "IPAddress" and pack(one.value) is not None), ""
        )
        if not host and not address:
            return Withheld("WaypointHasNoAddress")
        declared = at.get(gateway_classes, (home.cluster, "GatewayClass", "", gateway.class_name))
        binding = label(gateway.annotations, INBOUND_BINDING)
        serves = label(gateway.labels, FOR_LABEL)
        if declared is not None:
            binding = binding or label(declared.annotations, INBOUND_BINDING)
            serves = serves or label(declared.labels, FOR_LABEL)
        listener = next((one for one in gateway.listeners if one.protocol == "HBONE" and one.port == 15008), None)
        return Waypoint(
            namespace=namespace,
            name=name,
            hostname=host,
            network=network_of(at, networks, cluster),
            address="" if host else address,
            serves=serves or "service",
            account=label(gateway.annotations, SERVICE_ACCOUNT) or name,
            allowed_from=(listener.allowed_from if listener else "") or "Same",
            allowed=listener.allowed_selector if listener else None,
            proxied=_proxied(binding),
        )

    collection = graph.derive("waypoints", gateways, waypoint)

    def find(at: At, asked: Asked, namespace: str, name: str) -> Waypoint | Refused:
        if asked.private and namespace != asked.namespace:
            detail = f"waypoint {namespace}/{name} is not in namespace {asked.namespace}, which alone may see this"
            return Refused("CrossNamespaceWaypointForbidden", detail)
        found = at.get(collection, (asked.cluster, "Gateway", namespace, name))
        if found is None:
            return Refused("WaypointIsNotReady", f"waypoint {namespace}/{name} does not exist or has no address")
        if not _admits(at, namespaces, home, found, asked):
            detail = f"waypoint {namespace}/{name} does not admit objects of namespace {asked.namespace}"
            return Refused("AttachmentDenied", detail)
        if not found.takes(asked.traffic):
            return Refused("UnsupportedTrafficType", f"waypoint {namespace}/{name} is for {found.serves} traffic")
        return found

    def of(at: At, asked: Asked) -> Attached | Refused | None:
        if label(asked.labels, MANAGED_LABEL):
            return None
        place = at.get(namespaces, home.namespace_key(asked.cluster, asked.namespace))
        own = label(asked.labels, USE_LABEL)
        labels, annotations = (
            (asked.labels, asked.annotations) if own else (place.labels, place.annotations) if place else ((), ())
        )
        name = label(labels, USE_LABEL)
        if not name or name == NONE:
            return None
        primary = find(at, asked, label(labels, USE_NAMESPACE_LABEL) or asked.namespace, name)
        if isinstance(primary, Refused):
            # A namespace asks for all that is in it, whether it suits each or not.
            return primary if own or primary.reason != "UnsupportedTrafficType" else None
        canary = label(labels, CANARY_LABEL)
        if not canary:
            return Attached(primary)
        weight = label(annotations, CANARY_WEIGHT) or "0"
        if not weight.isascii() or not weight.isdigit() or len(weight) > 3 or int(weight) > 100:
            wrong = Refused("CanaryInvalidWeight", f"{CANARY_WEIGHT} is {weight[:80]!r}, not from 0 to 100")
            return Attached(primary, without_canary=wrong)
        second = find(at, asked, label(labels, CANARY_NAMESPACE_LABEL) or asked.namespace, canary)
        if second == primary:
            second = Refused("CanarySameAsPrimary", f"waypoint {primary.namespace}/{primary.name} is both")
        if isinstance(second, Refused):
            return Attached(primary, without_canary=second)
        return Attached(primary, second, int(weight))

    return Waypoints(collection, of)


def ingress_uses(labels: Labels, namespace: Namespace | None) -> bool:
    """Whether ingress gateways send a service's traffic through its waypoint as well."""
    own = label(labels, INGRESS_LABEL)
    return (own or (label(namespace.labels, INGRESS_LABEL) if namespace else "")).lower() == "true"


def hostname_of(waypoint: Waypoint, home: Home) -> str:
    """The hostname of its Service; one that is known by an address has it by the name of its Gateway."""
    return waypoint.hostname or f"{waypoint.name}.{waypoint.namespace}.svc.{home.domain_suffix}"


def _admits(
    at: At, namespaces: Source[ObjectKey, Namespace], home: Home, waypoint: Waypoint, asked: Asked
) -> bool:
    """Whether a waypoint's listener admits objects of a namespace (allowedRoutes; without it those of its own)."""
    if waypoint.allowed_from == "All" or (asked.namespace == waypoint.namespace and waypoint.allowed_from == "Same"):
        return True
    if waypoint.allowed_from != "Selector":
        return False
    place = at.get(namespaces, home.namespace_key(asked.cluster, asked.namespace))
    return place is not None and waypoint.allowed is not None and matches(waypoint.allowed, place.labels)


def _proxied(binding: str) -> int:
    kind, _, port = binding.partition("/")
    if kind != "PROXY":
        return -1
    return int(port) if port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536 else 0
