"""What ztunnels are told of who may connect to whom: policies in force, as Authorization messages.

One message per policy, named "<namespace>/<name>", which is how workloads refer to it.
"""

from __future__ import annotations

from functools import lru_cache

from aggregator.graph import At, Collection, Graph
from aggregator.security.authorization_policies import Policies, Policy
from aggregator.security.layer4 import Group, Match, Range
from aggregator.security.peer_authentication import PeerAuthentications
from watchers.facts.keys import ObjectKey
from xds.encoded import Resource, wrap
from xds.messages import authorization
from xds.messages.authorization import AUTHORIZATION_TYPE, Comparison, StringMatch

_SCOPES = {
    "mesh": authorization.Scope.GLOBAL,
    "namespace": authorization.Scope.NAMESPACE,
    "workload": authorization.Scope.WORKLOAD_SELECTOR,
}


def declare(
    graph: Graph, policies: Policies, authentications: PeerAuthentications
) -> list[Collection[str, Resource]]:
    """Declare the messages of policies, by resource name."""

    def named(_at: At, _key: ObjectKey, policy: Policy) -> tuple[tuple[str, Resource]]:
        return ((policy.key, _resource(policy)),)

    def static(_at: At, _key: str, policy: Policy) -> tuple[tuple[str, Resource]]:
        return ((policy.key, _resource(policy)),)

    return [
        graph.expand("messages of policies", policies.in_force, named),
        graph.expand("messages of peer authentications", authentications.converted, named),
        graph.expand("message of the static strict policy", authentications.static_strict, static),
    ]


def _resource(policy: Policy) -> Resource:
    message = authorization.Authorization(
        name=policy.name,
        namespace=policy.namespace,
        scope=_SCOPES[policy.scope],
        action=authorization.Action.DENY if policy.deny else authorization.Action.ALLOW,
        groups=tuple([_group(group) for group in policy.groups]),
    )
    return wrap(AUTHORIZATION_TYPE, policy.key, authorization.encode_authorization(message))


def _group(group: Group) -> authorization.Group:
    return authorization.Group(tuple([authorization.Rules(tuple([_match(one) for one in row])) for row in group]))


def _match(match: Match) -> authorization.Match:
    return authorization.Match(
        namespaces=_strings(match.namespaces),
        not_namespaces=_strings(match.not_namespaces),
        principals=_strings(match.principals),
        not_principals=_strings(match.not_principals),
        source_ips=_ranges(match.source_ranges),
        not_source_ips=_ranges(match.not_source_ranges),
        destination_ips=_ranges(match.destination_ranges),
        not_destination_ips=_ranges(match.not_destination_ranges),
        destination_ports=match.ports,
        not_destination_ports=match.not_ports,
        service_accounts=_accounts(match.accounts),
        not_service_accounts=_accounts(match.not_accounts),
    )


@lru_cache(1024)
def _strings(patterns: tuple[str, ...]) -> tuple[StringMatch, ...]:
    return tuple([_pattern(pattern) for pattern in patterns])


def _pattern(text: str) -> StringMatch:
    if text == "*":
        return StringMatch(Comparison.PRESENCE)
    if text.startswith("*"):
        return StringMatch(Comparison.SUFFIX, text[1:])
    if text.endswith("*"):
        return StringMatch(Comparison.PREFIX, text[:-1])
    return StringMatch(Comparison.EXACT, text)


def _ranges(ranges: tuple[Range, ...]) -> tuple[authorization.AddressRange, ...]:
    return tuple([authorization.AddressRange(address, length) for address, length in ranges])


def _accounts(accounts: tuple[tuple[str, str], ...]) -> tuple[authorization.ServiceAccountMatch, ...]:
    return tuple([authorization.ServiceAccountMatch(namespace, name) for namespace, name in accounts])
