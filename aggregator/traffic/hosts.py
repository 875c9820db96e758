"""Hosts: what is served under each name, settled among all Ingresses that claim a part of it.

Rules of several Ingresses, of whatever namespace, make up one host. Each path, and the certificate, goes to the first
claim in the total order; the others are told, and come forward when it goes. A host reads its own claims and nothing
else, so one more costs itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Withheld
from aggregator.mesh.home import Home
from aggregator.order import rank
from aggregator.security.certificates import Certificate
from aggregator.traffic.annotations.settings import NO_SETTINGS, Settings
from aggregator.traffic.ingresses import EXACT, Claim, ClaimKey, PathClaim, PathKind
from watchers.facts.keys import ObjectKey


class Rule(msgspec.Struct, frozen=True, gc=False):
    """A path of a host and the key of the backend it leads to ("": one that is not supported); see PathClaim.

    `settings` are what its Ingress asks for in annotations.
    """

    path: str
    kind: PathKind
    backend: str
    origin: ObjectKey
    settings: Settings = NO_SETTINGS


class Host(msgspec.Struct, frozen=True, gc=False):
    """A host name and its rules in the order of matching: Exact paths, then the longest Prefix first.

    `tls` is the key of the Secret with its certificate, given by the Ingress `tls_origin`; a host that has one is
    served by TLS alone, whether there is a certificate in it or not.
    """

    host: str
    rules: tuple[Rule, ...]
    tls: ObjectKey | None
    tls_origin: ObjectKey | None


class Hosts(msgspec.Struct, frozen=True):
    """The part of the graph this module declares."""

    hosts: Collection[str, Host]
    certificates: Collection[str, Certificate]
    claims: Index[str, ClaimKey, Claim]
    """What is claimed of each host, of those too that are not served."""


def declare(
    graph: Graph,
    home: Home,
    claims: Collection[ClaimKey, Claim],
    certificates: Collection[ObjectKey, Certificate],
) -> Hosts:
    """Declare the hosts, and the certificates of those that can be served by TLS, both by host name."""
    by_host = graph.index("claims by host", claims, lambda key, _: (key[4],))

    def settled(at: At, host: str, members: Mapping[ClaimKey, Claim]) -> Outcome[Host]:
        order = sorted(
            members.values(),
            key=lambda one: rank(home.cluster, one.origin[0], one.created, one.origin[2], one.origin[3]),
        )
        if not any(claim.ruled for claim in order):
            for claim in order:
                at.note(claim.origin, Finding(claim.origin, "HostHasNoRule", "spec.tls", f"{host} has no rule"))
            return Withheld("HostWithoutRule")
        secured = _secured(at, host, order)
        return Host(
            host,
            _rules(at, host, order),
            secured.secret if secured is not None else None,
            secured.origin if secured is not None else None,
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
    return Hosts(hosts, graph.derive("certificates of hosts", hosts, of_host), by_host)


def _note(at: At, ingress: ObjectKey, code: str, detail: str) -> None:
    at.note(ingress, Finding(ingress, code, "spec.tls", detail))


def _secured(at: At, host: str, order: list[Claim]) -> Claim | None:
    """The claim whose Secret the host has."""
    first = None
    for claim in order:
        if claim.secret is None:
            continue
        if first is None:
            first = claim
        elif claim.secret != first.secret:
            detail = f"{host} already has the Secret of {_named(first)}"
            _note(at, claim.origin, "HostTlsClaimed", detail)
    return first


def _rules(at: At, host: str, order: list[Claim]) -> tuple[Rule, ...]:
    won: dict[tuple[PathKind, str], tuple[Claim, PathClaim]] = {}
    for claim in order:
        for path in claim.paths:
            _claim(at, host, claim, path, won)
    for claim in order:
        # Behind all rules of all Ingresses, so that it hides none.
        if claim.default is not None:
            _claim(at, host, claim, claim.default, won)
    rules = [Rule(path.path, path.kind, path.backend, claim.origin, claim.settings) for claim, path in won.values()]
    rules.sort(key=lambda rule: (rule.kind != EXACT, -len(rule.path), rule.path))
    return tuple(rules)


def _claim(
    at: At,
    host: str,
    claim: Claim,
    path: PathClaim,
    won: dict[tuple[PathKind, str], tuple[Claim, PathClaim]],
) -> None:
    """Give a path to a claim, unless an earlier one has it."""
    winner, first = won.setdefault((path.kind, path.path), (claim, path))
    if first is path or (path is claim.default and winner.origin == claim.origin):
        return
    by = f"{_named(winner)} ({first.field})"
    detail = f"{path.kind} {path.path} of {host} is already claimed by {by}"
    at.note(claim.origin, Finding(claim.origin, "PathClaimed", path.field, detail))


def _named(claim: Claim) -> str:
    return f"Ingress {claim.origin[2]}/{claim.origin[3]}"
