"""What the HTTP filters of ingress gateways are told for a rule: the policies of its Ingress, as extensions of a route.

In: policies (traffic.annotations.policies), and the users of Secrets where there are some. Out: one extension for each
filter that is switched on; and what of the route itself follows from policies. What cannot be had as it is asked for
closes the rule: it is answered 503 in the place of all else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from aggregator.traffic.annotations.affinity import SessionCookie
from aggregator.traffic.annotations.authentication import Authentication
from aggregator.traffic.annotations.limits import UNLIMITED
from aggregator.traffic.annotations.policies import NO_POLICIES, Policies
from aggregator.traffic.annotations.source_ranges import EVERYWHERE
from aggregator.traffic.hosts import Host
from aggregator.traffic.ingress_references import error_backend
from aggregator.traffic.rules import Rule
from aggregator.views.ingress_actions import cross_origin
from xds.encoded import Encoded
from xds.messages import http_policies
from xds.messages.extension import Extension
from xds.messages.http_connection_manager import SCOPE_HEADERS
from xds.messages.http_filters import PROTECTING
from xds.messages.route import encode_error_page

UsersByName: TypeAlias = Mapping[tuple[str, str], str]
"""Lines with users, by the namespace and name of their Secret."""

NO_USERS: Final[UsersByName] = {}
_OWN_CREDENTIALS: Final = ("authorization", "cookie")
"""What clients are asked for, and the service may replace."""
_ERROR_PAGES: Final = "/.isthmus/errors/"


class Able(msgspec.Struct, frozen=True, gc=False):
    """What can be told gateways of policies: `users` by Secret, and nothing of the filters they are built without
    (`lacking`, by the names under which those would be installed).
    """

    users: UsersByName = NO_USERS
    lacking: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Able({len(self.users)}, {sorted(self.lacking)})"


ALL_ABLE: Final = Able()
"""What is so of a gateway that has all filters, for rules that name no users."""


def filters(rule: Rule, place: tuple[str, str], able: Able) -> tuple[Extension, ...] | None:
    """What filters are told for a rule, in the scope with the key `place`; None for a rule that is closed, since it has
    a protection that it cannot be given. What is no protection is left out where it cannot be had.
    """
    policies = rule.settings.policies
    found = cross_origin(rule.settings)
    if policies is not NO_POLICIES:
        named = policies.authentication.users
        if policies.closed or (named is not None and (named.namespace, named.name) not in able.users):
            return None
        found = (*found, *_of_policies(rule, policies, place, able.users))
    if not able.lacking or not found:
        return found
    if any(one.name in able.lacking and one.name in PROTECTING for one in found):
        return None
    return tuple(one for one in found if one.name not in able.lacking)


def _of_policies(
    rule: Rule, policies: Policies, place: tuple[str, str], users: UsersByName
) -> tuple[Extension, ...]:
    found = [*_limits(policies), *_authentication(policies.authentication, users)]
    if policies.affinity is not None:
        found.append(http_policies.session_cookie(_cookie(policies.affinity)))
    if policies.errors is not None:
        namespace, name = rule.origin[2:]
        # The key of the scope was taken from the request on its way, and its routes are looked for once more.
        scope = tuple(zip(SCOPE_HEADERS, place, strict=True))
        headers = (*scope, ("x-namespace", namespace), ("x-ingress-name", name))
        path = _error_path(namespace, policies.errors.service)
        found.append(http_policies.error_pages(policies.errors.codes, path, headers))
    return tuple(found)


def error_pages(host: Host) -> list[Encoded]:
    """The routes by which gateways fetch the answers that replace others, one for each service that gives some."""
    services = {
        (rule.origin[2], rule.settings.policies.errors.service): None
        for rule in host.rules
        if rule.settings.policies.errors is not None
    }
    return [encode_error_page(_error_path(*one), error_backend(*one), SCOPE_HEADERS) for one in sorted(services)]


def _error_path(namespace: str, service: str) -> str:
    return f"{_ERROR_PAGES}{namespace}/{service}"


def _limits(policies: Policies) -> list[Extension]:
    found = []
    sources, limits = policies.sources, policies.limits
    if sources is not EVERYWHERE:
        found.append(http_policies.source_ranges(sources.allowed, sources.denied))
    if limits is not UNLIMITED and (limits.per_second or limits.per_minute):
        found.append(http_policies.rate_limits(limits.per_second, limits.per_minute, limits.burst))
    if limits.body:
        found.append(http_policies.body_size(limits.body))
    return found


def _authentication(asked: Authentication, users: UsersByName) -> list[Extension]:
    found = []
    if asked.users is not None:
        found.append(http_policies.basic_auth(users[asked.users.namespace, asked.users.name]))
    authorizer = asked.authorizer
    if authorizer is not None:
        url = f"{authorizer.scheme}://{authorizer.host}:{authorizer.port}"
        found.append(http_policies.authorization(authorizer.backend, url, authorizer.path, authorizer.headers))
        # What only the service may say of a client, the client must not.
        dropped = tuple(one for one in authorizer.headers if one not in _OWN_CREDENTIALS)
        if authorizer.sign_in or dropped:
            found.append(http_policies.around_authorization(authorizer.sign_in, dropped))
    return found


def _cookie(asked: SessionCookie) -> http_policies.Cookie:
    attributes = []
    if asked.same_site:
        attributes.append(("SameSite", asked.same_site))
    if asked.secure:
        attributes.append(("Secure", ""))
    if asked.domain:
        attributes.append(("Domain", asked.domain))
    return http_policies.Cookie(asked.name, asked.path, asked.max_age, tuple(attributes))
