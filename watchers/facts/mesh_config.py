"""The fact of the mesh configuration: ConfigMap ``istio`` of the system namespace, key ``mesh`` (YAML text).

Of Istio's MeshConfig only the fields used: trust domain, root namespace, where gateways write their access logs, which
services are global (serviceScopeConfigs, istio.mesh.v1alpha1.MeshConfig field 67), who may see those of ServiceEntries
(serviceEntryVisibility, field 72) and which namespaces count at all (discoverySelectors, field 59). Other ConfigMaps
are no facts.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from watchers.documents import UnreadableText, documents, line_of
from watchers.facts.invalid import InvalidObject, refusal
from watchers.facts.keys import ObjectKey, dns_label, trust_domain
from watchers.facts.metadata import Name, namespaced_key
from watchers.facts.selectors import LabelSelector, LabelSelectorObject, Requirement, read_selector

__all__ = [
    "ConfigMapObject",
    "EntryVisibility",
    "LabelSelector",
    "MeshConfig",
    "Requirement",
    "ServiceScope",
    "is_mesh_config",
    "read_mesh_config",
]

NAME = "istio"
_MESH = ("data", "mesh")


class ServiceScope(msgspec.Struct, frozen=True, gc=False):
    """Gives services their ``scope``, LOCAL or GLOBAL; a selector that is None matches everything."""

    namespace: LabelSelector | None
    services: LabelSelector | None
    scope: str


class EntryVisibility(msgspec.Struct, frozen=True, gc=False):
    """Who may see what ServiceEntries declare: PUBLIC, NAMESPACE (clients of their own) or NONE.

    ``policies`` are (visibility, selectors of namespaces, any of which will do); the first one that selects an entry's
    namespace decides, else the ``default``. A selector that is None selects everything.
    """

    default: str
    policies: tuple[tuple[str, tuple[LabelSelector | None, ...]], ...]


class MeshConfig(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="MeshConfig"):
    """The mesh configuration. "" where a field is absent; ``scopes`` is None where serviceScopeConfigs is (the default
    applies) and empty where it is an empty list (nothing is global). ``discovery`` selects namespaces by any of its
    selectors, and is None where discoverySelectors is absent or an empty list (every namespace counts). Without
    ``entry_visibility`` all ServiceEntries are for everybody.
    """

    trust_domain: str
    root_namespace: str
    scopes: tuple[ServiceScope, ...] | None
    access_log_file: str = ""
    discovery: tuple[LabelSelector, ...] | None = None
    entry_visibility: EntryVisibility | None = None


class ConfigMapData(msgspec.Struct, gc=False):
    """The key used of a ConfigMap's ``data``."""

    mesh: str | None = None


class ConfigMapObject(msgspec.Struct, gc=False):
    """A ConfigMap on the wire."""

    metadata: Name
    data: ConfigMapData | None = None


class ServiceScopeObject(msgspec.Struct, gc=False):
    """One entry of ``serviceScopeConfigs``."""

    namespaces: LabelSelectorObject | None = msgspec.field(default=None, name="namespaceSelector")
    services: LabelSelectorObject | None = msgspec.field(default=None, name="servicesSelector")
    scope: Literal["LOCAL", "GLOBAL"] | None = None


class VisibilityRuleObject(msgspec.Struct, gc=False):
    """One entry of ``matchingRules``."""

    namespaces: LabelSelectorObject | None = msgspec.field(default=None, name="namespaceSelector")


class VisibilityPolicyObject(msgspec.Struct, gc=False):
    """One entry of ``serviceEntryVisibility.policies``."""

    visibility: Literal["PUBLIC", "NAMESPACE", "NONE"] | None = None
    rules: list[VisibilityRuleObject] | None = msgspec.field(default=None, name="matchingRules")


class VisibilityObject(msgspec.Struct, gc=False):
    """``serviceEntryVisibility``."""

    default: Literal["PUBLIC", "NAMESPACE", "NONE"] | None = msgspec.field(default=None, name="defaultVisibility")
    policies: list[VisibilityPolicyObject] | None = None


class MeshObject(msgspec.Struct, gc=False):
    """The text under ``mesh``, read."""

    trust_domain: str | None = msgspec.field(default=None, name="trustDomain")
    root_namespace: str | None = msgspec.field(default=None, name="rootNamespace")
    scopes: list[ServiceScopeObject] | None = msgspec.field(default=None, name="serviceScopeConfigs")
    access_log_file: str | None = msgspec.field(default=None, name="accessLogFile")
    discovery: list[LabelSelectorObject | None] | None = msgspec.field(default=None, name="discoverySelectors")
    visibility: VisibilityObject | None = msgspec.field(default=None, name="serviceEntryVisibility")


def is_mesh_config(metadata: Name, system_namespace: str) -> bool:
    """Whether this ConfigMap is the mesh configuration."""
    return metadata.name == NAME and (metadata.namespace or "default") == system_namespace


def read_mesh_config(wire: ConfigMapObject, cluster: str) -> tuple[ObjectKey, MeshConfig]:
    """Key (of kind MeshConfig, with the ConfigMap's namespace and name) and fact."""
    key = namespaced_key(cluster, "MeshConfig", wire.metadata)
    text = (wire.data.mesh if wire.data else None) or ""
    try:
        return key, _mesh_config(text)
    except UnreadableText as error:
        raise InvalidObject(_MESH, f"is no YAML: {error.cause}", error.cure, line=error.line) from None
    except InvalidObject as error:
        raise InvalidObject((*_MESH, *error.path), error.cause, error.cure, line=line_of(text, 0, error.path)) from None


def _mesh_config(text: str) -> MeshConfig:
    value = next((document.value for document in documents(text)), None)
    if value is None:
        return MeshConfig("", "", None)
    try:
        mesh = msgspec.convert(value, MeshObject)
    except msgspec.ValidationError as error:
        raise refusal(str(error), value) from None
    domain = trust_domain(mesh.trust_domain or "", "trustDomain")
    access_log_file = mesh.access_log_file or ""
    if access_log_file and not access_log_file.startswith("/"):
        raise InvalidObject(
            ("accessLogFile",), f"is {access_log_file[:80]!r}, which is no whole path", "write one such as /dev/stdout"
        )
    return MeshConfig(
        domain,
        dns_label(mesh.root_namespace, "rootNamespace") if mesh.root_namespace else "",
        None if mesh.scopes is None else tuple([_scope(scope, place) for place, scope in enumerate(mesh.scopes)]),
        access_log_file,
        _discovery(mesh.discovery or []),
        _visibility(mesh.visibility) if mesh.visibility is not None else None,
    )


def _visibility(wire: VisibilityObject) -> EntryVisibility:
    place = ("serviceEntryVisibility", "policies")
    return EntryVisibility(
        wire.default or "PUBLIC",
        tuple(
            [
                (
                    policy.visibility or "PUBLIC",
                    tuple(
                        [
                            read_selector(rule.namespaces, *place, one, "matchingRules", two, "namespaceSelector")
                            for two, rule in enumerate(policy.rules or ())
                        ]
                    ),
                )
                for one, policy in enumerate(wire.policies or ())
            ]
        ),
    )


def _discovery(wire: list[LabelSelectorObject | None]) -> tuple[LabelSelector, ...] | None:
    read = [read_selector(one, "discoverySelectors", place) for place, one in enumerate(wire)]
    # A null in the list selects nothing (metav1.LabelSelectorAsSelector), and is no empty list for that.
    return tuple([one for one in read if one is not None]) if wire else None


def _scope(wire: ServiceScopeObject, position: int) -> ServiceScope:
    place = ("serviceScopeConfigs", position)
    return ServiceScope(
        read_selector(wire.namespaces, *place, "namespaceSelector"),
        read_selector(wire.services, *place, "servicesSelector"),
        wire.scope or "LOCAL",
    )
