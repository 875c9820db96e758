"""How a route passes requests on: time limits, what is changed of them on the way, repetition, and copies to others.

Records and what writes them into a RouteAction. All of it is for one route (xds.messages.route); what a virtual host
says for all its routes, such as which failures are tried again (xds.messages.scope), counts where a route says nothing.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from xds import protos


class Rewrite(Struct, frozen=True, gc=False):
    r"""What becomes of a request's path: every match of `pattern` (RE2) is replaced, in which `\1` is its first group.

    The query stays.
    """

    pattern: str
    replacement: str


class Retries(Struct, frozen=True, gc=False):
    """Which failures are tried again (`on`, words of Envoy's; none: nothing is), and how often all in all.

    Answers with one of `statuses` are failures. An attempt fails that is `idle` for so many seconds (0: however long).
    Requests with a method in `never` are tried once.
    """

    on: tuple[str, ...] = ()
    tries: int = 1
    statuses: tuple[int, ...] = ()
    idle: int = 0
    never: tuple[str, ...] = ()


class Mirror(Struct, frozen=True, gc=False):
    """A cluster that is sent copies of `percent` of all requests; what it answers is not heard."""

    cluster: str
    percent: int = 100


class HashPart(Struct, frozen=True, gc=False):
    """A part of what a request is hashed by, and its name: a header, a cookie, a parameter, the client's address."""

    kind: Literal["header", "cookie", "query", "address"]
    name: str = ""


class Forwarding(Struct, frozen=True, gc=False):
    """How requests are passed on. Times are in seconds, 0 for as long as it takes; `idle` without traffic either way,
    None for what the listener says. `host` is put in the place of the request's. `hashed` decides on the endpoint of a
    cluster that goes by hashes.
    """

    timeout: int = 0
    idle: int | None = None
    host: str = ""
    rewrite: Rewrite | None = None
    retries: Retries | None = None
    mirror: Mirror | None = None
    hashed: tuple[HashPart, ...] = ()


AS_IT_IS: Final = Forwarding()
"""Nothing is changed, and an answer may take its time."""


def write_forwarding(action: protos.envoy.config.route.v3.RouteAction, how: Forwarding) -> None:
    """Fill in all but where to."""
    action.timeout.SetInParent()
    if how is AS_IT_IS:
        return
    action.timeout.seconds = how.timeout
    if how.idle is not None:
        action.idle_timeout.SetInParent()
        action.idle_timeout.seconds = how.idle
    if how.host:
        action.host_rewrite_literal = how.host
    if how.rewrite is not None:
        action.regex_rewrite.pattern.regex = how.rewrite.pattern
        action.regex_rewrite.substitution = how.rewrite.replacement
    if how.retries is not None:
        _write_retries(action.retry_policy, how.retries)
    if how.mirror is not None:
        # The copy is for the host the request is for: else whoever gets it could not tell.
        copies = action.request_mirror_policies.add(
            cluster=how.mirror.cluster, disable_shadow_host_suffix_append=True
        )
        copies.runtime_fraction.default_value.numerator = how.mirror.percent
    for part in how.hashed:
        _write_hash(action.hash_policy.add(), part)


def _write_hash(place: protos.envoy.config.route.v3.RouteAction.HashPolicy, part: HashPart) -> None:
    match part.kind:
        case "header":
            place.header.header_name = part.name
        case "cookie":
            place.cookie.name = part.name
        case "query":
            place.query_parameter.name = part.name
        case "address":
            place.connection_properties.source_ip = True


def _write_retries(policy: protos.envoy.config.route.v3.RetryPolicy, retries: Retries) -> None:
    policy.SetInParent()  # an empty one, too, counts before the virtual host's
    policy.retry_on = ",".join(retries.on)
    if not retries.on:
        return
    policy.num_retries.value = retries.tries - 1
    policy.retriable_status_codes.extend(retries.statuses)
    if retries.idle:
        policy.per_try_idle_timeout.seconds = retries.idle
    if retries.never:
        methods = policy.retriable_request_headers.add(name=":method", invert_match=True)
        methods.string_match.safe_regex.regex = "|".join(retries.never)
