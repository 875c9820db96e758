"""Hosts: what is served under each name, settled among all Ingresses that claim a part of it.

Rules of several Ingresses, of whatever namespace, make up one host. Each path, and the certificate, goes to the first
claim in the total order; the others are told, and come forward when it goes. A wildcard is a host of its own, and so
is "", every host that nobody names: what one host has no path for is not looked for in another. A host reads its own
claims and nothing else, so one more costs itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Withheld
from aggregator.mesh.home import Home
from aggregator.order import rank
from aggregator.security.certificates import Certificate
from aggregator.traffic import canaries, other_names, path_regexes
from aggregator.traffic.annotations.conditions import Conditions
from aggregator.traffic.annotations.tls import CLOSED, NO_TLS_SETTINGS, Tls
from aggregator.traffic.default_certificate import default_key
from aggregator.traffic.ingresses import EXACT, PREFIX, REGEX, Claim, ClaimKey, PathClaim
from aggregator.traffic.path_claims import PathClaims
from aggregator.traffic.rules import Rule
from watchers.facts.keys import ObjectKey

PairKey: TypeAlias = tuple[str, str, str]
"""A host, and the namespace and name of its TLS Secret."""


class Host(msgspec.Struct, frozen=True, gc=False):
    """A host name and its rules in the order of matching: Exact paths, then the longest first.

    `host` is a name, a wildcard such as `*.example`, or "" for all hosts that no other is for.

    `tls` is the key of the Secret with its certificate, given by the Ingress `tls_origin`; a host that has one is
    served by TLS alone, whether there is a certificate in it or not. `speaks` is how its clients are spoken to, with
    the namespace in `speaks.settings.roots`; the Ingress `speaks_origin` says so.

    Requests for its root are sent to the path `root`, and all that no rule is for to the host `sent_to` ("": no).
    """

    host: str
    rules: tuple[Rule, ...]
    tls: ObjectKey | None
    tls_origin: ObjectKey | None
    root: str = ""
    sent_to: str = ""
    speaks: Tls = NO_TLS_SETTINGS
    speaks_origin: ObjectKey | None = None


class Hosts(msgspec.Struct, frozen=True):
    """The part of the graph this module declares; `awaited` are the hosts whose Secret is yet to hold a pair.

    `last_good` are the certificates by host and Secret: one that is replaced by one for other names stays in force.
    """

    hosts: Collection[str, Host]
    certificates: Collection[str, Certificate]
    awaited: Collection[tuple[str], bool]
    last_good: Collection[PairKey, Certificate]
    claims: Index[str, ClaimKey, Claim]
    """What is claimed of each host, of those too that are not served."""


def declare(
    graph: Graph,
    home: Home,
    claims: Collection[ClaimKey, Claim],
    certificates: Collection[ObjectKey, Certificate],
) -> Hosts:
    """Declare the hosts, and the certificates of those that can be served by TLS, both by host name."""
    default = default_key(home)
    by_host = graph.index("claims by host", claims, lambda key, _: (key[4],))

    def in_order(members: Mapping[ClaimKey, Claim]) -> list[Claim]:
        return sorted(
            members.values(),
            key=lambda one: rank(home.cluster, one.origin[0], one.created, one.origin[2], one.origin[3]),
        )

    def settled(at: At, host: str, members: Mapping[ClaimKey, Claim]) -> Outcome[Host]:
        order, sent_to = other_names.meant(at, by_host, in_order, host, in_order(members))
        if not any(claim.ruled for claim in order):
            canaries.without_main(at, _shown(host), order)
            for claim in order:
                if claim.unused and claim.other_name is None:
                    _note(at, claim.origin, "HostHasNoRule", f"{host} has no rule")
            return Withheld("HostWithoutRule")
        secured = _secured(at, host, order)
        speaks, speaks_origin = NO_TLS_SETTINGS, None
        if any(claim.settings.tls is not NO_TLS_SETTINGS for claim in order):
            speaks, speaks_origin, order = _spoken(at, host, order)
        rules = _rules(at, home, host, order)
        return Host(
            host,
            rules,
            secured.secret if secured is not None else None,
            secured.origin if secured is not None else None,
            other_names.root(at, host, order, rules),
            sent_to,
            speaks,
            speaks_origin,
        )

    def pair(at: At, host: str, one: Host) -> Iterable[tuple[PairKey, Outcome[Certificate]]]:
        if one.tls is None or one.tls_origin is None:
            return
        found = at.get(certificates, one.tls)
        if found is None:
            if one.tls != default:
                secret = f"{one.tls[2]}/{one.tls[3]}"
                _note(at, one.tls_origin, "TlsSecretNotFound", f"{host} has the Secret {secret}")
            yield (host, *one.tls[2:]), Withheld("HostHasNoCertificate", "no good pair")
            return
        yield (host, *one.tls[2:]), found

    def fitting(at: At, key: PairKey, found: Certificate) -> Outcome[Certificate]:
        host = key[0]
        if found.covers(host):
            return found
        one = at.get(hosts, host)
        if one is not None and one.tls_origin is not None and one.tls != default:
            named = ", ".join(found.names[:3])
            _note(at, one.tls_origin, "CertificateNotForHost", f"that of {host} is for {named or 'nothing'}")
        return Withheld("HostHasNoCertificate", "for other names")

    def awaits(at: At, host: str, one: Host) -> Iterable[tuple[tuple[str], Outcome[bool]]]:
        awaited = one.tls is not None and at.get(certificates, one.tls) is None
        yield (host,), True if awaited else Withheld("HostAwaitsNothing")

    hosts = graph.derive("hosts", by_host, settled)
    awaited = graph.expand("hosts that await a certificate", hosts, awaits, unless=lambda _, one: one.tls is None)
    pairs = graph.expand("pairs of hosts", hosts, pair, unless=lambda _, one: one.tls is None)
    last_good = graph.latch("certificates for hosts", graph.derive("pairs that are for their hosts", pairs, fitting))
    told = graph.expand("certificates of hosts", last_good, lambda _, key, found: ((key[0], found),))
    return Hosts(hosts, told, awaited, last_good, by_host)


def _note(at: At, ingress: ObjectKey, code: str, detail: str) -> None:
    at.note(ingress, Finding(ingress, code, "spec.tls", detail))


def _secured(at: At, host: str, order: list[Claim]) -> Claim | None:
    """The claim whose Secret the host has: one that is given by its name goes before one that it shares."""
    given = sorted((claim for claim in order if claim.secret is not None), key=lambda claim: claim.shared)
    for claim in given[1:]:
        if claim.secret != given[0].secret and claim.shared == given[0].shared:
            detail = f"{_shown(host)} already has the Secret of {_named(given[0])}"
            _note(at, claim.origin, "HostTlsClaimed", detail)
    return given[0] if given else None


def _spoken(at: At, host: str, order: list[Claim]) -> tuple[Tls, ObjectKey | None, list[Claim]]:
    """How clients are spoken to, who says so, and the claims whose rules can stand beside that.

    The first that says anything decides, if it is of the namespace that has the host: another may add paths to a host,
    and not say who gets to those of others. Paths for which more is demanded than is in force are open to nobody.
    """
    owner = next(claim for claim in order if claim.ruled)
    saying = [claim for claim in order if claim.ruled and claim.settings.tls != NO_TLS_SETTINGS]
    first = next((claim for claim in saying if claim.origin[2] == owner.origin[2]), None)
    spoken = _resolved(at, first) if first is not None else NO_TLS_SETTINGS
    left = []
    for claim in order:
        asked = claim.settings.tls
        if claim is first or claim not in saying or (first is not None and _resolved(at, claim) == spoken):
            left.append(claim)
            continue
        none = f"none, and only {owner.origin[2]} can give it any"
        whose = f"those of {_named(first)}" if first is not None else none
        shut = "; its paths there are not served" if asked.demanding else ""
        detail = f"the TLS settings of {host} are {whose}{shut}"
        at.note(claim.origin, Finding(claim.origin, "HostTlsSettingsClaimed", "metadata.annotations", detail))
        if not asked.demanding:
            left.append(claim)
    return spoken, first.origin if first is not None and spoken != NO_TLS_SETTINGS else None, left


def _resolved(at: At, claim: Claim) -> Tls:
    """What a claim says, with the namespace of the roots; closed if they are of another one than the Ingress."""
    asked = claim.settings.tls
    if not asked.settings.roots:
        return asked
    namespace, _, name = asked.settings.roots.rpartition("/")
    if namespace not in ("", claim.origin[2]):
        detail = f"auth-tls-secret is {asked.settings.roots}, and the Ingress is in {claim.origin[2]}"
        at.note(claim.origin, Finding(claim.origin, "ClientRootsNotAllowed", "metadata.annotations", detail))
        return CLOSED
    roots = f"{claim.origin[2]}/{name}"
    return msgspec.structs.replace(asked, settings=msgspec.structs.replace(asked.settings, roots=roots))


def _rules(at: At, home: Home, host: str, order: list[Claim]) -> tuple[Rule, ...]:
    wanting = [claim for claim in order if claim.settings.matching.regex and claim.settings.canary is None]
    won = PathClaims()
    taking: list[tuple[Claim, PathClaim]] = []
    for claim in order:
        paths = claim.paths
        if wanting and home.regexes_for_whole_hosts and not claim.settings.matching.regex:
            paths = tuple(_as_regex(path) for path in claim.paths)
            if paths != claim.paths:
                detail = f"so {_named(wanting[0])} makes those of {_shown(host)}"
                at.note(claim.origin, Finding(claim.origin, "PathsAreRegexes", "spec.rules", detail))
        for path in paths:
            if claim.settings.canary is None:
                _claim(at, host, claim, path, won)
            else:
                taking.append((claim, path))
    for claim in order:
        # Behind all rules of all Ingresses, so that it hides none.
        if claim.default is not None:
            _claim(at, host, claim, claim.default, won)
    rules = [Rule(path.path, path.kind, path.backend, claim.origin, claim.settings) for claim, path in won.all()]
    rules.sort(key=_before)
    return canaries.attached(at, _shown(host), rules, taking)


def _before(rule: Rule) -> tuple[bool, int, bool, bool, str, int, Conditions]:
    asked = rule.settings.conditions
    kind, length = rule.kind, -len(rule.path)
    return kind != EXACT, length, kind == REGEX, asked.any_case, rule.path, -asked.count, asked


def _as_regex(path: PathClaim) -> PathClaim:
    """A path of an Ingress that did not ask for regular expressions, but shares a host with one that did."""
    if path.kind != PREFIX or path.path == "/" or path_regexes.problem(path.path):
        return path
    return msgspec.structs.replace(path, kind=REGEX)


def _claim(
    at: At,
    host: str,
    claim: Claim,
    path: PathClaim,
    won: PathClaims,
) -> None:
    """Give a path to a claim, unless an earlier one has it."""
    winner, first = won.offer(claim, path)
    if first is path or (path is claim.default and winner.origin == claim.origin):
        return
    by = f"{_named(winner)} ({first.field})"
    detail = f"{path.kind} {path.path} of {_shown(host)} is already claimed by {by}"
    at.note(claim.origin, Finding(claim.origin, "PathClaimed", path.field, detail))


def _shown(host: str) -> str:
    return host or "all other hosts"


def _named(claim: Claim) -> str:
    return f"Ingress {claim.origin[2]}/{claim.origin[3]}"
