"""Facts: what the product keeps of the objects and states of clusters, as frozen records.

Only fields that are used, strings shared, one fact for all spellings of one meaning. `kinds` reads them from manifests
and from JSON; tables hold them by ObjectKey.
"""

from __future__ import annotations

from watchers.facts.cluster import Answered, Cluster, SourceFault
from watchers.facts.core import Namespace, Node, Pod, Service
from watchers.facts.discovery import EndpointSlice
from watchers.facts.gateway_api import Gateway, GatewayClass
from watchers.facts.istio_networking import ServiceEntry, WorkloadEntry
from watchers.facts.istio_security import AuthorizationPolicy, PeerAuthentication
from watchers.facts.keys import Labels, ObjectKey, label
from watchers.facts.mesh_config import MeshConfig
from watchers.facts.multicluster import ServiceExport, ServiceImport
from watchers.facts.named import Reading, RootsConfigMap, SecretAccess
from watchers.facts.names import ResolvedName
from watchers.facts.networking import Ingress, IngressClass
from watchers.facts.reference_grants import ReferenceGrant
from watchers.facts.root_certificates import RootCertificates
from watchers.facts.secrets import NamedSecret, TLSSecret

Fact = (
    Answered
    | AuthorizationPolicy
    | Cluster
    | EndpointSlice
    | Gateway
    | GatewayClass
    | Ingress
    | IngressClass
    | MeshConfig
    | NamedSecret
    | Namespace
    | Node
    | PeerAuthentication
    | Pod
    | Reading
    | ReferenceGrant
    | ResolvedName
    | RootCertificates
    | RootsConfigMap
    | SecretAccess
    | Service
    | ServiceEntry
    | ServiceExport
    | ServiceImport
    | SourceFault
    | TLSSecret
    | WorkloadEntry
)
"""Any fact. The tag of the record (field ``kind`` when encoded by msgspec) is the kind in its key."""

__all__ = [
    "Answered",
    "AuthorizationPolicy",
    "Cluster",
    "EndpointSlice",
    "Fact",
    "Gateway",
    "GatewayClass",
    "Ingress",
    "IngressClass",
    "Labels",
    "MeshConfig",
    "NamedSecret",
    "Namespace",
    "Node",
    "ObjectKey",
    "PeerAuthentication",
    "Pod",
    "Reading",
    "ReferenceGrant",
    "ResolvedName",
    "RootCertificates",
    "RootsConfigMap",
    "SecretAccess",
    "Service",
    "ServiceEntry",
    "ServiceExport",
    "ServiceImport",
    "SourceFault",
    "TLSSecret",
    "WorkloadEntry",
    "label",
]
