"""Writes: what objects of the home cluster are to be told, as frozen records, and the requests that tell them.

In: records that the aggregator derives, under `WriteKey`. Out: for each the path and the body of a server-side apply
on the status of its object. Such an apply names all fields that are to be ours: what we wrote before and do not name
any more goes away, what others wrote stays. So a record without content takes back whatever we wrote. What is written
of objects that are ours as a whole is in `owned_objects`.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from watchers import owned_objects
from watchers.facts.conditions import Addresses, Condition, ListenerStatus
from watchers.owned_objects import OwnedObject, Request, query

WriteKey: TypeAlias = tuple[str, str, str, str, str]
"""The ObjectKey of the object, and the part of it that is written: "status", or "object" for all the rest."""

QUERY = query(force=True)

_GATEWAY_API = "gateway.networking.k8s.io/v1"
_MULTICLUSTER = "multicluster.x-k8s.io/v1alpha1"


class IngressStatus(msgspec.Struct, frozen=True, gc=False):
    """The addresses at which an Ingress is served."""

    addresses: Addresses


class GatewayStatus(msgspec.Struct, frozen=True, gc=False):
    """The conditions of a Gateway and of each of its listeners."""

    conditions: tuple[Condition, ...] = ()
    listeners: tuple[ListenerStatus, ...] = ()


class ConditionsStatus(msgspec.Struct, frozen=True, gc=False):
    """The conditions of an object of whose status nothing else is ours."""

    conditions: tuple[Condition, ...] = ()


class ServiceEntryStatus(msgspec.Struct, frozen=True, gc=False):
    """The addresses that hosts of a ServiceEntry were given, as (host, address), and its conditions."""

    addresses: tuple[tuple[str, str], ...]
    conditions: tuple[Condition, ...] = ()


class ServiceImportStatus(msgspec.Struct, frozen=True, gc=False):
    """The clusters that export the service of a ServiceImport, and its conditions."""

    clusters: tuple[str, ...]
    conditions: tuple[Condition, ...]


Status: TypeAlias = IngressStatus | GatewayStatus | ConditionsStatus | ServiceEntryStatus | ServiceImportStatus
Write: TypeAlias = Status | OwnedObject


class _Kind(msgspec.Struct, frozen=True):
    api_version: str
    plural: str


_KINDS = {
    "ConfigMap": _Kind("v1", "configmaps"),
    "Service": _Kind("v1", "services"),
    "Ingress": _Kind("networking.k8s.io/v1", "ingresses"),
    "Gateway": _Kind(_GATEWAY_API, "gateways"),
    "GatewayClass": _Kind(_GATEWAY_API, "gatewayclasses"),
    "ServiceEntry": _Kind("networking.istio.io/v1", "serviceentries"),
    "ServiceExport": _Kind(_MULTICLUSTER, "serviceexports"),
    "ServiceImport": _Kind(_MULTICLUSTER, "serviceimports"),
    "WorkloadEntry": _Kind("networking.istio.io/v1", "workloadentries"),
    "AuthorizationPolicy": _Kind("security.istio.io/v1", "authorizationpolicies"),
}


def request(key: WriteKey, write: Write, now: str) -> Request:
    """What carries a write out; ``now`` (RFC 3339) is since when conditions hold that have just changed."""
    if isinstance(write, OwnedObject):
        return owned_objects.request(path(key), _head(key), write)
    return Request("PATCH", path(key), QUERY, body(key, write, now))


def path(key: WriteKey) -> str:
    """The path of what a write goes to, the object or its status."""
    _, kind, namespace, name, part = key
    known = _KINDS[kind]
    space = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    root = "apis" if "/" in known.api_version else "api"
    below = "/status" if part == "status" else ""
    return f"/{root}/{known.api_version}/{space}{known.plural}/{quote(name, safe='')}{below}"


def _head(key: WriteKey) -> dict[str, Any]:
    _, kind, namespace, name, _ = key
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": _KINDS[kind].api_version, "kind": kind, "metadata": metadata}


def body(key: WriteKey, write: Status, now: str) -> bytes:
    """What a status is to be, as JSON, which is YAML."""
    document = _head(key)
    status: dict[str, Any] = {}
    if isinstance(write, IngressStatus):
        if write.addresses:
            status["loadBalancer"] = {"ingress": [_address(address) for address in write.addresses]}
    elif write.conditions:
        if isinstance(write, ServiceImportStatus):
            status["clusters"] = [{"cluster": cluster} for cluster in write.clusters]
        status["conditions"] = _conditions(write.conditions, now)
        if isinstance(write, GatewayStatus):
            status["listeners"] = [_listener(one, now) for one in write.listeners]
    if isinstance(write, ServiceEntryStatus) and write.addresses:
        status["addresses"] = [{"host": host, "value": address} for host, address in write.addresses]
    if status:
        document["status"] = status
    return msgspec.json.encode(document)


def _address(address: str) -> dict[str, str]:
    try:
        ip_address(address)
    except ValueError:
        return {"hostname": address}
    return {"ip": address}


def _listener(listener: ListenerStatus, now: str) -> dict[str, Any]:
    # No routes attach to the listeners that are served today, so there are none, of no kinds.
    conditions = _conditions(listener.conditions, now)
    return {"name": listener.name, "attachedRoutes": 0, "supportedKinds": [], "conditions": conditions}


def _conditions(conditions: Iterable[Condition], now: str) -> list[dict[str, Any]]:
    return [
        {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "lastTransitionTime": one.since or now,
            # What has no generation is judged by its labels, which have none either.
            **({"observedGeneration": one.generation} if one.generation else {}),
        }
        for one in conditions
    ]
