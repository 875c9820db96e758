"""Terse builders of Kubernetes objects, as the dicts a manifest holds.

Objects are named ``"namespace/name"`` (``"name"`` alone is in ``default``); lists that tests rarely care about have
sensible members. What a builder has no argument for goes in ``metadata``, ``spec`` or ``status``, which overlay the
block of that name. ``write_manifests`` puts objects into a file of a directory the way a careful operator does: whole,
then renamed into place.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
Fields = Mapping[str, Any]

CREATED = "2026-01-01T00:00:00Z"
TEMPLATE_HASH = "5d8f7c9b6"


def namespace(name: str, *, network: str = "", labels: Fields | None = None, **metadata: Any) -> Manifest:
    """A Namespace; ``network`` is the label that puts a cluster's system namespace, so the cluster, on a network."""
    own = {"topology.istio.io/network": network} if network else {}
    return _object("v1", "Namespace", "", name, {**own, **(labels or {})}, metadata)


def node(name: str, *, region: str = "", zone: str = "", subzone: str = "", labels: Fields | None = None) -> Manifest:
    """A Node with the topology labels that give its pods their locality."""
    topology = {
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": zone,
        "topology.istio.io/subzone": subzone,
    }
    own = {key: value for key, value in topology.items() if value}
    return _object("v1", "Node", "", name, {**own, **(labels or {})}, {})


def pod(
    name: str,
    ip: str | Sequence[str] = (),
    *,
    labels: Fields | None = None,
    annotations: Fields | None = None,
    account: str = "default",
    node: str = "",
    ready: bool = True,
    phase: str = "Running",
    ports: Mapping[str, int] | None = None,
    deployment: str = "",
    ambient: bool = True,
    deleting: bool = False,
    host_network: bool = False,
    created: str = CREATED,
    metadata: Fields | None = None,
    spec: Fields | None = None,
    status: Fields | None = None,
) -> Manifest:
    """A Pod with one container; ``ip`` is one address or, for dual stack, several.

    ``ambient`` (the default) marks it as redirected to ztunnel, as the node agent does. ``deployment`` makes it look
    made by that Deployment: generateName, owning ReplicaSet and template hash. ``ports`` are TCP ports by name.
    """
    place, own_name = _split(name)
    own_labels = dict(labels or {})
    own_annotations = dict(annotations or {})
    more: Manifest = {"creationTimestamp": created}
    if ambient:
        own_annotations.setdefault("ambient.istio.io/redirection", "enabled")
    if own_annotations:
        more["annotations"] = own_annotations
    if deployment:
        replica_set = f"{deployment}-{TEMPLATE_HASH}"
        own_labels.setdefault("pod-template-hash", TEMPLATE_HASH)
        more["generateName"] = f"{replica_set}-"
        more["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "uid": "0", "controller": True}
        ]
    if deleting:
        more["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    container: Manifest = {"name": "app", "image": "app:1"}
    if ports:
        container["ports"] = [{"name": key, "containerPort": port} for key, port in ports.items()]
    own_spec: Manifest = {"serviceAccountName": account, "containers": [container]}
    if node:
        own_spec["nodeName"] = node
    if host_network:
        own_spec["hostNetwork"] = True
    own_status: Manifest = {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    addresses = [ip] if isinstance(ip, str) else list(ip)
    if addresses:
        own_status["podIP"] = addresses[0]
        own_status["podIPs"] = [{"ip": address} for address in addresses]
    document = _object("v1", "Pod", place, own_name, own_labels, {**more, **(metadata or {})})
    return {**document, "spec": {**own_spec, **(spec or {})}, "status": {**own_status, **(status or {})}}


def service(
    name: str,
    vip: str | Sequence[str] | None = (),
    *,
    ports: Mapping[str, int | tuple[int, int | str] | Fields] | None = None,
    selector: Fields | None = None,
    labels: Fields | None = None,
    annotations: Fields | None = None,
    is_global: bool = False,
    created: str = CREATED,
    metadata: Fields | None = None,
    spec: Fields | None = None,
) -> Manifest:
    """A Service of type ClusterIP; ``vip`` is its cluster IP (several: dual stack), ``None`` makes it headless.

    ``ports`` maps the port's name to its number, to (number, target port), or to the port's own fields; without it
    there is one port ``http`` 80 -> 8080. ``is_global`` labels it ``istio.io/global: "true"``.
    """
    place, own_name = _split(name)
    own_labels = {"istio.io/global": "true"} if is_global else {}
    own_spec: Manifest = {"type": "ClusterIP"}
    addresses = ["None"] if vip is None else [vip] if isinstance(vip, str) else list(vip)
    if addresses:
        own_spec["clusterIP"] = addresses[0]
        own_spec["clusterIPs"] = addresses
    own_spec["ports"] = [_service_port(key, port) for key, port in (ports or {"http": (80, 8080)}).items()]
    if selector:
        own_spec["selector"] = dict(selector)
    more: Manifest = {"creationTimestamp": created}
    if annotations:
        more["annotations"] = dict(annotations)
    document = _object("v1", "Service", place, own_name, {**own_labels, **(labels or {})}, {**more, **(metadata or {})})
    return {**document, "spec": {**own_spec, **(spec or {})}}


def slice_(
    name: str,
    *endpoints: Manifest,
    service: str = "",
    ports: Mapping[str, int] | None = None,
    address_type: str = "IPv4",
    labels: Fields | None = None,
    created: str = CREATED,
    metadata: Fields | None = None,
) -> Manifest:
    """An EndpointSlice of ``service`` (label ``kubernetes.io/service-name``; none when empty) with ``endpoint()``s."""
    place, own_name = _split(name)
    own_labels = {"kubernetes.io/service-name": service} if service else {}
    document = _object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        place,
        own_name,
        {**own_labels, **(labels or {})},
        {"creationTimestamp": created, **(metadata or {})},
    )
    named = {"http": 8080} if ports is None else ports
    return {
        **document,
        "addressType": address_type,
        "ports": [{"name": key, "port": port, "protocol": "TCP"} for key, port in named.items()],
        "endpoints": list(endpoints),
    }


def endpoint(
    *addresses: str,
    pod: str = "",
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool = False,
    node: str = "",
    zone: str = "",
) -> Manifest:
    """An endpoint of a slice; ``pod`` is the ``"namespace/name"`` it stands for; ``None`` leaves a condition unset."""
    conditions: Manifest = {"terminating": terminating}
    if ready is not None:
        conditions["ready"] = ready
    if serving is not None:
        conditions["serving"] = serving
    document: Manifest = {"addresses": list(addresses), "conditions": conditions}
    if pod:
        place, own_name = _split(pod)
        document["targetRef"] = {"kind": "Pod", "namespace": place, "name": own_name}
    if node:
        document["nodeName"] = node
    if zone:
        document["zone"] = zone
    return document


def gateway(
    name: str,
    class_name: str = "istio-waypoint",
    *listeners: Manifest,
    addresses: Iterable[str | tuple[str, str]] = (),
    network: str = "",
    labels: Fields | None = None,
    annotations: Fields | None = None,
    created: str = CREATED,
    metadata: Fields | None = None,
) -> Manifest:
    """A Gateway with the usual HBONE listener on 15008 unless ``listener()``s are given.

    ``addresses`` are those of its status: an IP address, or (type, value) such as ``("Hostname", "lb.example")``.
    """
    place, own_name = _split(name)
    own_labels = {"topology.istio.io/network": network} if network else {}
    more: Manifest = {"creationTimestamp": created}
    if annotations:
        more["annotations"] = dict(annotations)
    document = _object(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        place,
        own_name,
        {**own_labels, **(labels or {})},
        {**more, **(metadata or {})},
    )
    pairs = [("IPAddress", address) if isinstance(address, str) else address for address in addresses]
    spec = {"gatewayClassName": class_name, "listeners": list(listeners) or [listener()]}
    document["spec"] = spec
    document["status"] = {"addresses": [{"type": kind, "value": value} for kind, value in pairs]}
    return document


def listener(
    name: str = "mesh",
    port: int = 15008,
    protocol: str = "HBONE",
    *,
    hostname: str = "",
    tls_mode: str = "",
    allowed_from: str = "",
    selector: Fields | None = None,
    certificates: Iterable[str | Fields] = (),
) -> Manifest:
    """A listener of a Gateway; ``selector`` is the label selector of ``allowed_from="Selector"``.

    ``certificates`` are its certificateRefs: the name of a Secret, ``namespace/name``, or the reference as it is.
    """
    document: Manifest = {"name": name, "port": port, "protocol": protocol}
    if hostname:
        document["hostname"] = hostname
    if tls_mode:
        document["tls"] = {"mode": tls_mode}
    if certificates:
        document.setdefault("tls", {"mode": "Terminate"})["certificateRefs"] = [
            dict(one) if isinstance(one, Mapping) else _secret_reference(one) for one in certificates
        ]
    if allowed_from:
        namespaces: Manifest = {"from": allowed_from}
        if selector is not None:
            namespaces["selector"] = dict(selector)
        document["allowedRoutes"] = {"namespaces": namespaces}
    return document


def east_west_gateway(name: str, *addresses: str | tuple[str, str], network: str) -> Manifest:
    """The Gateway through which other networks reach this one (class ``istio-east-west``)."""
    mesh = listener(tls_mode="Terminate", allowed_from="Same")
    return gateway(name, "istio-east-west", mesh, addresses=addresses, network=network)


def remote_gateway(name: str, *addresses: str | tuple[str, str], network: str) -> Manifest:
    """The stand-in, here, for a gateway elsewhere (class ``istio-remote``)."""
    return gateway(name, "istio-remote", addresses=addresses, network=network)


def gateway_class(name: str, controller: str = "istio.io/mesh-controller", *, labels: Fields | None = None) -> Manifest:
    """A GatewayClass and the controller that implements it."""
    document = _object("gateway.networking.k8s.io/v1", "GatewayClass", "", name, labels or {}, {})
    return {**document, "spec": {"controllerName": controller}}


def mesh_config_map(
    *,
    trust_domain: str = "",
    root_namespace: str = "",
    scopes: Sequence[Fields] | None = None,
    system_namespace: str = "istio-system",
    **mesh: Any,
) -> Manifest:
    """The ConfigMap ``istio`` that holds the mesh configuration as YAML text under the key ``mesh``.

    ``scopes`` are the ``serviceScopeConfigs`` as Istio writes them; other keyword arguments are further fields of the
    mesh configuration, by their own names.
    """
    content: Manifest = dict(mesh)
    if trust_domain:
        content["trustDomain"] = trust_domain
    if root_namespace:
        content["rootNamespace"] = root_namespace
    if scopes is not None:
        content["serviceScopeConfigs"] = [dict(scope) for scope in scopes]
    document = _object("v1", "ConfigMap", system_namespace, "istio", {}, {})
    return {**document, "data": {"mesh": yaml.safe_dump(content, sort_keys=False)}}


def service_entry(
    name: str,
    *hosts: str,
    resolution: str = "STATIC",
    ports: Sequence[Fields] = ({"number": 80, "name": "http", "protocol": "HTTP"},),
    endpoints: Sequence[str | Fields] = (),
    selector: Fields | None = None,
    labels: Fields | None = None,
    is_global: bool = False,
    allocated: Mapping[str, Sequence[str]] | None = None,
    created: str = CREATED,
    **spec: Any,
) -> Manifest:
    """A ServiceEntry; an endpoint is its fields, or only its address. ``allocated`` are the addresses in its status, by
    host; other keyword arguments are further fields of its spec.
    """
    place, own_name = _split(name)
    own_labels = {"istio.io/global": "true"} if is_global else {}
    own: Manifest = {"hosts": [*hosts], "resolution": resolution, "ports": [dict(port) for port in ports]}
    if endpoints:
        own["endpoints"] = [{"address": one} if isinstance(one, str) else dict(one) for one in endpoints]
    if selector is not None:
        own["workloadSelector"] = {"labels": dict(selector)}
    meta, every_label = {"creationTimestamp": created}, {**own_labels, **(labels or {})}
    document = _object("networking.istio.io/v1", "ServiceEntry", place, own_name, every_label, meta)
    given = [{"value": one, "host": host} for host, addresses in (allocated or {}).items() for one in addresses]
    return {**document, "spec": {**own, **spec}, **({"status": {"addresses": given}} if given else {})}


def workload_entry(
    name: str,
    address: str,
    *,
    labels: Fields | None = None,
    annotations: Fields | None = None,
    account: str = "",
    ports: Mapping[str, int] | None = None,
    created: str = CREATED,
    **spec: Any,
) -> Manifest:
    """A WorkloadEntry with these labels in its metadata; other keyword arguments are further fields of its spec."""
    place, own_name = _split(name)
    own: Manifest = {"address": address}
    if account:
        own["serviceAccount"] = account
    if ports:
        own["ports"] = dict(ports)
    meta: Manifest = {"creationTimestamp": created}
    if annotations:
        meta["annotations"] = dict(annotations)
    document = _object("networking.istio.io/v1", "WorkloadEntry", place, own_name, labels or {}, meta)
    return {**document, "spec": {**own, **spec}}


def ingress(
    name: str,
    host: str = "",
    service: str = "",
    *,
    port: int | str = 80,
    path: str = "/",
    path_type: str = "Prefix",
    secret: str = "",
    class_name: str | None = "isthmus",
    created: str = CREATED,
    rules: Sequence[Manifest] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Fields | None = None,
) -> Manifest:
    """An Ingress of one host and path, or of ``rules`` (see ``ingress_rule``); with ``secret`` its host has TLS.

    Names of annotations that have no prefix get isthmus.io/.
    """
    place, own_name = _split(name)
    own_spec: Manifest = {
        "rules": list(rules) if rules is not None else [ingress_rule(host, (path, service, port), path_type=path_type)]
    }
    if class_name is not None:
        own_spec["ingressClassName"] = class_name
    if secret:
        own_spec["tls"] = [{"hosts": [host], "secretName": secret}]
    metadata: Manifest = {"creationTimestamp": created}
    if annotations:
        metadata["annotations"] = {
            key if "/" in key else f"isthmus.io/{key}": value for key, value in annotations.items()
        }
    document = _object("networking.k8s.io/v1", "Ingress", place, own_name, {}, metadata)
    return {**document, "spec": {**own_spec, **(spec or {})}}


def ingress_rule(host: str, *paths: tuple[str, str, int | str], path_type: str = "Prefix") -> Manifest:
    """A rule of an Ingress; ``paths`` are (path, service, port number or name)."""
    entries = [
        {
            "path": path,
            "pathType": path_type,
            "backend": {"service": {"name": service, "port": {"number" if isinstance(port, int) else "name": port}}},
        }
        for path, service, port in paths
    ]
    return {**({"host": host} if host else {}), "http": {"paths": entries}}


def ingress_class(
    name: str, controller: str = "isthmus.dev/ingress-controller", *, is_default: bool = False, created: str = CREATED
) -> Manifest:
    """An IngressClass."""
    metadata: Manifest = {"creationTimestamp": created}
    if is_default:
        metadata["annotations"] = {"ingressclass.kubernetes.io/is-default-class": "true"}
    document = _object("networking.k8s.io/v1", "IngressClass", "", name, {}, metadata)
    return {**document, "spec": {"controller": controller}}


def tls_secret(name: str, certificate: bytes, key: bytes) -> Manifest:
    """A Secret of type kubernetes.io/tls."""
    place, own_name = _split(name)
    document = _object("v1", "Secret", place, own_name, {}, {})
    data = {"tls.crt": b64encode(certificate).decode(), "tls.key": b64encode(key).decode()}
    return {**document, "type": "kubernetes.io/tls", "data": data}


def secret(name: str, *, kind: str = "Opaque", **entries: bytes) -> Manifest:
    """A Secret of a type (``kind``); of the names of entries ``_`` stands for ``.`` and ``__`` for ``-``."""
    place, own_name = _split(name)
    document = _object("v1", "Secret", place, own_name, {}, {})
    data = {key.replace("__", "-").replace("_", "."): b64encode(value).decode() for key, value in entries.items()}
    return {**document, "type": kind, "data": data}


def config_map(name: str, **data: str) -> Manifest:
    """A ConfigMap; of the names of entries ``_`` stands for ``.``."""
    place, own_name = _split(name)
    document = _object("v1", "ConfigMap", place, own_name, {}, {})
    return {**document, "data": {key.replace("_", "."): value for key, value in data.items()}}


def reference_grant(
    name: str,
    source: str,
    *names: str,
    group: str = "gateway.networking.k8s.io",
    kind: str = "Gateway",
    target: str = "Secret",
    target_group: str = "",
) -> Manifest:
    """A ReferenceGrant: objects of a kind in the namespace ``source`` may refer to the ``names``, or to all."""
    place, own_name = _split(name)
    document = _object("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", place, own_name, {}, {})
    targets: list[Manifest] = [{"group": target_group, "kind": target, "name": one} for one in names]
    document["spec"] = {
        "from": [{"group": group, "kind": kind, "namespace": source}],
        "to": targets or [{"group": target_group, "kind": target}],
    }
    return document


def object_list(*objects: Manifest) -> Manifest:
    """What ``kubectl get ... -o json`` prints for several objects."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(objects)}


def manifest_text(*objects: Manifest, form: str = "yaml") -> str:
    """The objects as the text of one file: YAML documents, or JSON (one object, or a List of several)."""
    if form == "json":
        return json.dumps(objects[0] if len(objects) == 1 else object_list(*objects), indent=2) + "\n"
    return yaml.dump_all(objects, Dumper=_PlainDumper, sort_keys=False)


def authorization_policy(
    name: str,
    *rules: Fields,
    action: str = "",
    selector: Fields | None = None,
    labels: Fields | None = None,
    annotations: Fields | None = None,
    created: str = CREATED,
    **spec: Any,
) -> Manifest:
    """An AuthorizationPolicy; rules are entries of ``spec.rules``, without any the field is left out."""
    more: Manifest = {"creationTimestamp": created, **({"annotations": dict(annotations)} if annotations else {})}
    own: Manifest = {**({"action": action} if action else {}), **({"rules": list(rules)} if rules else {})}
    if selector:
        own["selector"] = {"matchLabels": dict(selector)}
    made = _object("security.istio.io/v1", "AuthorizationPolicy", *_split(name), labels or {}, more)
    return {**made, "spec": {**own, **spec}}


def peer_authentication(
    name: str,
    mode: str = "",
    *,
    selector: Fields | None = None,
    ports: Mapping[int, str] | None = None,
    labels: Fields | None = None,
    created: str = CREATED,
) -> Manifest:
    """A PeerAuthentication; ``ports`` are modes by port."""
    spec: Manifest = {"mtls": {"mode": mode}} if mode else {}
    if selector:
        spec["selector"] = {"matchLabels": dict(selector)}
    if ports:
        spec["portLevelMtls"] = {str(port): {"mode": one} for port, one in ports.items()}
    made = _object(
        "security.istio.io/v1", "PeerAuthentication", *_split(name), labels or {}, {"creationTimestamp": created}
    )
    return {**made, "spec": spec}


def service_export(
    name: str,
    *,
    labels: Fields | None = None,
    annotations: Fields | None = None,
    created: str = CREATED,
    **metadata: Any,
) -> Manifest:
    """A ServiceExport; labels and annotations are those it exports."""
    spec = {"exportedLabels": dict(labels or {}), "exportedAnnotations": dict(annotations or {})}
    more = {"creationTimestamp": created, "generation": 1, **metadata}
    made = _object("multicluster.x-k8s.io/v1alpha1", "ServiceExport", *_split(name), {}, more)
    return {**made, "spec": {key: value for key, value in spec.items() if value}}


def service_import(name: str, *addresses: str, **spec: Any) -> Manifest:
    """A ServiceImport that somebody else made, of one port 80."""
    made = _object("multicluster.x-k8s.io/v1alpha1", "ServiceImport", *_split(name), {}, {"uid": f"uid-of-{name}"})
    own = {"type": "ClusterSetIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}], "ips": list(addresses)}
    return {**made, "spec": {**own, **spec}}


def root_certificates(namespace: str, text: str, *managers: str, **metadata: Any) -> Manifest:
    """The ConfigMap ``istio-ca-root-cert`` of a namespace, of which each of the managers owns all there is."""
    fields = {"f:data": {"f:root-cert.pem": {}}, "f:metadata": {"f:labels": {"f:istio.io/config": {}}}}
    managed = [{"manager": one, "operation": "Update", "fieldsV1": fields} for one in managers]
    own = {"uid": f"uid-of-{namespace}", "managedFields": managed, **metadata}
    labels = {"istio.io/config": "true"}
    return {**_object("v1", "ConfigMap", namespace, "istio-ca-root-cert", labels, own), "data": {"root-cert.pem": text}}


def write_manifests(directory: Path, *objects: Manifest, file: str = "objects.yaml") -> Path:
    """Writes the objects as ``directory/file`` (made where missing), replacing the file in one step; returns its path.

    The suffix of ``file`` decides the form: ``.json``, or YAML for any other.
    """
    target = directory / file
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.draft")
    draft.write_text(manifest_text(*objects, form=target.suffix.removeprefix(".")), encoding="utf-8")
    return draft.replace(target)


class _PlainDumper(yaml.CSafeDumper):
    """YAML without anchors: tests share dicts between objects, manifests should not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _secret_reference(name: str) -> Manifest:
    place, _, own_name = name.rpartition("/")
    return {"name": own_name, **({"namespace": place} if place else {})}


def _split(name: str) -> tuple[str, str]:
    place, _, own = name.rpartition("/")
    return place or "default", own


def _object(api_version: str, kind: str, place: str, name: str, labels: Fields, metadata: Fields) -> Manifest:
    own: Manifest = {"name": name}
    if place:
        own["namespace"] = place
    if labels:
        own["labels"] = dict(labels)
    return {"apiVersion": api_version, "kind": kind, "metadata": {**own, **metadata}}


def _service_port(name: str, port: int | tuple[int, int | str] | Fields) -> Manifest:
    own: Manifest = {"name": name, "protocol": "TCP"}
    if isinstance(port, int):
        return {**own, "port": port, "targetPort": port}
    if isinstance(port, tuple):
        return {**own, "port": port[0], "targetPort": port[1]}
    return {**own, **port}
