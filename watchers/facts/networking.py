"""Facts of networking.k8s.io/v1: Ingress, IngressClass.

Read as in core.py. Hosts and paths stay as they are written: what they mean, and who wins where two Ingresses say
different things, is judged elsewhere.
"""

from __future__ import annotations

from sys import intern

import msgspec

from watchers.facts.conditions import Addresses, LoadBalancedStatus, ManagedFields, is_told, read_addresses
from watchers.facts.core import PortNumber
from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import Labels, ObjectKey, dns_label, shared_annotations
from watchers.facts.metadata import Name, cluster_key, created, namespaced_key

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
DEFAULT_CLASS_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"
ANNOTATION_PREFIXES = ("isthmus.io/", "higress.io/", "nginx.ingress.kubernetes.io/")
"""Whose annotations of an Ingress are kept, besides that of its class. What they mean is judged elsewhere."""


class IngressBackend(msgspec.Struct, frozen=True, gc=False):
    """A Service of the Ingress's namespace and one of its ports, by number or name.

    Of a backend that is no Service but a ``resource`` nothing is known: no service and port 0.
    """

    service: str
    port: int | str


class IngressPath(msgspec.Struct, frozen=True, gc=False):
    """A path and where it leads; `path_type` is Exact, Prefix or ImplementationSpecific."""

    path: str
    path_type: str
    backend: IngressBackend


class IngressRule(msgspec.Struct, frozen=True, gc=False):
    """The paths of a host; "" is every host that no other rule names."""

    host: str
    paths: tuple[IngressPath, ...]


class IngressTLS(msgspec.Struct, frozen=True, gc=False):
    """Hosts that are served by TLS, and the Secret of the Ingress's namespace with their certificate."""

    hosts: tuple[str, ...]
    secret: str


class Ingress(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Ingress"):
    """An Ingress. `class_name` is spec.ingressClassName, `annotations` those that may mean something here, by key.

    `addresses` are those its status shows, `told` whether some of that was written by us.
    """

    annotations: Labels
    created: str
    class_name: str
    default_backend: IngressBackend | None
    rules: tuple[IngressRule, ...]
    tls: tuple[IngressTLS, ...]
    addresses: Addresses = ()
    told: bool = False


class IngressClass(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="IngressClass"):
    """A class of Ingresses: the controller that serves it, and whether it is meant where no class is named.

    `parameters`: whether it refers to an object with some.
    """

    controller: str
    is_default: bool
    created: str
    parameters: bool = False


# Ingress on the wire


class IngressMeta(Name, gc=False):
    """``metadata`` of an Ingress."""

    annotations: dict[str, str | None] | None = None
    creation: str | None = msgspec.field(default=None, name="creationTimestamp")
    managed: list[ManagedFields] | None = msgspec.field(default=None, name="managedFields")


class BackendPortObject(msgspec.Struct, gc=False):
    """``service.port`` of a backend: a number or a name."""

    number: PortNumber | None = None
    name: str | None = None


class BackendServiceObject(msgspec.Struct, gc=False):
    """``service`` of a backend."""

    name: str
    port: BackendPortObject | None = None


class BackendObject(msgspec.Struct, gc=False):
    """A backend; what a ``resource`` is goes unread."""

    service: BackendServiceObject | None = None


class PathObject(msgspec.Struct, gc=False):
    """One entry of ``http.paths``."""

    backend: BackendObject
    path: str | None = None
    path_type: str | None = msgspec.field(default=None, name="pathType")


class HTTPObject(msgspec.Struct, gc=False):
    """``http`` of a rule."""

    paths: list[PathObject] | None = None


class RuleObject(msgspec.Struct, gc=False):
    """One entry of ``spec.rules``."""

    host: str | None = None
    http: HTTPObject | None = None


class TLSObject(msgspec.Struct, gc=False):
    """One entry of ``spec.tls``."""

    hosts: list[str] | None = None
    secret: str | None = msgspec.field(default=None, name="secretName")


class IngressSpec(msgspec.Struct, gc=False):
    """``spec`` of an Ingress."""

    class_name: str | None = msgspec.field(default=None, name="ingressClassName")
    default_backend: BackendObject | None = msgspec.field(default=None, name="defaultBackend")
    rules: list[RuleObject] | None = None
    tls: list[TLSObject] | None = None


class IngressObject(msgspec.Struct, gc=False):
    """An Ingress on the wire."""

    metadata: IngressMeta
    spec: IngressSpec | None = None
    status: LoadBalancedStatus | None = None


_NO_SPEC = IngressSpec()
_NO_SERVICE = IngressBackend("", 0)
_PATH_TYPES = ("Exact", "Prefix", "ImplementationSpecific")


def read_ingress(wire: IngressObject, cluster: str) -> tuple[ObjectKey, Ingress]:
    """Key and fact of an Ingress."""
    metadata, spec = wire.metadata, wire.spec or _NO_SPEC
    return namespaced_key(cluster, "Ingress", metadata), Ingress(
        _annotations(metadata.annotations) if metadata.annotations else (),
        created(metadata.creation),
        intern(spec.class_name or ""),
        _backend(spec.default_backend, "spec", "defaultBackend") if spec.default_backend else None,
        tuple([_rule(rule, number) for number, rule in enumerate(spec.rules or ())]),
        tuple([IngressTLS(tuple(entry.hosts or ()), entry.secret or "") for entry in spec.tls or ()]),
        read_addresses(wire.status),
        is_told(metadata.managed),
    )


def _annotations(given: dict[str, str | None]) -> Labels:
    kept = [item for item in given.items() if item[0] == CLASS_ANNOTATION or item[0].startswith(ANNOTATION_PREFIXES)]
    return shared_annotations(*sorted(kept))


def _rule(wire: RuleObject, number: int) -> IngressRule:
    paths = (wire.http.paths if wire.http else None) or ()
    return IngressRule(
        intern(wire.host or ""), tuple([_path(path, number, position) for position, path in enumerate(paths)])
    )


def _path(wire: PathObject, number: int, position: int) -> IngressPath:
    field = ("spec", "rules", number, "http", "paths", position)
    kind = wire.path_type or "ImplementationSpecific"
    if kind not in _PATH_TYPES:
        raise InvalidObject((*field, "pathType"), f"is {kind[:80]!r}", f"use one of {', '.join(_PATH_TYPES)}")
    path = wire.path or "/"
    if not path.startswith("/"):
        raise InvalidObject((*field, "path"), f"is {path[:80]!r}, which is no path", "begin it with /")
    return IngressPath(intern(path), intern(kind), _backend(wire.backend, *field, "backend"))


def _backend(wire: BackendObject, *field: str | int) -> IngressBackend:
    service = wire.service
    if service is None:
        return _NO_SERVICE
    port = service.port
    number = port.number if port else None
    name = port.name if port else None
    if not number and not name:
        raise InvalidObject((*field, "service", "port"), "is empty", "give the port's number or its name")
    return IngressBackend(
        dns_label(service.name, *field, "service", "name"),
        number or dns_label(name or "", *field, "service", "port", "name"),
    )


# IngressClass on the wire


class ClassAnnotations(msgspec.Struct, gc=False):
    """The annotations kept of an IngressClass."""

    is_default: str | None = msgspec.field(default=None, name=DEFAULT_CLASS_ANNOTATION)


class ClassMeta(Name, gc=False):
    """``metadata`` of an IngressClass."""

    annotations: ClassAnnotations | None = None
    creation: str | None = msgspec.field(default=None, name="creationTimestamp")


class ParametersObject(msgspec.Struct, gc=False):
    """``spec.parameters``; what it refers to goes unread."""


class ClassSpec(msgspec.Struct, gc=False):
    """``spec`` of an IngressClass."""

    controller: str | None = None
    parameters: ParametersObject | None = None


class IngressClassObject(msgspec.Struct, gc=False):
    """An IngressClass on the wire."""

    metadata: ClassMeta
    spec: ClassSpec | None = None


def read_ingress_class(wire: IngressClassObject, cluster: str) -> tuple[ObjectKey, IngressClass]:
    """Key and fact of an IngressClass."""
    annotations = wire.metadata.annotations
    return cluster_key(cluster, "IngressClass", wire.metadata), IngressClass(
        intern((wire.spec.controller if wire.spec else None) or ""),
        (annotations.is_default if annotations else None) == "true",
        created(wire.metadata.creation),
        wire.spec is not None and wire.spec.parameters is not None,
    )
