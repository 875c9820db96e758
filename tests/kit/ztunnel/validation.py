"""What ztunnel makes of one resource: a record, or the reason with which it rejects the resource.

Input is the bytes inside a resource's Any, output a `Reading`: the record for `state` and the oddities, things ztunnel
takes without a word although no control plane should send them. `Rejected` carries the text that ends up in the NACK,
in ztunnel's words. Readings are cached by bytes, so a thousand clients that receive the same resource share one
record. The checks look at one resource alone; what only shows beside others (two services on one address) is found by
`state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address, ip_interface
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from tests.kit.ztunnel.readings import PolicyUpdate, Reading, ServiceUpdate, Trait, WorkloadUpdate
from tests.kit.ztunnel.records import (
    EMPTY_MATCH,
    AccountMatch,
    ApplicationTunnel,
    BalancingMode,
    Endpoint,
    GatewayAddress,
    HealthPolicy,
    Identity,
    IPAddress,
    IPFamily,
    IPPrefix,
    LoadBalancer,
    Locality,
    Match,
    NamespacedHostname,
    NetworkAddress,
    NetworkMode,
    NetworkPrefix,
    Policy,
    PolicyAction,
    PolicyScope,
    Protocol,
    RoutingScope,
    Service,
    Status,
    StringMatch,
    TunnelMode,
    Visibility,
    WeightedWaypoint,
    Workload,
)
from tests.kit.ztunnel.wire import Malformed, unknown_fields
from xds import protos

ADDRESS_TYPE = "type.googleapis.com/istio.workload.Address"
AUTHORIZATION_TYPE = "type.googleapis.com/istio.security.Authorization"

_PROTOCOLS = {0: Protocol.TCP, 1: Protocol.HBONE}
_STATUSES = {0: Status.HEALTHY, 1: Status.UNHEALTHY}
_NETWORK_MODES = {0: NetworkMode.STANDARD, 1: NetworkMode.HOST_NETWORK}
_TUNNEL_MODES = {0: TunnelMode.NONE, 1: TunnelMode.PROXY}
_WORKLOAD_TYPES = {0: "deployment", 1: "cronjob", 2: "pod", 3: "job"}
_IP_FAMILIES = {0: None, 1: IPFamily.IPV4, 2: IPFamily.IPV6, 3: IPFamily.DUAL}
_VISIBILITIES = {0: Visibility.PUBLIC, 1: Visibility.NAMESPACE}
_BALANCING_MODES = {
    0: BalancingMode.STANDARD,
    1: BalancingMode.STRICT,
    2: BalancingMode.FAILOVER,
    3: BalancingMode.PASSTHROUGH,
}
_HEALTH_POLICIES = {0: HealthPolicy.ONLY_HEALTHY, 1: HealthPolicy.ALLOW_ALL}
_ROUTING_SCOPES = {
    0: None,
    1: RoutingScope.REGION,
    2: RoutingScope.ZONE,
    3: RoutingScope.SUBZONE,
    4: RoutingScope.NODE,
    5: RoutingScope.CLUSTER,
    6: RoutingScope.NETWORK,
}
_POLICY_SCOPES = {0: PolicyScope.GLOBAL, 1: PolicyScope.NAMESPACE, 2: PolicyScope.WORKLOAD_SELECTOR}
_POLICY_ACTIONS = {0: PolicyAction.ALLOW, 1: PolicyAction.DENY}
_APP_PROTOCOLS = range(6)

_Value = TypeVar("_Value")


class Rejected(Exception):
    """ztunnel refuses the resource; the text is what it says in its NACK after the resource's name."""


class Undecodable(Rejected):
    """The bytes are no such message. ztunnel names these resources after those it could read."""


@lru_cache(maxsize=1 << 15)
def read(type_url: str, data: bytes) -> Reading:
    """The record in `data`, a resource of `type_url` (Address or Authorization). Raises Rejected."""
    notes: list[tuple[Trait, str]] = []
    update: WorkloadUpdate | ServiceUpdate | PolicyUpdate
    if type_url == AUTHORIZATION_TYPE:
        update = PolicyUpdate(_policy(_decode(protos.istio.security.Authorization(), data, notes), notes))
    else:
        address = _decode(protos.istio.workload.Address(), data, notes)
        match address.WhichOneof("type"):
            case "workload":
                update = _workload(address.workload, notes)
            case "service":
                update = ServiceUpdate(_service(address.service, notes))
            case _:
                raise Rejected("unknown address type")
    return Reading(update, tuple(notes))


def _decode(message: Message, data: bytes, notes: list[tuple[Trait, str]]) -> Any:
    try:
        notes.extend((Trait.UNKNOWN_FIELD, field) for field in unknown_fields(data, message.DESCRIPTOR))
        message.ParseFromString(data)
    except Malformed as error:
        raise Undecodable(f"decode: failed to decode Protobuf message: {error}") from None
    except DecodeError:  # packed numbers are the one thing the walk does not look into
        raise Undecodable("decode: failed to decode Protobuf message: invalid varint") from None
    return message


def _workload(message: Any, notes: list[tuple[Trait, str]]) -> WorkloadUpdate:
    waypoint = _optional_gateway(message, "waypoint", notes)
    network_gateway = _optional_gateway(message, "network_gateway", notes)
    tunnel = _application_tunnel(message.application_tunnel) if message.HasField("application_tunnel") else None
    addresses = tuple(_address(data) for data in message.addresses)
    services = tuple(_namespaced_hostname(key) for key in message.services)
    if message.tunnel_protocol == 2:
        raise Rejected("unknown enum: unsupported tunnel protocol: legacy istio mtls")
    protocol = _enum(_PROTOCOLS, message.tunnel_protocol)
    network_mode = _enum(_NETWORK_MODES, message.network_mode)
    status = _enum(_STATUSES, message.status)
    if not message.uid:
        notes.append((Trait.EMPTY_UID, ""))
    if not (addresses or message.hostname or network_gateway):
        notes.append((Trait.UNREACHABLE, ""))
    workload = Workload(
        uid=message.uid,
        name=message.name,
        namespace=message.namespace,
        addresses=addresses,
        hostname=message.hostname,
        network=message.network,
        network_mode=network_mode,
        protocol=protocol,
        trust_domain=message.trust_domain or "cluster.local",
        service_account=message.service_account or "default",
        waypoint=waypoint,
        network_gateway=network_gateway,
        node=message.node,
        canonical_name=message.canonical_name,
        canonical_revision=message.canonical_revision,
        workload_type=_lenient_enum(_WORKLOAD_TYPES, message.workload_type, "workload_type", notes),
        workload_name=message.workload_name,
        native_tunnel=message.native_tunnel,
        application_tunnel=tunnel,
        authorization_policies=tuple(message.authorization_policies),
        status=status,
        cluster_id=message.cluster_id or "Kubernetes",
        locality=Locality(message.locality.region, message.locality.zone, message.locality.subzone),
        services=services,
        capacity=message.capacity.value if message.HasField("capacity") else 1,
    )
    endpoints = tuple(
        (_namespaced_hostname(key), Endpoint(message.uid, _ports(ports.ports, f"services[{key}]", notes), status))
        for key, ports in message.services.items()
    )
    return WorkloadUpdate(workload, endpoints)


def _service(message: Any, notes: list[tuple[Trait, str]]) -> Service:
    vips: list[NetworkAddress] = []
    prefixes: list[NetworkPrefix] = []
    for entry in message.addresses:
        address = _address(entry.address)
        if entry.HasField("length") and entry.length != address.max_prefixlen:
            prefixes.append(NetworkPrefix(entry.network, _prefix(address, entry.length)))
        else:
            vips.append(NetworkAddress(entry.network, address))
    waypoint = _optional_gateway(message, "waypoint", notes)
    weighted = tuple(
        WeightedWaypoint(_gateway(entry.destination, "weighted_waypoints", notes), entry.weight)
        for entry in message.weighted_waypoints
    )
    balancer = _load_balancer(message.load_balancing) if message.HasField("load_balancing") else None
    ip_family = _enum(_IP_FAMILIES, message.ip_families)
    names = tuple(message.subject_alt_names)
    notes.extend((Trait.INVALID_SAN, name) for name in names if Identity.parse(name) is None)
    if list(names) != sorted(names):
        notes.append((Trait.UNSORTED_SANS, ", ".join(names)))
    if not message.hostname:
        notes.append((Trait.EMPTY_HOSTNAME, ""))
    return Service(
        name=message.name,
        namespace=message.namespace,
        hostname=message.hostname,
        vips=tuple(vips),
        vip_prefixes=tuple(prefixes),
        ports=_ports(message.ports, "ports", notes),
        endpoints={},
        subject_alt_names=names,
        waypoint=waypoint,
        weighted_waypoints=weighted,
        load_balancer=balancer,
        ip_family=ip_family,
        canonical=message.canonical,
        visibility=_lenient_enum(_VISIBILITIES, message.visibility, "visibility", notes),
    )


def _policy(message: Any, notes: list[tuple[Trait, str]]) -> Policy:
    groups = tuple(
        tuple(tuple(_match(match, notes) for match in rules.matches) for rules in group.rules)
        for group in message.groups
    )
    return Policy(
        name=message.name,
        namespace=message.namespace,
        scope=_enum(_POLICY_SCOPES, message.scope),
        action=_enum(_POLICY_ACTIONS, message.action),
        groups=groups,
        dry_run=message.dry_run,
    )


def _match(message: Any, notes: list[tuple[Trait, str]]) -> Match:
    match = Match(
        namespaces=_strings(message.namespaces, notes),
        not_namespaces=_strings(message.not_namespaces, notes),
        service_accounts=_accounts(message.service_accounts),
        not_service_accounts=_accounts(message.not_service_accounts),
        principals=_strings(message.principals, notes),
        not_principals=_strings(message.not_principals, notes),
        source_ips=_ranges(message.source_ips, notes),
        not_source_ips=_ranges(message.not_source_ips, notes),
        destination_ips=_ranges(message.destination_ips, notes),
        not_destination_ips=_ranges(message.not_destination_ips, notes),
        destination_ports=tuple(_port(port, "destination_ports", notes) for port in message.destination_ports),
        not_destination_ports=tuple(
            _port(port, "not_destination_ports", notes) for port in message.not_destination_ports
        ),
    )
    if match == EMPTY_MATCH:
        notes.append((Trait.EMPTY_MATCH, ""))
    return match


def _strings(entries: Iterable[Any], notes: list[tuple[Trait, str]]) -> tuple[StringMatch, ...]:
    found: list[StringMatch] = []
    for entry in entries:
        kind = entry.WhichOneof("match_type")
        if kind is None:
            notes.append((Trait.CONDITION_DROPPED, "string match without a type"))
        else:
            found.append(StringMatch(kind.capitalize(), "" if kind == "presence" else getattr(entry, kind)))
    return tuple(found)


def _accounts(entries: Iterable[Any]) -> tuple[AccountMatch, ...]:
    return tuple(AccountMatch(entry.namespace, entry.serviceAccount) for entry in entries)


def _ranges(entries: Iterable[Any], notes: list[tuple[Trait, str]]) -> tuple[IPPrefix, ...]:
    found: list[IPPrefix] = []
    for entry in entries:
        try:
            found.append(_prefix(_address(entry.address), entry.length))
        except Rejected as error:
            notes.append((Trait.CONDITION_DROPPED, str(error)))
    return tuple(found)


def _load_balancer(message: Any) -> LoadBalancer:
    scopes: list[RoutingScope] = []
    for number in message.routing_preference:
        scope = _enum(_ROUTING_SCOPES, number)
        if scope is None:
            raise Rejected("unknown enum: invalid target")
        scopes.append(scope)
    return LoadBalancer(
        tuple(scopes), _enum(_BALANCING_MODES, message.mode), _enum(_HEALTH_POLICIES, message.health_policy)
    )


def _application_tunnel(message: Any) -> ApplicationTunnel:
    return ApplicationTunnel(_enum(_TUNNEL_MODES, message.protocol), (message.port & 0xFFFF) if message.port else None)


def _optional_gateway(message: Any, field: str, notes: list[tuple[Trait, str]]) -> GatewayAddress | None:
    return _gateway(getattr(message, field), field, notes) if message.HasField(field) else None


def _gateway(message: Any, field: str, notes: list[tuple[Trait, str]]) -> GatewayAddress:
    destination: NetworkAddress | NamespacedHostname
    match message.WhichOneof("destination"):
        case "address":
            destination = NetworkAddress(message.address.network, _address(message.address.address))
        case "hostname":
            destination = NamespacedHostname(message.hostname.namespace, message.hostname.hostname)
        case _:
            raise Rejected("nonempty gateway address is missing address")
    if not message.hbone_mtls_port:
        notes.append((Trait.PORT_OUT_OF_RANGE, f"{field}: 0"))
    return GatewayAddress(destination, _port(message.hbone_mtls_port, field, notes))


def _ports(entries: Iterable[Any], field: str, notes: list[tuple[Trait, str]]) -> Mapping[int, int]:
    ports: dict[int, int] = {}
    for entry in entries:
        ports[_port(entry.service_port, field, notes)] = _port(entry.target_port, field, notes)
        if entry.app_protocol not in _APP_PROTOCOLS:
            notes.append((Trait.UNKNOWN_ENUM, f"{field}: app_protocol {entry.app_protocol}"))
    return ports


def _port(port: int, field: str, notes: list[tuple[Trait, str]]) -> int:
    if port > 0xFFFF:
        notes.append((Trait.PORT_OUT_OF_RANGE, f"{field}: {port}"))
    return port & 0xFFFF


def _address(data: bytes) -> IPAddress:
    if len(data) not in (4, 16):
        raise Rejected(f"failed to parse address, had {len(data)} bytes")
    return ip_address(data)


def _prefix(address: IPAddress, length: int) -> IPPrefix:
    length &= 0xFF  # ztunnel reads the length as eight bits before it checks it
    if length > address.max_prefixlen:
        raise Rejected("invalid cidr: invalid IP prefix length")
    return ip_interface((address, length))


def _namespaced_hostname(text: str) -> NamespacedHostname:
    namespace, slash, hostname = text.partition("/")
    if not slash:
        raise Rejected(f"failed to parse namespaced hostname: {text}")
    return NamespacedHostname(namespace, hostname)


def _enum(values: Mapping[int, _Value], number: int) -> _Value:
    try:
        return values[number]
    except KeyError:
        raise Rejected(f"decode error: unknown enumeration value {number}") from None


def _lenient_enum(values: Mapping[int, _Value], number: int, field: str, notes: list[tuple[Trait, str]]) -> _Value:
    if number not in values:
        notes.append((Trait.UNKNOWN_ENUM, f"{field}: {number}"))
    return values.get(number, values[0])
