"""Whether the policies of a workload let a connection in, evaluated at its destination.

Input is the state, the destination workload and the connection as the proxy sees it; output a `Verdict`. A policy
that the workload names and the proxy does not have is skipped, so it fails open: the verdict lists such names, and
tests of a control plane assert that there are none. Policies in dry run are matched and listed, never enforced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from tests.kit.ztunnel.records import EMPTY_MATCH, Identity, IPAddress, Match, Policy, PolicyAction, Workload
from tests.kit.ztunnel.state import State

_Condition = TypeVar("_Condition")


class Connection(Struct, frozen=True, gc=False):
    """A connection as it is judged; `identity` None is plaintext.

    Behind a network gateway `source_ip` is the gateway's, while `identity` is that of the inner tunnel's client.
    """

    identity: Identity | None
    source_ip: IPAddress
    destination_ip: IPAddress
    destination_port: int


class Verdict(Struct, frozen=True):
    """Outcome: `reason` is empty when allowed, else worded as in ztunnel's log; `policy` decided, if one did.

    `unknown` are the policies the workload names and the proxy does not have: with any, the verdict may be wrong.
    `dry_run` are the policies without force that match.
    """

    allowed: bool
    reason: str = ""
    policy: str = ""
    unknown: tuple[str, ...] = ()
    dry_run: tuple[str, ...] = ()

    @property
    def fails_open(self) -> bool:
        """Whether a policy meant for the workload had no say."""
        return bool(self.unknown)


def evaluate(state: State, workload: Workload, connection: Connection) -> Verdict:
    """Judges a connection to `workload`: policies of the mesh and of its namespace, then those it names.

    A DENY that matches decides; else, if there is any ALLOW, one must match.
    """
    names = dict.fromkeys((*state.policies.automatic(workload.namespace), *workload.authorization_policies))
    unknown = tuple(name for name in names if name not in state.policies.by_name)
    policies = {name: state.policies.by_name[name] for name in names if name in state.policies.by_name}
    dry_run = tuple(name for name, policy in policies.items() if policy.dry_run and matches(policy, connection))

    def verdict(allowed: bool, reason: str = "", policy: str = "") -> Verdict:
        return Verdict(allowed, reason, policy, unknown, dry_run)

    enforced = {name: policy for name, policy in policies.items() if not policy.dry_run}
    for name, policy in enforced.items():
        if policy.action is PolicyAction.DENY and matches(policy, connection):
            return verdict(False, f"explicitly denied by: {policy}", name)
    allowing = {name: policy for name, policy in enforced.items() if policy.action is PolicyAction.ALLOW}
    if not allowing:
        return verdict(True)
    for name, policy in allowing.items():
        if matches(policy, connection):
            return verdict(True, policy=name)
    return verdict(False, "allow policies exist, but none allowed")


def matches(policy: Policy, connection: Connection) -> bool:
    """Whether any group matches: all its rules, of each any match. A policy without groups never does."""
    return any(
        all(not rule or any(_match(match, connection) for match in rule) for rule in group) for group in policy.groups
    )


def _match(match: Match, connection: Connection) -> bool:
    if match == EMPTY_MATCH:
        return False
    identity = connection.identity
    principal = str(identity).removeprefix("spiffe://") if identity is not None else None
    namespace = identity.namespace if identity is not None else ""
    account = (identity.namespace, identity.service_account) if identity is not None else None
    return (
        _holds(match.destination_ips, match.not_destination_ips, lambda ip: connection.destination_ip in ip.network)
        and _holds(match.source_ips, match.not_source_ips, lambda ip: connection.source_ip in ip.network)
        and _holds(
            match.destination_ports, match.not_destination_ports, lambda port: port == connection.destination_port
        )
        and _holds(
            match.service_accounts,
            match.not_service_accounts,
            lambda wanted: account == (wanted.namespace, wanted.service_account),
        )
        and _holds(
            match.principals,
            match.not_principals,
            lambda pattern: principal is not None and pattern.matches(principal),
        )
        and _holds(match.namespaces, match.not_namespaces, lambda pattern: pattern.matches(namespace))
    )


def _holds(wanted: Sequence[_Condition], unwanted: Sequence[_Condition], fits: Callable[[_Condition], bool]) -> bool:
    """Whether any of the wanted values fits, if there are any, and none of the unwanted."""
    return (not wanted or any(map(fits, wanted))) and not any(map(fits, unwanted))
