"""Facts of discovery.k8s.io/v1: EndpointSlice.

Read as in core.py. Slices matter for Services without a selector: for endpoints that are no Pods, and for which Pods
serve them. Both are sets, so they are kept sorted and a controller that merely moves them changes nothing.
"""

from __future__ import annotations

from sys import intern

import msgspec

from watchers.facts.core import PortNumber
from watchers.facts.keys import ObjectKey, Shared
from watchers.facts.metadata import Name, created, namespaced_key


class SlicePort(msgspec.Struct, frozen=True, gc=False):
    """A port of all endpoints of a slice, joined with the Service's by name; 0 stands for "all ports" (null)."""

    name: str
    port: int
    protocol: str
    app_protocol: str


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """One endpoint that is no Pod's. An unset ``ready`` counts as true (KEP-1672)."""

    addresses: tuple[str, ...]
    ready: bool


class EndpointSlice(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="EndpointSlice"):
    """Endpoints of the Service named by the label kubernetes.io/service-name ("" where there is none).

    Those that stand for a Pod are told by that Pod, in full and sooner: of them ``pods`` has the names alone, so that a
    slice is the same fact whichever of its Pods are ready.
    """

    service: str
    created: str
    address_type: str
    ports: tuple[SlicePort, ...]
    endpoints: tuple[Endpoint, ...]
    pods: tuple[str, ...]


class SliceLabels(msgspec.Struct, gc=False):
    """The label kept of a slice."""

    service: str | None = msgspec.field(default=None, name="kubernetes.io/service-name")


class SliceMeta(Name, gc=False):
    """``metadata`` of a slice."""

    labels: SliceLabels | None = None
    creation: str | None = msgspec.field(default=None, name="creationTimestamp")


class SlicePortObject(msgspec.Struct, gc=False):
    """One entry of ``ports``."""

    name: str | None = None
    port: PortNumber | None = None
    protocol: str | None = None
    app_protocol: str | None = msgspec.field(default=None, name="appProtocol")


class EndpointConditions(msgspec.Struct, gc=False):
    """``conditions`` of an endpoint."""

    ready: bool | None = None


class TargetReference(msgspec.Struct, gc=False):
    """``targetRef`` of an endpoint."""

    kind: str | None = None
    name: str | None = None


class EndpointObject(msgspec.Struct, gc=False):
    """One entry of ``endpoints``."""

    addresses: list[str]
    conditions: EndpointConditions | None = None
    target: TargetReference | None = msgspec.field(default=None, name="targetRef")


class EndpointSliceObject(msgspec.Struct, gc=False):
    """An EndpointSlice on the wire."""

    metadata: SliceMeta
    address_type: str = msgspec.field(name="addressType")
    ports: list[SlicePortObject] | None = None
    endpoints: list[EndpointObject] | None = None


_slice_ports: Shared[tuple[SlicePort, ...], tuple[SlicePort, ...]] = Shared(4_096)


def read_endpoint_slice(wire: EndpointSliceObject, cluster: str) -> tuple[ObjectKey, EndpointSlice]:
    """Key and fact of an EndpointSlice."""
    metadata = wire.metadata
    labels = metadata.labels
    ports = tuple(
        [
            SlicePort(
                intern(port.name or ""),
                port.port or 0,
                intern(port.protocol or "TCP"),
                intern(port.app_protocol or ""),
            )
            for port in wire.ports or ()
        ]
    )
    endpoints: list[Endpoint] = []
    pods: set[str] = set()
    for endpoint in wire.endpoints or ():
        target = endpoint.target
        if target is not None and target.kind == "Pod":
            pods.add(target.name or "")
        else:
            ready = endpoint.conditions is None or endpoint.conditions.ready is not False
            endpoints.append(Endpoint(tuple(endpoint.addresses), ready))
    endpoints.sort(key=_order)
    return namespaced_key(cluster, "EndpointSlice", metadata), EndpointSlice(
        intern(labels.service or "") if labels else "",
        created(metadata.creation),
        intern(wire.address_type),
        _slice_ports.get(ports) or _slice_ports.add(ports, ports),
        tuple(endpoints),
        tuple(sorted(pods)),
    )


def _order(endpoint: Endpoint) -> tuple[tuple[str, ...], bool]:
    return endpoint.addresses, not endpoint.ready
