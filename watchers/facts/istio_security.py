"""Facts of security.istio.io: AuthorizationPolicy, PeerAuthentication.

Read as in core.py. Values stay as they are written: what a wildcard, a port or a range of addresses means, and what to
do where it means nothing, is judged by whoever enforces it, since a policy that is left out for a mistake in one rule
would open what its other rules close.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import Literal

import msgspec

from watchers.facts.conditions import ConditionObject as StatusConditionObject
from watchers.facts.conditions import Conditions, ManagedStatus, Written, read_conditions, read_written
from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import Labels, ObjectKey, label, shared_labels
from watchers.facts.metadata import ObjectMeta, created, labels_of, namespaced_key

DRY_RUN = "istio.io/dry-run"
REVISION = "istio.io/rev"

Values = tuple[str, ...]
Mode = Literal["UNSET", "DISABLE", "PERMISSIVE", "STRICT"]


class Source(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``from``: all that is given must hold, of each field any value. ``http`` are the names of those
    fields that only a proxy which reads HTTP can check.
    """

    principals: Values = ()
    not_principals: Values = ()
    namespaces: Values = ()
    not_namespaces: Values = ()
    service_accounts: Values = ()
    not_service_accounts: Values = ()
    ip_blocks: Values = ()
    not_ip_blocks: Values = ()
    http: Values = ()


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``to``; as Source."""

    ports: Values = ()
    not_ports: Values = ()
    http: Values = ()


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``when``: the attribute ``key`` has one of ``values``, and none of ``not_values``."""

    key: str
    values: Values = ()
    not_values: Values = ()


class Rule(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``rules``: any of the sources, any of the operations and all conditions; what is empty holds."""

    sources: tuple[Source, ...] = ()
    operations: tuple[Operation, ...] = ()
    conditions: tuple[Condition, ...] = ()


class AuthorizationPolicy(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="AuthorizationPolicy"):
    """An AuthorizationPolicy. ``action`` is ALLOW, DENY, AUDIT or CUSTOM; ``selector`` is empty where there is none.

    ``targeted``: it is for what its targetRefs name, which are proxies that read HTTP, and not for workloads.
    ``revision`` is the control plane it is for, "" for any; ``generation`` that of its spec, 0 where it is unknown.
    ``conditions`` are those of its status, ``written`` what of the status we wrote.
    """

    created: str
    revision: str
    generation: int
    action: str
    selector: Labels
    targeted: bool
    dry_run: bool
    rules: tuple[Rule, ...]
    conditions: Conditions = ()
    written: Written = ()


class PeerAuthentication(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="PeerAuthentication"):
    """A PeerAuthentication: the mode of what it selects, and those of ports that have another, sorted by port."""

    created: str
    revision: str
    generation: int
    selector: Labels
    mode: Mode
    ports: tuple[tuple[int, Mode], ...]


class PolicyAnnotations(msgspec.Struct, gc=False):
    """The annotations kept of a policy."""

    dry_run: str | None = msgspec.field(default=None, name=DRY_RUN)


class PolicyMeta(ObjectMeta, gc=False):
    """``metadata`` of a policy."""

    annotations: PolicyAnnotations | None = None
    generation: int | None = None
    managed: list[ManagedStatus] | None = msgspec.field(default=None, name="managedFields")


class WorkloadSelector(msgspec.Struct, gc=False):
    """``spec.selector`` (istio.type.v1beta1.WorkloadSelector)."""

    match_labels: dict[str, str | None] | None = msgspec.field(default=None, name="matchLabels")


class TargetRef(msgspec.Struct, gc=False):
    """``targetRef``, or an entry of ``targetRefs``: that there is one is all that is read of it."""


Strings = list[str] | None


class SourceFields(msgspec.Struct, gc=False):
    """``source`` of an entry of ``from``."""

    principals: Strings = None
    not_principals: Strings = msgspec.field(default=None, name="notPrincipals")
    namespaces: Strings = None
    not_namespaces: Strings = msgspec.field(default=None, name="notNamespaces")
    service_accounts: Strings = msgspec.field(default=None, name="serviceAccounts")
    not_service_accounts: Strings = msgspec.field(default=None, name="notServiceAccounts")
    ip_blocks: Strings = msgspec.field(default=None, name="ipBlocks")
    not_ip_blocks: Strings = msgspec.field(default=None, name="notIpBlocks")
    request_principals: Strings = msgspec.field(default=None, name="requestPrincipals")
    not_request_principals: Strings = msgspec.field(default=None, name="notRequestPrincipals")
    remote_ip_blocks: Strings = msgspec.field(default=None, name="remoteIpBlocks")
    not_remote_ip_blocks: Strings = msgspec.field(default=None, name="notRemoteIpBlocks")


class OperationFields(msgspec.Struct, gc=False):
    """``operation`` of an entry of ``to``. Ports are strings; numbers, which the API refuses, are understood too."""

    ports: list[str | int] | None = None
    not_ports: list[str | int] | None = msgspec.field(default=None, name="notPorts")
    hosts: Strings = None
    not_hosts: Strings = msgspec.field(default=None, name="notHosts")
    methods: Strings = None
    not_methods: Strings = msgspec.field(default=None, name="notMethods")
    paths: Strings = None
    not_paths: Strings = msgspec.field(default=None, name="notPaths")


_WRITTEN = {
    field.name: field.encode_name for each in (SourceFields, OperationFields) for field in msgspec.structs.fields(each)
}
_HTTP_OF_SOURCES = ("request_principals", "not_request_principals", "remote_ip_blocks", "not_remote_ip_blocks")
_HTTP_OF_OPERATIONS = ("hosts", "not_hosts", "methods", "not_methods", "paths", "not_paths")


class FromObject(msgspec.Struct, gc=False):
    """One entry of ``from``."""

    source: SourceFields | None = None


class ToObject(msgspec.Struct, gc=False):
    """One entry of ``to``."""

    operation: OperationFields | None = None


class ConditionObject(msgspec.Struct, gc=False):
    """One entry of ``when``."""

    key: str
    values: Strings = None
    not_values: Strings = msgspec.field(default=None, name="notValues")


class RuleObject(msgspec.Struct, gc=False):
    """One entry of ``rules``."""

    sources: list[FromObject] | None = msgspec.field(default=None, name="from")
    operations: list[ToObject] | None = msgspec.field(default=None, name="to")
    conditions: list[ConditionObject] | None = msgspec.field(default=None, name="when")


class AuthorizationPolicySpec(msgspec.Struct, gc=False):
    """``spec`` of an AuthorizationPolicy."""

    selector: WorkloadSelector | None = None
    target_ref: TargetRef | None = msgspec.field(default=None, name="targetRef")
    target_refs: list[TargetRef] | None = msgspec.field(default=None, name="targetRefs")
    action: Literal["ALLOW", "DENY", "AUDIT", "CUSTOM"] | None = None
    rules: list[RuleObject | None] | None = None


class PolicyStatus(msgspec.Struct, gc=False):
    """``status`` of an AuthorizationPolicy."""

    conditions: list[StatusConditionObject] | None = None


class AuthorizationPolicyObject(msgspec.Struct, gc=False):
    """An AuthorizationPolicy on the wire."""

    metadata: PolicyMeta
    spec: AuthorizationPolicySpec | None = None
    status: PolicyStatus | None = None


class MutualTLS(msgspec.Struct, gc=False):
    """``mtls`` of a PeerAuthentication."""

    mode: Mode | None = None


class PeerAuthenticationSpec(msgspec.Struct, gc=False):
    """``spec`` of a PeerAuthentication."""

    selector: WorkloadSelector | None = None
    mtls: MutualTLS | None = None
    port_level: dict[int | str, MutualTLS | None] | None = msgspec.field(default=None, name="portLevelMtls")


class PeerAuthenticationObject(msgspec.Struct, gc=False):
    """A PeerAuthentication on the wire."""

    metadata: PolicyMeta
    spec: PeerAuthenticationSpec | None = None


def read_authorization_policy(
    wire: AuthorizationPolicyObject, cluster: str
) -> tuple[ObjectKey, AuthorizationPolicy]:
    """Key and fact of an AuthorizationPolicy."""
    metadata, spec = wire.metadata, wire.spec or AuthorizationPolicySpec()
    annotations = metadata.annotations
    return namespaced_key(cluster, "AuthorizationPolicy", metadata), AuthorizationPolicy(
        created(metadata.creation),
        label(labels_of(metadata), REVISION),
        metadata.generation or 0,
        intern(spec.action or "ALLOW"),
        _selector(spec.selector),
        spec.target_ref is not None or bool(spec.target_refs),
        bool(annotations and annotations.dry_run == "true"),
        tuple([_rule(rule) for rule in spec.rules or ()]),
        read_conditions(wire.status.conditions if wire.status else None),
        read_written(metadata.managed),
    )


def read_peer_authentication(wire: PeerAuthenticationObject, cluster: str) -> tuple[ObjectKey, PeerAuthentication]:
    """Key and fact of a PeerAuthentication."""
    metadata, spec = wire.metadata, wire.spec or PeerAuthenticationSpec()
    # UNSET is what a port that is not mentioned has, too.
    ports = {_port(port): mode for port, tls in (spec.port_level or {}).items() if (mode := _mode(tls)) != "UNSET"}
    return namespaced_key(cluster, "PeerAuthentication", metadata), PeerAuthentication(
        created(metadata.creation),
        label(labels_of(metadata), REVISION),
        metadata.generation or 0,
        _selector(spec.selector),
        _mode(spec.mtls),
        tuple(sorted(ports.items())),
    )


def _selector(wire: WorkloadSelector | None) -> Labels:
    return shared_labels(wire.match_labels, "spec", "selector", "matchLabels") if wire else ()


def _rule(wire: RuleObject | None) -> Rule:
    if wire is None:
        return Rule()
    return Rule(
        tuple([_source(entry.source or SourceFields()) for entry in wire.sources or ()]),
        tuple([_operation(entry.operation or OperationFields()) for entry in wire.operations or ()]),
        tuple([Condition(one.key, _values(one.values), _values(one.not_values)) for one in wire.conditions or ()]),
    )


def _source(wire: SourceFields) -> Source:
    return Source(
        _values(wire.principals),
        _values(wire.not_principals),
        _values(wire.namespaces),
        _values(wire.not_namespaces),
        _values(wire.service_accounts),
        _values(wire.not_service_accounts),
        _values(wire.ip_blocks),
        _values(wire.not_ip_blocks),
        _given(wire, _HTTP_OF_SOURCES),
    )


def _operation(wire: OperationFields) -> Operation:
    return Operation(_values(wire.ports), _values(wire.not_ports), _given(wire, _HTTP_OF_OPERATIONS))


def _values(wire: Sequence[str | int] | None) -> Values:
    return tuple([str(value) for value in wire]) if wire else ()


def _given(wire: SourceFields | OperationFields, fields: tuple[str, ...]) -> Values:
    """Which of these fields are given, by the names people write."""
    return tuple([_WRITTEN[name] for name in fields if getattr(wire, name)])


def _mode(wire: MutualTLS | None) -> Mode:
    return (wire.mode if wire else None) or "UNSET"


def _port(key: int | str) -> int:
    """A key of ``portLevelMtls``: a number, in JSON as text."""
    number = int(key) if str(key).isascii() and str(key).isdigit() and len(str(key)) < 6 else 0
    if not 0 < number < 65536:
        raise InvalidObject(
            ("spec", "portLevelMtls", str(key)), f"is under {str(key)[:80]!r}, which is no port", "use 1 to 65535"
        )
    return number
