"""Facts of gateway.networking.k8s.io: Gateway, GatewayClass.

Read as in core.py. In the ambient mesh Gateways stand for waypoints, east-west gateways and gateways of other
networks, so their labels, listeners and the addresses in their status are what counts (spec.addresses is a wish).
"""

from __future__ import annotations

import re
from sys import intern

import msgspec

from watchers.facts.conditions import (
    Condition,
    ConditionObject,
    ListenerStatus,
    ListenerStatusObject,
    ManagedFields,
    is_told,
    read_conditions,
    read_listeners,
)
from watchers.facts.core import PortNumber
from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import Labels, ObjectKey, repeated_subdomain, shared_annotations
from watchers.facts.metadata import ObjectMeta, cluster_key, created, labels_of, namespaced_key
from watchers.facts.selectors import LabelSelector, LabelSelectorObject, read_selector

SERVICE_ACCOUNT = "gateway.istio.io/service-account"
INBOUND_BINDING = "ambient.istio.io/waypoint-inbound-binding"

_HOST = re.compile(r"[A-Za-z0-9.:_*-]{1,253}")


class CertificateRef(msgspec.Struct, frozen=True, gc=False):
    """What a listener names as a certificate of its own, as it stands there; no ``namespace`` is the Gateway's."""

    group: str
    kind: str
    namespace: str
    name: str


class Listener(msgspec.Struct, frozen=True, gc=False):
    """A listener. ``tls_mode`` is "" without TLS. ``allowed_from`` says from which namespaces objects may attach: All,
    Same, Selector (then ``allowed_selector`` judges their labels), or "" where it is left to the default.
    """

    name: str
    port: int
    protocol: str
    hostname: str
    tls_mode: str
    allowed_from: str
    allowed_selector: LabelSelector | None = None
    certificate_refs: tuple[CertificateRef, ...] = ()


class GatewayAddress(msgspec.Struct, frozen=True, gc=False):
    """An address of status.addresses: ``type`` IPAddress, Hostname or another, ``value`` as it stands there."""

    type: str
    value: str


class Gateway(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Gateway"):
    """A Gateway of any class; listeners in their order, addresses in theirs.

    ``conditions`` and ``listener_status`` are what its status says, ``told`` whether some of that was written by us.
    """

    labels: Labels
    annotations: Labels
    created: str
    class_name: str
    listeners: tuple[Listener, ...]
    addresses: tuple[GatewayAddress, ...]
    generation: int = 0
    conditions: tuple[Condition, ...] = ()
    listener_status: tuple[ListenerStatus, ...] = ()
    told: bool = False


class GatewayClass(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="GatewayClass"):
    """A GatewayClass and the name of the controller behind it; conditions and ``told`` as of a Gateway."""

    labels: Labels
    annotations: Labels
    controller: str
    generation: int = 0
    conditions: tuple[Condition, ...] = ()
    told: bool = False


class GatewayAnnotations(msgspec.Struct, gc=False):
    """The annotations kept of a Gateway or GatewayClass."""

    inbound_binding: str | None = msgspec.field(default=None, name=INBOUND_BINDING)
    service_account: str | None = msgspec.field(default=None, name=SERVICE_ACCOUNT)


class GatewayMeta(ObjectMeta, gc=False):
    """``metadata`` of a Gateway or GatewayClass."""

    annotations: GatewayAnnotations | None = None
    generation: int | None = None
    managed: list[ManagedFields] | None = msgspec.field(default=None, name="managedFields")


class RouteNamespaces(msgspec.Struct, gc=False):
    """``allowedRoutes.namespaces`` of a listener."""

    origin: str | None = msgspec.field(default=None, name="from")
    selector: LabelSelectorObject | None = None


class AllowedRoutes(msgspec.Struct, gc=False):
    """``allowedRoutes`` of a listener."""

    namespaces: RouteNamespaces | None = None


class CertificateRefObject(msgspec.Struct, gc=False):
    """One entry of ``tls.certificateRefs``."""

    name: str
    group: str | None = None
    kind: str | None = None
    namespace: str | None = None


class ListenerTLS(msgspec.Struct, gc=False):
    """``tls`` of a listener."""

    mode: str | None = None
    certificate_refs: list[CertificateRefObject] | None = msgspec.field(default=None, name="certificateRefs")


class ListenerObject(msgspec.Struct, gc=False):
    """One entry of ``spec.listeners``."""

    name: str
    port: PortNumber
    protocol: str
    hostname: str | None = None
    tls: ListenerTLS | None = None
    allowed_routes: AllowedRoutes | None = msgspec.field(default=None, name="allowedRoutes")


class GatewaySpec(msgspec.Struct, gc=False):
    """``spec`` of a Gateway."""

    class_name: str = msgspec.field(name="gatewayClassName")
    listeners: list[ListenerObject] | None = None


class GatewayAddressObject(msgspec.Struct, gc=False):
    """One entry of ``status.addresses``."""

    value: str
    type: str | None = None


class GatewayStatus(msgspec.Struct, gc=False):
    """``status`` of a Gateway."""

    addresses: list[GatewayAddressObject] | None = None
    conditions: list[ConditionObject] | None = None
    listeners: list[ListenerStatusObject] | None = None


class GatewayObject(msgspec.Struct, gc=False):
    """A Gateway on the wire."""

    metadata: GatewayMeta
    spec: GatewaySpec
    status: GatewayStatus | None = None


class GatewayClassSpec(msgspec.Struct, gc=False):
    """``spec`` of a GatewayClass."""

    controller: str = msgspec.field(name="controllerName")


class GatewayClassStatus(msgspec.Struct, gc=False):
    """``status`` of a GatewayClass."""

    conditions: list[ConditionObject] | None = None


class GatewayClassObject(msgspec.Struct, gc=False):
    """A GatewayClass on the wire."""

    metadata: GatewayMeta
    spec: GatewayClassSpec
    status: GatewayClassStatus | None = None


def read_gateway(wire: GatewayObject, cluster: str) -> tuple[ObjectKey, Gateway]:
    """Key and fact of a Gateway."""
    metadata = wire.metadata
    status = wire.status
    addresses = (status.addresses if status else None) or ()
    return namespaced_key(cluster, "Gateway", metadata), Gateway(
        labels_of(metadata),
        _annotations(metadata),
        created(metadata.creation),
        intern(wire.spec.class_name),
        tuple([_listener(listener, position) for position, listener in enumerate(wire.spec.listeners or ())]),
        tuple([_address(address, position) for position, address in enumerate(addresses)]),
        metadata.generation or 0,
        read_conditions(status.conditions if status else None),
        read_listeners(status.listeners if status else None),
        is_told(metadata.managed),
    )


def read_gateway_class(wire: GatewayClassObject, cluster: str) -> tuple[ObjectKey, GatewayClass]:
    """Key and fact of a GatewayClass."""
    metadata = wire.metadata
    return cluster_key(cluster, "GatewayClass", metadata), GatewayClass(
        labels_of(metadata),
        _annotations(metadata),
        intern(wire.spec.controller),
        metadata.generation or 0,
        read_conditions(wire.status.conditions if wire.status else None),
        is_told(metadata.managed),
    )


def _annotations(metadata: GatewayMeta) -> Labels:
    own = metadata.annotations
    if own is None:
        return ()
    if own.service_account:
        # The account becomes part of the identity clients expect of the gateway.
        repeated_subdomain(own.service_account, "metadata", "annotations", SERVICE_ACCOUNT)
    return shared_annotations((INBOUND_BINDING, own.inbound_binding), (SERVICE_ACCOUNT, own.service_account))


def _listener(wire: ListenerObject, position: int) -> Listener:
    namespaces = wire.allowed_routes.namespaces if wire.allowed_routes else None
    field = ("spec", "listeners", position, "allowedRoutes", "namespaces", "selector")
    return Listener(
        intern(wire.name),
        wire.port,
        intern(wire.protocol),
        wire.hostname or "",
        intern(wire.tls.mode or "Terminate") if wire.tls else "",
        intern(namespaces.origin or "") if namespaces else "",
        read_selector(namespaces.selector, *field) if namespaces else None,
        tuple([_certificate_ref(one) for one in (wire.tls.certificate_refs if wire.tls else None) or ()]),
    )


def _certificate_ref(wire: CertificateRefObject) -> CertificateRef:
    # A Secret of no possible name is one that is not there: it costs this entry, and not the Gateway.
    return CertificateRef(
        intern(wire.group or ""),
        intern("Secret" if wire.kind is None else wire.kind),
        intern(wire.namespace or ""),
        wire.name,
    )


def _address(wire: GatewayAddressObject, position: int) -> GatewayAddress:
    kind = wire.type or "IPAddress"
    # Both kinds become parts of resource names; what other kinds hold is used nowhere.
    if kind in ("IPAddress", "Hostname") and not _HOST.fullmatch(wire.value):
        raise InvalidObject(
            ("status", "addresses", position, "value"),
            f"is {wire.value[:80]!r}, which is neither an IP address nor a host name",
            "write an IP address, or a host name with the type Hostname",
        )
    return GatewayAddress(intern(kind), wire.value)
