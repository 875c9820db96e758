"""Facts of networking.istio.io: ServiceEntry, WorkloadEntry.

Read as in core.py. Both say what no controller of Kubernetes watches over: hosts outside the cluster, and workloads
that are no pods. Addresses stay as they are written (an IP address, a range, a DNS name, a path of a socket): what each
is good for is judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Literal

import msgspec

from watchers.facts.conditions import (
    ConditionObject,
    Conditions,
    ManagedStatus,
    Written,
    read_conditions,
    read_written,
)
from watchers.facts.core import PortNumber
from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import Labels, ObjectKey, label, repeated_subdomain, shared_annotations, shared_labels
from watchers.facts.metadata import ObjectMeta, created, labels_of, namespaced_key

DISTRIBUTION = "networking.istio.io/traffic-distribution"
REDIRECTION = "ambient.istio.io/redirection"
REGISTRATION_GROUP = "istio.io/autoRegistrationGroup"
REVISION = "istio.io/rev"

_LONGEST_HOST = 253


class EntryPort(msgspec.Struct, frozen=True, gc=False):
    """A port of a ServiceEntry: its number, the one behind it (0: the same), its name and what it speaks."""

    number: int
    target: int
    name: str
    protocol: str


class EntryEndpoint(msgspec.Struct, frozen=True, gc=False):
    """Where a ServiceEntry is served, or what a WorkloadEntry stands for.

    ``ports`` are numbers by the names of the service's ports, sorted. ``network``, ``locality`` and ``account`` are ""
    and ``weight`` is 0 where they are not given.
    """

    address: str
    ports: tuple[tuple[str, int], ...] = ()
    labels: Labels = ()
    network: str = ""
    locality: str = ""
    weight: int = 0
    account: str = ""


class ServiceEntry(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="ServiceEntry"):
    """A ServiceEntry. ``resolution`` is NONE, STATIC, DNS, DNS_ROUND_ROBIN or DYNAMIC_DNS; ``selector`` selects pods
    and WorkloadEntries of its namespace.

    ``allocated`` are the addresses that were given to hosts which name none, as (host, address), from its status,
    ``conditions`` what it says besides, and ``written`` what of the status we wrote.
    """

    labels: Labels
    annotations: Labels
    created: str
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    ports: tuple[EntryPort, ...]
    resolution: str
    selector: Labels
    endpoints: tuple[EntryEndpoint, ...]
    identities: tuple[str, ...]
    allocated: tuple[tuple[str, str], ...]
    conditions: Conditions = ()
    written: Written = ()

    @property
    def revision(self) -> str:
        """The control plane it is for, "" for any."""
        return label(self.labels, REVISION)


class WorkloadEntry(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="WorkloadEntry"):
    """A WorkloadEntry. Its endpoint's labels are those of its spec, over which those of its metadata go.

    ``conditions`` and ``written`` are as of a ServiceEntry.
    """

    annotations: Labels
    created: str
    revision: str
    endpoint: EntryEndpoint
    conditions: Conditions = ()
    written: Written = ()

    @property
    def labels(self) -> Labels:
        """The labels selectors are compared with."""
        return self.endpoint.labels


# on the wire


class EntryAnnotations(msgspec.Struct, gc=False):
    """The annotations kept of an entry."""

    redirection: str | None = msgspec.field(default=None, name=REDIRECTION)
    registration_group: str | None = msgspec.field(default=None, name=REGISTRATION_GROUP)
    distribution: str | None = msgspec.field(default=None, name=DISTRIBUTION)


class EntryMeta(ObjectMeta, gc=False):
    """``metadata`` of an entry."""

    annotations: EntryAnnotations | None = None
    managed: list[ManagedStatus] | None = msgspec.field(default=None, name="managedFields")


class EntryPortObject(msgspec.Struct, gc=False):
    """One entry of ``spec.ports``."""

    number: PortNumber
    name: str | None = None
    protocol: str | None = None
    target: PortNumber | Literal[0] | None = msgspec.field(default=None, name="targetPort")


class EndpointObject(msgspec.Struct, gc=False):
    """One entry of ``spec.endpoints``, and ``spec`` of a WorkloadEntry."""

    address: str | None = None
    ports: dict[str, PortNumber | None] | None = None
    labels: dict[str, str | None] | None = None
    network: str | None = None
    locality: str | None = None
    weight: int | None = None
    account: str | None = msgspec.field(default=None, name="serviceAccount")


class SelectorObject(msgspec.Struct, gc=False):
    """``spec.workloadSelector`` (networking/v1 WorkloadSelector)."""

    labels: dict[str, str | None] | None = None


class ServiceEntrySpec(msgspec.Struct, gc=False):
    """``spec`` of a ServiceEntry."""

    hosts: list[str] | None = None
    addresses: list[str] | None = None
    ports: list[EntryPortObject] | None = None
    resolution: Literal["NONE", "STATIC", "DNS", "DNS_ROUND_ROBIN", "DYNAMIC_DNS"] | None = None
    selector: SelectorObject | None = msgspec.field(default=None, name="workloadSelector")
    endpoints: list[EndpointObject] | None = None
    identities: list[str] | None = msgspec.field(default=None, name="subjectAltNames")


class AllocatedObject(msgspec.Struct, gc=False):
    """One entry of ``status.addresses``."""

    value: str | None = None
    host: str | None = None


class ServiceEntryStatus(msgspec.Struct, gc=False):
    """``status`` of a ServiceEntry."""

    addresses: list[AllocatedObject] | None = None
    conditions: list[ConditionObject] | None = None


class ServiceEntryObject(msgspec.Struct, gc=False):
    """A ServiceEntry on the wire."""

    metadata: EntryMeta
    spec: ServiceEntrySpec | None = None
    status: ServiceEntryStatus | None = None


class WorkloadEntryStatus(msgspec.Struct, gc=False):
    """``status`` of a WorkloadEntry."""

    conditions: list[ConditionObject] | None = None


class WorkloadEntryObject(msgspec.Struct, gc=False):
    """A WorkloadEntry on the wire."""

    metadata: EntryMeta
    spec: EndpointObject | None = None
    status: WorkloadEntryStatus | None = None


def read_service_entry(wire: ServiceEntryObject, cluster: str) -> tuple[ObjectKey, ServiceEntry]:
    """Key and fact of a ServiceEntry."""
    metadata, spec = wire.metadata, wire.spec or ServiceEntrySpec()
    allocated = wire.status.addresses if wire.status else None
    return namespaced_key(cluster, "ServiceEntry", metadata), ServiceEntry(
        labels_of(metadata),
        _annotations(metadata),
        created(metadata.creation),
        tuple([_host(host, number) for number, host in enumerate(spec.hosts or ())]),
        tuple(spec.addresses or ()),
        tuple(
            [
                EntryPort(port.number, port.target or 0, intern(port.name or ""), intern((port.protocol or "").upper()))
                for port in spec.ports or ()
            ]
        ),
        intern(spec.resolution or "NONE"),
        shared_labels(spec.selector.labels, "spec", "workloadSelector", "labels") if spec.selector else (),
        tuple([_endpoint(one, "spec", "endpoints", number) for number, one in enumerate(spec.endpoints or ())]),
        tuple(sorted(set(spec.identities or ()))),
        tuple(sorted({(one.host or "", one.value) for one in allocated or () if one.value})),
        read_conditions(wire.status.conditions if wire.status else None),
        read_written(metadata.managed),
    )


def read_workload_entry(wire: WorkloadEntryObject, cluster: str) -> tuple[ObjectKey, WorkloadEntry]:
    """Key and fact of a WorkloadEntry."""
    metadata, spec = wire.metadata, wire.spec or EndpointObject()
    own = labels_of(metadata)
    merged: Mapping[str, str | None] = {**(spec.labels or {}), **dict(own)}
    return namespaced_key(cluster, "WorkloadEntry", metadata), WorkloadEntry(
        _annotations(metadata),
        created(metadata.creation),
        label(own, REVISION),
        _endpoint(msgspec.structs.replace(spec, labels=dict(sorted(merged.items()))), "spec"),
        read_conditions(wire.status.conditions if wire.status else None),
        read_written(metadata.managed),
    )


def _annotations(metadata: EntryMeta) -> Labels:
    own = metadata.annotations
    if own is None:
        return ()
    return shared_annotations(
        (REDIRECTION, own.redirection), (REGISTRATION_GROUP, own.registration_group), (DISTRIBUTION, own.distribution)
    )


def _host(host: str, number: int) -> str:
    """A host becomes a part of resource names. In lower case, as DNS compares names."""
    if not host or len(host) > _LONGEST_HOST or "/" in host or not host.isprintable() or " " in host:
        raise InvalidObject(
            ("spec", "hosts", number),
            f"is {host[:80]!r}, which is no host name",
            "write a DNS name, or one with *. before it",
        )
    return host.lower()


def _endpoint(wire: EndpointObject, *field: str | int) -> EntryEndpoint:
    if wire.account:
        # It becomes part of an identity.
        repeated_subdomain(wire.account, *field, "serviceAccount")
    if wire.weight is not None and not 0 <= wire.weight < 1 << 31:
        raise InvalidObject((*field, "weight"), f"is {wire.weight}, which is no weight", "use a whole number from 1")
    return EntryEndpoint(
        wire.address or "",
        tuple(sorted((name, port) for name, port in (wire.ports or {}).items() if port)),
        shared_labels(wire.labels, *field, "labels"),
        intern(wire.network or ""),
        intern(wire.locality or ""),
        wire.weight or 0,
        intern(wire.account or ""),
    )
