"""Scopes of ingress gateways: which there are of a host, and the users of Secrets that are to stand in their routes.

In: hosts, and what is known of the Secrets their rules name. Out: one item for each scope, under its name. A host that
is of the common class and names no users stands for itself, so that it costs nothing more. While it is not known yet
who the users of a host are, it has no scope: it would be closed to all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Withheld
from aggregator.traffic.hosts import Host, Hosts
from aggregator.traffic.ingress_secrets import IngressSecrets, UsedKey
from aggregator.traffic.tls_classes import COMMON, class_name
from aggregator.views.ingress_filters import UsersByName
from aggregator.views.ingress_routes import scope_name


class Served(msgspec.Struct, frozen=True, gc=False):
    """A host as clients of a class see it.

    `guarded`: they have come by a chain that is not the host's, and are told so. `users` are those of the Secrets that
    its rules name: (namespace, name) and lines, without those that hold none.
    """

    host: Host
    scope_class: str = COMMON
    guarded: bool = False
    users: tuple[tuple[tuple[str, str], str], ...] = ()

    def __repr__(self) -> str:
        return f"Served({self.host.host!r}, {self.scope_class!r})"

    @property
    def users_by_name(self) -> UsersByName:
        """The users by the Secret they are in."""
        return dict(self.users)


def declare(graph: Graph, hosts: Hosts, secrets: IngressSecrets) -> Collection[str, Host | Served]:
    """Declare the scopes of all hosts, by name."""

    def scopes(at: At, host: str, one: Host) -> Iterable[tuple[str, Outcome[Host | Served]]]:
        scope_class = class_name(one.speaks.settings)
        common = scope_class == COMMON
        guarded = one.speaks.passthrough or one.speaks.closed or not common
        users = _users(at, one, secrets)
        if users is None:
            yield scope_name(host), Withheld("UsersPending")
        else:
            yield scope_name(host), Served(one, COMMON, guarded, users) if guarded or users else one
        if not common:
            yield scope_name(host, scope_class), _of_class(one, scope_class, users)

    return graph.expand("scopes of hosts", hosts.hosts, scopes)


def _of_class(
    host: Host, scope_class: str, users: tuple[tuple[tuple[str, str], str], ...] | None
) -> Outcome[Host | Served]:
    return Withheld("UsersPending") if users is None else Served(host, scope_class, users=users)


def _users(at: At, host: Host, secrets: IngressSecrets) -> tuple[tuple[tuple[str, str], str], ...] | None:
    """The users that rules of a host name; None if that is not known yet of all."""
    found: dict[tuple[str, str], str] = {}
    for rule in host.rules:
        named = rule.settings.policies.authentication.users
        if named is None:
            continue
        key: UsedKey = ("users", named.namespace, named.name)
        place = at.get(secrets.places, key)
        if place is None or place.pending:
            return None
        users = at.get(secrets.users, key)
        if users is not None:
            found[named.namespace, named.name] = users.lines
    return tuple(sorted(found.items()))
