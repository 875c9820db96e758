"""What a cluster grants to a control plane that reads it: a service account, seven rules, and what may be added.

Out: manifests, as `isthmus create-remote-secret` applies them and as deploy/charts/isthmus-reader holds them; a test
keeps the two equal. Pure. The seven rules are get, list and watch, one for each kind of objects, and none of them is
Secrets: a stolen token of a reader reads no other credential. Whatever needs more is a grant of its own, to be asked
for by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

Manifest = dict[str, Any]

NAME = "isthmus-reader"
"""Of the service account, its role and its binding, unless an operator chooses another one."""

READ = ("get", "list", "watch")
RBAC = "rbac.authorization.k8s.io"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "isthmus"}


class Rule(msgspec.Struct, frozen=True):
    """A rule of a role. ``names`` restricts it to objects of these names."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...] = READ
    names: tuple[str, ...] = ()

    def manifest(self) -> Manifest:
        """As it stands in a role."""
        rule: Manifest = {"apiGroups": [self.group], "resources": [*self.resources], "verbs": [*self.verbs]}
        if self.names:
            rule["resourceNames"] = [*self.names]
        return rule


RULES = (
    Rule("", ("namespaces",)),
    Rule("", ("nodes",)),
    Rule("", ("pods",)),
    Rule("", ("services",)),
    Rule("discovery.k8s.io", ("endpointslices",)),
    Rule("gateway.networking.k8s.io", ("gateways",)),
    Rule("multicluster.x-k8s.io", ("serviceexports", "serviceimports")),
)
"""Of the reader."""


class Grant(StrEnum):
    """What may be granted to a reader besides."""

    CONFIG_MAPS = "config-maps"
    ISTIO_CONFIG = "istio-config"
    TOKEN_REVIEW = "token-review"  # noqa: S105 - no password
    TOKEN_RENEWAL = "token-renewal"  # noqa: S105 - no password


PURPOSES: Mapping[Grant, str] = {
    Grant.CONFIG_MAPS: "reads ConfigMaps",
    Grant.ISTIO_CONFIG: "reads ServiceEntries and WorkloadEntries",
    Grant.TOKEN_REVIEW: "asks whether tokens are genuine and what their owners may do",
    Grant.TOKEN_RENEWAL: "asks for new tokens of its own service account, and of no other",
}
"""What each grant adds, for people."""

_GRANTED: Mapping[Grant, tuple[Rule, ...]] = {
    Grant.CONFIG_MAPS: (Rule("", ("configmaps",)),),
    Grant.ISTIO_CONFIG: (Rule("networking.istio.io", ("serviceentries", "workloadentries")),),
    Grant.TOKEN_REVIEW: (
        Rule("authentication.k8s.io", ("tokenreviews",), ("create",)),
        Rule("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
    ),
}


def reader(namespace: str, name: str = NAME) -> Sequence[Manifest]:
    """The service account, in a namespace that exists, and the seven rules for all of the cluster."""
    account: Manifest = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        # No pod runs as it.
        "automountServiceAccountToken": False,
    }
    return [account, *_cluster_role(name, RULES, namespace, name)]


def granted(grant: Grant, namespace: str, name: str = NAME) -> Sequence[Manifest]:
    """What else is applied for a grant."""
    if grant is not Grant.TOKEN_RENEWAL:
        return _cluster_role(f"{name}-{grant}", _GRANTED[grant], namespace, name)
    rule = Rule("", ("serviceaccounts/token",), ("create",), (name,))
    return _role(f"{name}-{grant}", (rule,), namespace, name)


def _cluster_role(role: str, rules: Sequence[Rule], namespace: str, account: str) -> Sequence[Manifest]:
    return _bound("ClusterRole", {"name": role, "labels": LABELS}, rules, namespace, account)


def _role(role: str, rules: Sequence[Rule], namespace: str, account: str) -> Sequence[Manifest]:
    return _bound("Role", {"name": role, "namespace": namespace, "labels": LABELS}, rules, namespace, account)


def _bound(
    kind: str, metadata: Manifest, rules: Sequence[Rule], namespace: str, account: str
) -> Sequence[Manifest]:
    """A role and its binding, which are called the same."""
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": [rule.manifest() for rule in rules]},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]
