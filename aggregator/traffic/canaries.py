"""Canaries: Ingresses that take a share of the requests of others' rules, and have no rules of their own.

In: the rules of a host, and the paths that canaries want of it. Out: the rules, each with the canary that takes part in
it. A canary belongs to the rule with its path, of an Ingress of its own namespace: nobody takes requests from others by
saying so. Of several the first in the total order counts. How a request is treated is taken from the rule, so a canary
that protects what it leads to in another way takes no part: it would be open to whom it keeps out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At
from aggregator.traffic.annotations.conditions import Conditions
from aggregator.traffic.annotations.given import UNPROTECTED
from aggregator.traffic.ingresses import Claim, PathClaim, PathKind
from aggregator.traffic.rules import Canary, Rule

_Place: TypeAlias = tuple[PathKind, str, Conditions]


def attached(at: At, host: str, rules: Sequence[Rule], canaries: Iterable[tuple[Claim, PathClaim]]) -> tuple[Rule, ...]:
    """The rules of a host with the canaries among them, which come in the total order."""
    mains: dict[_Place, str] = {
        (rule.kind, rule.path, rule.settings.conditions): rule.origin[2] for rule in rules
    }
    first: dict[_Place, tuple[Claim, PathClaim]] = {}
    for claim, path in canaries:
        place = (path.kind, path.path, claim.settings.conditions)
        if mains.get(place) != claim.origin[2]:
            what = "is for" if place not in mains else "of its namespace is for"
            _note(at, claim, path, "CanaryHasNoMain", f"nothing else {what} {path.kind} {path.path} of {host}")
            continue
        winner, taking = first.setdefault(place, (claim, path))
        if taking is not path:
            by = f"{winner.origin[2]}/{winner.origin[3]}"
            detail = f"{path.kind} {path.path} of {host} already has the canary {by} ({taking.field})"
            _note(at, claim, path, "CanaryClaimed", detail)
    if not first:
        return tuple(rules)
    return tuple(
        _with(at, host, rule, first.get((rule.kind, rule.path, rule.settings.conditions))) for rule in rules
    )


def without_main(at: At, host: str, claims: Iterable[Claim]) -> None:
    """Notes the canaries of a host that nobody else has a rule for."""
    for claim in claims:
        if claim.settings.canary is not None:
            for path in claim.paths:
                _note(at, claim, path, "CanaryHasNoMain", f"nothing else is for {host}")


def _with(at: At, host: str, rule: Rule, taking: tuple[Claim, PathClaim] | None) -> Rule:
    """A rule and the canary that takes part in it."""
    if taking is None:
        return rule
    claim, path = taking
    terms = claim.settings.canary
    if terms is None or not path.backend:
        return rule
    own, main = claim.settings.policies, rule.settings.policies
    if own.protected and (own.closed or own.protection != main.protection):
        by = f"{rule.origin[2]}/{rule.origin[3]}"
        detail = f"{path.kind} {path.path} of {host} is protected otherwise by {by}, so the canary takes no part"
        _note(at, claim, path, UNPROTECTED, detail)
        return rule
    return msgspec.structs.replace(rule, canary=Canary(path.backend, terms))


def _note(at: At, claim: Claim, path: PathClaim, code: str, detail: str) -> None:
    at.note(claim.origin, Finding(claim.origin, code, path.field, detail))
