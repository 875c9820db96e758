"""Which AuthorizationPolicies home's node proxies enforce, what of them, and which workloads a policy is for.

Home's policies count, for every workload that home is told of. A policy without selector is for its namespace, or for
all if it is in the root namespace; one with a selector is for the workloads that refer to it by name. References are
made from what is in force alone: a ztunnel skips a name it does not know, which would open what the policy closes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Withheld
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.security.layer4 import Flaw, Group, groups_of
from watchers.facts.istio_security import AuthorizationPolicy
from watchers.facts.keys import Labels, ObjectKey

Scope = Literal["mesh", "namespace", "workload"]
EVERY_NAMESPACE = ""
"""In the place of a namespace: policies of the root namespace select workloads of all."""


class Policy(msgspec.Struct, frozen=True, gc=False):
    """A policy as node proxies enforce it. `groups`: any of them must match; without one nothing does.

    `selects_in` is the namespace whose workloads the selector is for.
    """

    namespace: str
    name: str
    scope: Scope
    deny: bool
    groups: tuple[Group, ...]
    selector: Labels = ()
    selects_in: str = ""

    @property
    def key(self) -> str:
        """How workloads refer to it."""
        return f"{self.namespace}/{self.name}"


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a policy for node proxies: as it is enforced, None if it is not, and what is wrong with it."""

    policy: Policy | None
    flaws: tuple[Flaw, ...]


SelectorGroup = tuple[str, tuple[str, str]]
"""(namespace or EVERY_NAMESPACE, a label of the selector)."""


class Policies(msgspec.Struct, frozen=True):
    """The part of the graph this module declares; ``verdicts`` are on all policies that are for home's node proxies."""

    verdicts: Collection[ObjectKey, Verdict]
    in_force: Collection[ObjectKey, Policy]
    by_selector: Index[SelectorGroup, ObjectKey, Policy]


def declare(
    graph: Graph,
    home: Home,
    mesh: Callable[[At], Mesh],
    includes: Includes,
    policies: Source[ObjectKey, AuthorizationPolicy],
) -> Policies:
    """Declare the policies in force."""

    def verdict(at: At, key: ObjectKey, policy: AuthorizationPolicy) -> Outcome[Verdict]:
        cluster, _, namespace, name = key
        if cluster != home.cluster:
            return Withheld("PolicyOfRemoteCluster")
        if not includes(at, cluster, namespace):
            return UNSELECTED
        if not home.serves(policy.revision):
            return Withheld("ObjectOfOtherRevision", policy.revision)
        if policy.targeted:
            return Withheld("PolicyForWaypoints")
        found = judged(policy, namespace, name, root=namespace == mesh(at).root_namespace)
        for flaw in found.flaws:
            at.note(key, Finding(key, flaw.code, flaw.field, flaw.detail))
        return found

    def judged(policy: AuthorizationPolicy, namespace: str, name: str, *, root: bool) -> Verdict:
        if policy.action not in ("ALLOW", "DENY"):
            return Verdict(None, (Flaw("PolicyActionNotEnforced", "spec.action", policy.action),))
        if policy.dry_run:
            return Verdict(None, (Flaw("PolicyIsDryRun", "metadata.annotations", "the policy is not enforced"),))
        deny = policy.action == "DENY"
        groups, flaws = groups_of(policy.rules, namespace, deny=deny)
        if policy.selector:
            place = EVERY_NAMESPACE if root else namespace
            return Verdict(Policy(namespace, name, "workload", deny, groups, policy.selector, place), flaws)
        return Verdict(Policy(namespace, name, "mesh" if root else "namespace", deny, groups), flaws)

    def in_force(_at: At, _key: ObjectKey, found: Verdict) -> Outcome[Policy]:
        return found.policy or Withheld(found.flaws[0].code, found.flaws[0].detail)

    def selector_group(_key: ObjectKey, policy: Policy) -> Iterable[SelectorGroup]:
        return ((policy.selects_in, policy.selector[0]),) if policy.selector else ()

    verdicts = graph.derive("verdicts on authorization policies", policies, verdict)
    collection = graph.derive("authorization policies", verdicts, in_force)
    return Policies(verdicts, collection, graph.index("policies by selector", collection, selector_group))


def selecting(at: At, policies: Policies, namespace: str, labels: Labels) -> list[str]:
    """The keys of the policies whose selector matches a workload of these labels, sorted."""
    present = set(labels)
    return sorted(
        policy.key
        for place in (namespace, EVERY_NAMESPACE)
        for pair in labels
        for policy in at.group(policies.by_selector, (place, pair)).values()
        if present.issuperset(policy.selector)
    )
