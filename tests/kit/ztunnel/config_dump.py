"""The state in the shape of ztunnel's /config_dump: workloads, services, policies, stagedServices.

Certificates, settings and connections of the real dump have no counterpart here. Defaults are left out where ztunnel
leaves them out. Workloads are sorted by uid, services by hostname, policies by resource name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.kit.ztunnel.records import (
    AccountMatch,
    Endpoint,
    GatewayAddress,
    Locality,
    Match,
    Policy,
    Service,
    StringMatch,
    Workload,
)
from tests.kit.ztunnel.state import State

_MATCH_FIELDS = {
    "namespaces": "namespaces",
    "notNamespaces": "not_namespaces",
    "serviceAccounts": "service_accounts",
    "notServiceAccounts": "not_service_accounts",
    "principals": "principals",
    "notPrincipals": "not_principals",
    "sourceIps": "source_ips",
    "notSourceIps": "not_source_ips",
    "destinationIps": "destination_ips",
    "notDestinationIps": "not_destination_ips",
    "destinationPorts": "destination_ports",
    "notDestinationPorts": "not_destination_ports",
}


def config_dump(state: State) -> dict[str, Any]:
    """The dump as JSON values."""
    return {
        "workloads": [_workload(workload) for _, workload in sorted(state.workloads.by_uid.items())],
        "services": [_service(service) for service in state.services],
        "policies": [_policy(policy) for _, policy in sorted(state.policies.by_name.items())],
        "stagedServices": {str(key): _endpoints(endpoints) for key, endpoints in state.services.staged.items()},
    }


def _workload(workload: Workload) -> dict[str, Any]:
    tunnel = workload.application_tunnel
    always = {
        "workloadIps": [str(address) for address in workload.addresses],
        "protocol": workload.protocol.value,
        "networkMode": workload.network_mode.value,
        "name": workload.name,
        "namespace": workload.namespace,
        "status": workload.status.value,
        "clusterId": workload.cluster_id,
        "capacity": workload.capacity,
    }
    locality = workload.locality
    optional = {
        "waypoint": _gateway(workload.waypoint),
        "networkGateway": _gateway(workload.network_gateway),
        "uid": workload.uid,
        "trustDomain": workload.trust_domain,
        "serviceAccount": workload.service_account,
        "network": workload.network,
        "workloadName": workload.workload_name,
        "workloadType": workload.workload_type,
        "canonicalName": workload.canonical_name,
        "canonicalRevision": workload.canonical_revision,
        "hostname": workload.hostname,
        "node": workload.node,
        "nativeTunnel": workload.native_tunnel,
        "applicationTunnel": None if tunnel is None else {"protocol": tunnel.mode.value, "port": tunnel.port},
        "authorizationPolicies": list(workload.authorization_policies),
        "locality": None
        if locality == Locality()
        else {"region": locality.region, "zone": locality.zone, "subzone": locality.subzone},
        "services": [str(key) for key in workload.services],
    }
    return {**always, **_without_defaults(optional)}


def _service(service: Service) -> dict[str, Any]:
    balancer = service.load_balancer
    always = {
        "name": service.name,
        "namespace": service.namespace,
        "hostname": service.hostname,
        "vips": [str(vip) for vip in service.vips],
        "ports": _ports(service.ports),
        "endpoints": _endpoints(service.endpoints),
        "subjectAltNames": list(service.subject_alt_names),
        "canonical": service.canonical,
        "visibility": service.visibility.value,
    }
    optional = {
        "cidrVips": [{"network": entry.network, "cidr": str(entry.prefix)} for entry in service.vip_prefixes],
        "waypoint": _gateway(service.waypoint),
        "weightedWaypoints": [
            {"destination": _gateway(entry.destination), "weight": entry.weight} for entry in service.weighted_waypoints
        ],
        "loadBalancer": None
        if balancer is None
        else {
            "routingPreferences": [scope.value for scope in balancer.scopes],
            "mode": balancer.mode.value,
            "healthPolicy": balancer.health.value,
        },
        "ipFamilies": service.ip_family.value if service.ip_family is not None else None,
    }
    return {**always, **_without_defaults(optional)}


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "namespace": policy.namespace,
        "scope": policy.scope.value,
        "action": policy.action.value,
        "rules": [[[_match(match) for match in rule] for rule in group] for group in policy.groups],
        "dryRun": policy.dry_run,
    }


def _match(match: Match) -> dict[str, Any]:
    fields = {key: [_condition(value) for value in getattr(match, name)] for key, name in _MATCH_FIELDS.items()}
    return _without_defaults(fields)


def _condition(value: Any) -> Any:
    match value:
        case StringMatch(kind="Presence"):
            return {"Presence": []}
        case StringMatch(kind=kind, value=text):
            return {kind: text}
        case AccountMatch(namespace=namespace, service_account=account):
            return {"namespace": namespace, "serviceAccount": account}
        case int():
            return value
    return str(value)


def _gateway(gateway: GatewayAddress | None) -> dict[str, Any] | None:
    if gateway is None:
        return None
    return {"destination": str(gateway.destination), "hboneMtlsPort": gateway.port}


def _endpoints(endpoints: Mapping[str, Endpoint]) -> dict[str, Any]:
    return {
        uid: {"workloadUid": endpoint.workload_uid, "port": _ports(endpoint.ports), "status": endpoint.status.value}
        for uid, endpoint in endpoints.items()
    }


def _ports(ports: Mapping[int, int]) -> dict[str, int]:
    return {str(port): target for port, target in ports.items()}


def _without_defaults(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}
