"""Facts of multicluster.x-k8s.io (the Multi-Cluster Services API, KEP-1645): ServiceExport, ServiceImport.

Read as in core.py. An export says that the Service of its name is shared with other clusters. An import is what a
control plane writes of a service that is shared, so what is kept of it is what it says now and whether that is ours.
"""

from __future__ import annotations

from sys import intern

import msgspec

from watchers.facts.conditions import (
    MANAGER,
    Condition,
    ConditionObject,
    ManagedFields,
    is_told,
    read_conditions,
)
from watchers.facts.core import AffinityConfig, PortNumber
from watchers.facts.keys import Labels, ObjectKey, shared_labels
from watchers.facts.metadata import Name, Owned, created, namespaced_key


class ServiceExport(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="ServiceExport"):
    """A ServiceExport, and the labels and annotations that it wants its imports to have.

    ``conditions`` are what its status says, ``told`` whether some of that was written by us.
    """

    created: str
    generation: int
    labels: Labels
    annotations: Labels
    conditions: tuple[Condition, ...] = ()
    told: bool = False


class ImportPort(msgspec.Struct, frozen=True, gc=False):
    """A port of an imported service."""

    name: str
    number: int
    protocol: str
    app_protocol: str


class ImportSpec(msgspec.Struct, frozen=True, gc=False):
    """``spec`` of a ServiceImport: ``type`` is ClusterSetIP or Headless, ``addresses`` have the order of ``families``.

    ``affinity_seconds`` is 0, and everything else "", where it is not given.
    """

    type: str
    ports: tuple[ImportPort, ...]
    addresses: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    affinity: str = ""
    affinity_seconds: int = 0
    internal_traffic_policy: str = ""
    traffic_distribution: str = ""


class ServiceImport(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="ServiceImport"):
    """A ServiceImport. It is ``owned`` if this product made it; ``labels`` and ``annotations`` are those that are ours.

    ``clusters`` and ``conditions`` are what its status says.
    """

    owned: bool
    uid: str
    generation: int
    labels: Labels
    annotations: Labels
    spec: ImportSpec
    clusters: tuple[str, ...]
    conditions: tuple[Condition, ...]


# ServiceExport on the wire


class ExportMeta(Name, gc=False):
    """``metadata`` of a ServiceExport."""

    creation: str | None = msgspec.field(default=None, name="creationTimestamp")
    generation: int | None = None
    managed: list[ManagedFields] | None = msgspec.field(default=None, name="managedFields")


class ExportSpec(msgspec.Struct, gc=False):
    """``spec`` of a ServiceExport."""

    labels: dict[str, str | None] | None = msgspec.field(default=None, name="exportedLabels")
    annotations: dict[str, str | None] | None = msgspec.field(default=None, name="exportedAnnotations")


class ExportStatus(msgspec.Struct, gc=False):
    """``status`` of a ServiceExport."""

    conditions: list[ConditionObject] | None = None


class ServiceExportObject(msgspec.Struct, gc=False):
    """A ServiceExport on the wire."""

    metadata: ExportMeta
    spec: ExportSpec | None = None
    status: ExportStatus | None = None


def read_service_export(wire: ServiceExportObject, cluster: str) -> tuple[ObjectKey, ServiceExport]:
    """Key and fact of a ServiceExport."""
    metadata, spec = wire.metadata, wire.spec or ExportSpec()
    return namespaced_key(cluster, "ServiceExport", metadata), ServiceExport(
        created(metadata.creation),
        metadata.generation or 0,
        shared_labels(spec.labels, "spec", "exportedLabels"),
        tuple(sorted((key, value) for key, value in (spec.annotations or {}).items() if value is not None)),
        read_conditions(wire.status.conditions if wire.status else None),
        is_told(metadata.managed),
    )


# ServiceImport on the wire


class OwnedMetadata(msgspec.Struct, gc=False):
    """The part of ``fieldsV1`` that says which labels and annotations somebody owns; names begin with ``f:``."""

    labels: dict[str, Owned] | None = msgspec.field(default=None, name="f:labels")
    annotations: dict[str, Owned] | None = msgspec.field(default=None, name="f:annotations")


class OwnedFields(msgspec.Struct, gc=False):
    """``fieldsV1`` of an entry of ``metadata.managedFields``."""

    metadata: OwnedMetadata | None = msgspec.field(default=None, name="f:metadata")


class ImportManager(msgspec.Struct, gc=False):
    """One entry of ``metadata.managedFields``."""

    manager: str | None = None
    subresource: str | None = None
    fields: OwnedFields | None = msgspec.field(default=None, name="fieldsV1")


class ImportMeta(Name, gc=False):
    """``metadata`` of a ServiceImport."""

    uid: str | None = None
    generation: int | None = None
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None
    managed: list[ImportManager] | None = msgspec.field(default=None, name="managedFields")


class ImportPortObject(msgspec.Struct, gc=False):
    """One entry of ``spec.ports``."""

    port: PortNumber
    name: str | None = None
    protocol: str | None = None
    app_protocol: str | None = msgspec.field(default=None, name="appProtocol")


class ImportSpecObject(msgspec.Struct, gc=False):
    """``spec`` of a ServiceImport."""

    type: str | None = None
    ports: list[ImportPortObject] | None = None
    ips: list[str] | None = None
    families: list[str] | None = msgspec.field(default=None, name="ipFamilies")
    affinity: str | None = msgspec.field(default=None, name="sessionAffinity")
    affinity_config: AffinityConfig | None = msgspec.field(default=None, name="sessionAffinityConfig")
    internal_traffic_policy: str | None = msgspec.field(default=None, name="internalTrafficPolicy")
    traffic_distribution: str | None = msgspec.field(default=None, name="trafficDistribution")


class ImportClusterObject(msgspec.Struct, gc=False):
    """One entry of ``status.clusters``."""

    cluster: str | None = None


class ImportStatus(msgspec.Struct, gc=False):
    """``status`` of a ServiceImport."""

    clusters: list[ImportClusterObject] | None = None
    conditions: list[ConditionObject] | None = None


class ServiceImportObject(msgspec.Struct, gc=False):
    """A ServiceImport on the wire."""

    metadata: ImportMeta
    spec: ImportSpecObject | None = None
    status: ImportStatus | None = None


def read_service_import(wire: ServiceImportObject, cluster: str) -> tuple[ObjectKey, ServiceImport]:
    """Key and fact of a ServiceImport."""
    metadata, status = wire.metadata, wire.status or ImportStatus()
    ours = next((one for one in metadata.managed or () if one.manager == MANAGER and not one.subresource), None)
    fields = (ours.fields.metadata if ours is not None and ours.fields else None) or OwnedMetadata()
    return namespaced_key(cluster, "ServiceImport", metadata), ServiceImport(
        ours is not None,
        metadata.uid or "",
        metadata.generation or 0,
        _owned(metadata.labels, fields.labels),
        _owned(metadata.annotations, fields.annotations),
        _spec(wire.spec or ImportSpecObject()),
        tuple(sorted({one.cluster for one in status.clusters or () if one.cluster})),
        read_conditions(status.conditions),
    )


def _spec(wire: ImportSpecObject) -> ImportSpec:
    return ImportSpec(
        intern(wire.type or ""),
        tuple(
            [
                ImportPort(
                    intern(port.name or ""), port.port, intern(port.protocol or "TCP"), intern(port.app_protocol or "")
                )
                for port in wire.ports or ()
            ]
        ),
        tuple(wire.ips or ()),
        tuple([intern(family) for family in wire.families or ()]),
        intern(wire.affinity or ""),
        wire.affinity_config.affinity_seconds if wire.affinity_config else 0,
        intern(wire.internal_traffic_policy or ""),
        intern(wire.traffic_distribution or ""),
    )


def _owned(present: dict[str, str | None] | None, owned: dict[str, Owned] | None) -> Labels:
    keys = owned or {}
    return tuple(
        sorted((key, value) for key, value in (present or {}).items() if value is not None and f"f:{key}" in keys)
    )
