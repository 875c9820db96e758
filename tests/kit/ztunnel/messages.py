"""Resources and responses as a control plane would send them, written in few words for tests of the stand-in.

Fields are given in the form of the golden records (addresses as text, enums by name or number), names of resources come
from the keys inside unless a test wants another. `response` frames them as the bytes of one DeltaDiscoveryResponse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kit.golden import from_json
from tests.kit.ztunnel.validation import ADDRESS_TYPE, AUTHORIZATION_TYPE
from xds import protos

RECORDINGS = Path(__file__).parent.parent / "fixtures" / "ztunnel"

Resource = tuple[str, Any]
"""A resource name and its message."""


def workload(uid: str, *, xds_name: str | None = None, **fields: Any) -> Resource:
    """An Address that holds a workload. `name` and `namespace` are taken from the end of the uid if not given."""
    parts = uid.split("/")
    named = {"name": parts[-1], "namespace": parts[-2]} if len(parts) > 1 else {}
    message = from_json({"workload": {"uid": uid, **named, **fields}}, protos.istio.workload.Address())
    return uid if xds_name is None else xds_name, message


def service(hostname: str, namespace: str = "demo", *, xds_name: str | None = None, **fields: Any) -> Resource:
    """An Address that holds a service; its name is the first label of the hostname."""
    named = {"name": hostname.partition(".")[0], "namespace": namespace, "hostname": hostname}
    message = from_json({"service": {**named, **fields}}, protos.istio.workload.Address())
    return f"{namespace}/{hostname}" if xds_name is None else xds_name, message


def authorization(name: str, namespace: str = "demo", *, xds_name: str | None = None, **fields: Any) -> Resource:
    """An Authorization."""
    message = from_json({"name": name, "namespace": namespace, **fields}, protos.istio.security.Authorization())
    return f"{namespace}/{name}" if xds_name is None else xds_name, message


def ports(**mapping: int) -> dict[str, Any]:
    """A port list: `ports(p80=8080)` maps service port 80 to target port 8080."""
    return {"ports": [{"service_port": int(key[1:]), "target_port": target} for key, target in mapping.items()]}


def response(
    *resources: Resource, removed: Sequence[str] = (), nonce: str = "n1", type_url: str = "", version: str = ""
) -> bytes:
    """One response. Its type is that of the resources; without any it is Address unless given.

    Versions are content hashes, as a control plane's should be.
    """
    message = protos.envoy.service.discovery.v3.DeltaDiscoveryResponse()
    kinds = {f"type.googleapis.com/{resource.DESCRIPTOR.full_name}" for _, resource in resources}
    message.type_url = type_url or next(iter(kinds), ADDRESS_TYPE)
    message.nonce = nonce
    message.system_version_info = version
    message.removed_resources.extend(removed)
    for name, resource in resources:
        data = resource.SerializeToString(deterministic=True)
        entry = message.resources.add(name=name, version=hashlib.sha256(data).hexdigest()[:12])
        entry.resource.type_url = f"type.googleapis.com/{resource.DESCRIPTOR.full_name}"
        entry.resource.value = data
    return bytes(message.SerializeToString())


def request(data: bytes) -> Any:
    """The DeltaDiscoveryRequest in `data`."""
    return protos.envoy.service.discovery.v3.DeltaDiscoveryRequest.FromString(data)


def recording(name: str) -> Any:
    """A recording of the real ztunnel, by file name without suffix."""
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def recorded_world(view: str) -> Iterable[Resource]:
    """What a real ztunnel connected two networks with: view `a` is that of the client's side, `b` the server's."""
    recorded = recording("known_good_world")["views"][view]
    for name, resource in recorded["address"].items():
        yield name, from_json(resource, protos.istio.workload.Address())
    for name, policy in recorded["authz"].items():
        yield name, from_json(_renamed(policy), protos.istio.security.Authorization())


def world_responses(resources: Iterable[Resource]) -> tuple[bytes, bytes]:
    """The first responses for these resources: all addresses, all authorizations."""
    of_type: Mapping[str, list[Resource]] = {ADDRESS_TYPE: [], AUTHORIZATION_TYPE: []}
    for name, message in resources:
        of_type[f"type.googleapis.com/{message.DESCRIPTOR.full_name}"].append((name, message))
    return (
        response(*of_type[ADDRESS_TYPE], type_url=ADDRESS_TYPE, nonce="addresses"),
        response(*of_type[AUTHORIZATION_TYPE], type_url=AUTHORIZATION_TYPE, nonce="authorizations"),
    )


def _renamed(policy: Mapping[str, Any]) -> dict[str, Any]:
    """A policy as recorded: that proto calls groups rules, and rules clauses; the numbers are the same."""
    groups = [{"rules": group["clauses"]} for group in policy["rules"]]
    return {**{key: value for key, value in policy.items() if key != "rules"}, "groups": groups}
