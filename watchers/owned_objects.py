"""Objects of the home cluster that this product makes: what they are to be, as frozen records, and the requests.

In: records that the aggregator derives, of objects it knows to be ours or not to be there. Out: server-side applies and
deletions. An object that somebody else makes or takes over in the meantime is neither taken back nor deleted: fields of
another are forced away only where it is known whose they are, and a deletion names the very object.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from watchers.facts.conditions import MANAGER
from watchers.facts.keys import Labels
from watchers.facts.multicluster import ImportSpec
from watchers.facts.root_certificates import ENTRY, LABEL

APPLY = "application/apply-patch+yaml"


class Request(msgspec.Struct, frozen=True):
    """A request that carries a write out."""

    method: Literal["PATCH", "DELETE"]
    path: str
    query: dict[str, str]
    body: bytes
    content_type: str = APPLY


class ImportedService(msgspec.Struct, frozen=True, gc=False):
    """A ServiceImport as it is to be; ``exists`` if there is one, which is ours then."""

    labels: Labels
    annotations: Labels
    spec: ImportSpec
    exists: bool


class DistributedRoots(msgspec.Struct, frozen=True, gc=False):
    """The root certificates a namespace is to have, PEM. With ``force`` those go who own what is to be ours."""

    text: str
    force: bool = False


class Removal(msgspec.Struct, frozen=True, gc=False):
    """An object of ours is to go, the one with this uid."""

    uid: str


OwnedObject = DistributedRoots | ImportedService | Removal


def query(*, force: bool) -> dict[str, str]:
    """The query of a server-side apply; with ``force`` fields that are to be ours are, whoever wrote them before."""
    return {"fieldManager": MANAGER, "force": "true"} if force else {"fieldManager": MANAGER}


def request(path: str, head: dict[str, Any], write: OwnedObject) -> Request:
    """The request for an object, of which ``head`` has apiVersion, kind, name and namespace."""
    if isinstance(write, Removal):
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": write.uid}}
        return Request("DELETE", path, {}, msgspec.json.encode(options), "application/json")
    if isinstance(write, DistributedRoots):
        metadata = {**head["metadata"], "labels": {LABEL: "true"}}
        document = {**head, "metadata": metadata, "data": {ENTRY: write.text}}
        return Request("PATCH", path, query(force=write.force), msgspec.json.encode(document))
    metadata = {**head["metadata"], "labels": dict(write.labels)}
    if write.annotations:
        metadata["annotations"] = dict(write.annotations)
    document = {**head, "metadata": metadata, "spec": _import_spec(write.spec)}
    return Request("PATCH", path, query(force=write.exists), msgspec.json.encode(document))


def _import_spec(spec: ImportSpec) -> dict[str, Any]:
    ports = [
        {
            **({"name": port.name} if port.name else {}),
            "port": port.number,
            "protocol": port.protocol,
            **({"appProtocol": port.app_protocol} if port.app_protocol else {}),
        }
        for port in spec.ports
    ]
    seconds = {"clientIP": {"timeoutSeconds": spec.affinity_seconds}} if spec.affinity_seconds else {}
    optional = {
        "ips": list(spec.addresses),
        "ipFamilies": list(spec.families),
        "sessionAffinity": spec.affinity,
        "sessionAffinityConfig": seconds,
        "internalTrafficPolicy": spec.internal_traffic_policy,
        "trafficDistribution": spec.traffic_distribution,
    }
    return {"type": spec.type, "ports": ports, **{name: value for name, value in optional.items() if value}}
