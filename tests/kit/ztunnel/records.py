"""What a ztunnel keeps of the resources it accepted: workloads, services, policies and their parts.

`validation` makes these records from protobuf messages, `state` indexes them, `routing`, `inbound` and `authorization`
decide with them, `config_dump` prints them. Enumerations carry the spelling of ztunnel's configuration dump.
Nothing here knows protobuf or xDS; every default of ztunnel (trust domain, service account, cluster id, capacity) has
been filled in before a record exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface

from msgspec import Struct

IPAddress = IPv4Address | IPv6Address
"""An address of a workload, gateway or service."""

IPPrefix = IPv4Interface | IPv6Interface
"""An address with a prefix length; bits behind the prefix are kept as sent, and ignored when matching."""

INBOUND_PORT = 15008
"""Port on which every ztunnel and waypoint accepts HBONE."""


class Protocol(StrEnum):
    """What a workload accepts."""

    TCP = "TCP"
    HBONE = "HBONE"


class Status(StrEnum):
    """Health of a workload as an endpoint."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class NetworkMode(StrEnum):
    """Whether the addresses of a workload are its own."""

    STANDARD = "Standard"
    HOST_NETWORK = "HostNetwork"


class TunnelMode(StrEnum):
    """How an application that terminates HBONE traffic itself is reached."""

    NONE = "NONE"
    PROXY = "PROXY"


class BalancingMode(StrEnum):
    """How endpoints of a service are chosen."""

    STANDARD = "Standard"
    STRICT = "Strict"
    FAILOVER = "Failover"
    PASSTHROUGH = "Passthrough"


class HealthPolicy(StrEnum):
    """Which endpoints a service takes in."""

    ONLY_HEALTHY = "OnlyHealthy"
    ALLOW_ALL = "AllowAll"


class RoutingScope(StrEnum):
    """A property that client and endpoint may share."""

    REGION = "Region"
    ZONE = "Zone"
    SUBZONE = "Subzone"
    NODE = "Node"
    CLUSTER = "Cluster"
    NETWORK = "Network"


class IPFamily(StrEnum):
    """Restriction of a service to address families."""

    DUAL = "Dual"
    IPV4 = "IPv4"
    IPV6 = "IPv6"

    def accepts(self, address: IPAddress) -> bool:
        """Whether endpoints of the service may be dialled at `address`."""
        return self is IPFamily.DUAL or address.version == (4 if self is IPFamily.IPV4 else 6)


class Visibility(StrEnum):
    """Who may resolve a service."""

    PUBLIC = "Public"
    NAMESPACE = "Namespace"


class PolicyScope(StrEnum):
    """Which workloads a policy applies to."""

    GLOBAL = "Global"
    NAMESPACE = "Namespace"
    WORKLOAD_SELECTOR = "WorkloadSelector"


class PolicyAction(StrEnum):
    """What a policy that matches does."""

    ALLOW = "Allow"
    DENY = "Deny"


class Identity(Struct, frozen=True, gc=False):
    """A SPIFFE identity of the form that Istio gives to workloads."""

    trust_domain: str
    namespace: str
    service_account: str

    def __str__(self) -> str:
        return f"spiffe://{self.trust_domain}/ns/{self.namespace}/sa/{self.service_account}"

    @classmethod
    def parse(cls, text: str) -> Identity | None:
        """The identity written as `spiffe://<trust domain>/ns/<namespace>/sa/<account>`; None for any other text."""
        if not text.startswith("spiffe://"):
            return None
        match text.removeprefix("spiffe://").split("/"):
            case [trust_domain, "ns", namespace, "sa", account]:
                return cls(trust_domain, namespace, account)
        return None


class NamespacedHostname(Struct, frozen=True, gc=False, order=True):
    """Primary key of a service."""

    namespace: str
    hostname: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.hostname}"


class NetworkAddress(Struct, frozen=True, gc=False):
    """An address within a network: the same IP in another network is another host."""

    network: str
    address: IPAddress

    def __str__(self) -> str:
        return f"{self.network}/{self.address}"


class NetworkPrefix(Struct, frozen=True, gc=False):
    """A range of virtual addresses within a network."""

    network: str
    prefix: IPPrefix


class GatewayAddress(Struct, frozen=True, gc=False):
    """Where a waypoint or network gateway is found, and its HBONE port."""

    destination: NetworkAddress | NamespacedHostname
    port: int


class WeightedWaypoint(Struct, frozen=True, gc=False):
    """One of several waypoints that share a service's connections by weight."""

    destination: GatewayAddress
    weight: int


class ApplicationTunnel(Struct, frozen=True, gc=False):
    """How and on which port the application receives what arrived over HBONE; port None: the one asked for."""

    mode: TunnelMode
    port: int | None


class Locality(Struct, frozen=True, gc=False):
    """Topology of a node; parts not known are empty."""

    region: str = ""
    zone: str = ""
    subzone: str = ""


class LoadBalancer(Struct, frozen=True, gc=False):
    """Load balancing of a service; absent on a service it means STANDARD and ONLY_HEALTHY."""

    scopes: tuple[RoutingScope, ...]
    mode: BalancingMode
    health: HealthPolicy


class Workload(Struct, frozen=True, gc=False):
    """A workload by its uid."""

    uid: str
    name: str
    namespace: str
    addresses: tuple[IPAddress, ...]
    hostname: str
    network: str
    network_mode: NetworkMode
    protocol: Protocol
    trust_domain: str
    service_account: str
    waypoint: GatewayAddress | None
    network_gateway: GatewayAddress | None
    node: str
    canonical_name: str
    canonical_revision: str
    workload_type: str
    workload_name: str
    native_tunnel: bool
    application_tunnel: ApplicationTunnel | None
    authorization_policies: tuple[str, ...]
    status: Status
    cluster_id: str
    locality: Locality
    services: tuple[NamespacedHostname, ...]
    capacity: int

    @property
    def identity(self) -> Identity:
        """What the workload's certificate says."""
        return Identity(self.trust_domain, self.namespace, self.service_account)


class Endpoint(Struct, frozen=True, gc=False):
    """A workload as part of a service; `ports` maps service ports to ports of the workload."""

    workload_uid: str
    ports: Mapping[int, int]
    status: Status


class Service(Struct, frozen=True):
    """A service by (namespace, hostname) with the endpoints it had when this record was made.

    Records never change: an endpoint that comes or goes makes a new one (`state.ServiceStore`).
    """

    name: str
    namespace: str
    hostname: str
    vips: tuple[NetworkAddress, ...]
    vip_prefixes: tuple[NetworkPrefix, ...]
    ports: Mapping[int, int]
    endpoints: Mapping[str, Endpoint]
    subject_alt_names: tuple[str, ...]
    waypoint: GatewayAddress | None
    weighted_waypoints: tuple[WeightedWaypoint, ...]
    load_balancer: LoadBalancer | None
    ip_family: IPFamily | None
    canonical: bool
    visibility: Visibility

    @property
    def key(self) -> NamespacedHostname:
        """Primary key."""
        return NamespacedHostname(self.namespace, self.hostname)

    @property
    def passthrough(self) -> bool:
        """Whether connections go to the address asked for."""
        return self.load_balancer is not None and self.load_balancer.mode is BalancingMode.PASSTHROUGH

    def takes(self, status: Status) -> bool:
        """Whether an endpoint of this health becomes part of the service."""
        if status is Status.HEALTHY:
            return True
        return self.load_balancer is not None and self.load_balancer.health is HealthPolicy.ALLOW_ALL

    def visible_to(self, namespace: str) -> bool:
        """Whether clients of `namespace` may use the service."""
        return self.visibility is not Visibility.NAMESPACE or self.namespace == namespace


class StringMatch(Struct, frozen=True, gc=False):
    """A pattern for a namespace or principal; `kind` is Exact, Prefix, Suffix or Presence."""

    kind: str
    value: str = ""

    def matches(self, text: str) -> bool:
        """Whether `text` fits the pattern; an empty text never fits Presence."""
        match self.kind:
            case "Exact":
                return text == self.value
            case "Prefix":
                return text.startswith(self.value)
            case "Suffix":
                return text.endswith(self.value)
            case _:
                return bool(text)


class AccountMatch(Struct, frozen=True, gc=False):
    """A service account of any trust domain."""

    namespace: str
    service_account: str


class Match(Struct, frozen=True, gc=False):
    """Conditions that must all hold; within one, any value suffices. With no condition at all it never matches."""

    namespaces: tuple[StringMatch, ...] = ()
    not_namespaces: tuple[StringMatch, ...] = ()
    service_accounts: tuple[AccountMatch, ...] = ()
    not_service_accounts: tuple[AccountMatch, ...] = ()
    principals: tuple[StringMatch, ...] = ()
    not_principals: tuple[StringMatch, ...] = ()
    source_ips: tuple[IPPrefix, ...] = ()
    not_source_ips: tuple[IPPrefix, ...] = ()
    destination_ips: tuple[IPPrefix, ...] = ()
    not_destination_ips: tuple[IPPrefix, ...] = ()
    destination_ports: tuple[int, ...] = ()
    not_destination_ports: tuple[int, ...] = ()


EMPTY_MATCH = Match()


class Policy(Struct, frozen=True):
    """An authorization policy; `groups` holds groups of rules of matches."""

    name: str
    namespace: str
    scope: PolicyScope
    action: PolicyAction
    groups: tuple[tuple[tuple[Match, ...], ...], ...]
    dry_run: bool

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
