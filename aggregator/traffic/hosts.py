"""Hosts: what is served under each name, settled among all Ingresses that claim a part of it.

Rules of several Ingresses, of whatever namespace, make up one host. Each path, and the certificate, goes to the first
claim in the total order; the others are told, and come forward when it goes. A wildcard is a host of its own, and so
is "", every host that nobody names: what one host has no path for is not looked for in another. A host reads its own
claims and nothing else, so one more costs itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Withheld
from aggregator.mesh.home import Home
from aggregator.order import rank
from aggregator.security.certificates import Certificate
from aggregator.traffic import canaries, other_names, path_regexes
from aggregator.traffic.annotations.conditions import Conditions
from aggregator.traffic.ingresses import EXACT, PREFIX, REGEX, Claim, ClaimKey, PathClaim
from aggregator.traffic.path_claims import PathClaims
from aggregator.traffic.rules import Rule
from watchers.facts.keys import ObjectKey


class Host(msgspec.Struct, frozen=True, gc=False):
    """A host name and its rules in the order of matching: Exact paths, then the longest first.

    `host` is a name, a wildcard such as `*.example`, or "" for all hosts that no other is for.

    `tls` is the key of the Secret with its certificate, given by the Ingress `tls_origin`; a host that has one is
    served by TLS alone, whether there is a certificate in it or not.

    Requests for its root are sent to the path `root`, and all that no rule is for to the host `sent_to` ("": no).
    """

    host: str
    rules: tuple[Rule, ...]
    tls: ObjectKey | None
    tls_origin: ObjectKey | None
    root: str = ""
    sent_to: str = ""


class Hosts(msgspec.Struct, frozen=True):
    """The part of the graph this module declares."""

    hosts: Collection[str, Host]
    certificates: Collection[str, Certificate]


def declare(
    graph: Graph,
    home: Home,
    claims: Collection[ClaimKey, Claim],
    certificates: Collection[ObjectKey, Certificate],
) -> Hosts:
    """Declare the hosts, and the certificates of those that can be served by TLS, both by host name."""
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
        rules = _rules(at, home, host, order)
        return Host(
            host,
            rules,
            secured.secret if secured is not None else None,
            secured.origin if secured is not None else None,
            other_names.root(at, host, order, rules),
            sent_to,
        )

    def of_host(at: At, host: str, one: Host) -> Outcome[Certificate]:
        if one.tls is None or one.tls_origin is None:
            return Withheld("HostHasNoCertificate", "no TLS")
        certificate = at.get(certificates, one.tls)
        if certificate is None:
            _note(at, one.tls_origin, "TlsSecretNotFound", f"{host} has the Secret {one.tls[2]}/{one.tls[3]}")
            return Withheld("HostHasNoCertificate", "no good pair")
        if not certificate.covers(host):
            named = ", ".join(certificate.names[:3])
            _note(at, one.tls_origin, "CertificateNotForHost", f"that of {host} is for {named or 'nothing'}")
            return Withheld("HostHasNoCertificate", "for other names")
        return certificate

    hosts = graph.derive("hosts", by_host, settled)
    return Hosts(hosts, graph.derive("certificates of hosts", hosts, of_host))


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
