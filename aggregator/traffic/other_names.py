"""Other names of hosts: names that annotations want served as a host is, or sent to it.

In: the claims of one name. Out: what is served under it. A host goes before another's name, unless all it serves are
proofs for certificates (RFC 8555): those are served beside what the name is for, or each renewal of a certificate would
interrupt it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Index
from aggregator.traffic.ingresses import REGEX, Claim, ClaimKey
from aggregator.traffic.rules import Rule

CHALLENGES: Final = "/.well-known/acme-challenge/"


def meant(
    at: At,
    by_host: Index[str, ClaimKey, Claim],
    in_order: Callable[[Mapping[ClaimKey, Claim]], list[Claim]],
    name: str,
    claims: list[Claim],
) -> tuple[list[Claim], str]:
    """What is served under a name: its claims, in the total order, and the host that all else is sent to ("": none)."""
    naming = [(claim, claim.other_name) for claim in claims if claim.other_name is not None]
    if not naming:
        return claims, ""
    owner = next((claim for claim in claims if _serves(claim)), None)
    if owner is not None:
        for claim, other in naming:
            if not other.sent:
                _note(at, claim, f"{name} is a host of Ingress {owner.origin[2]}/{owner.origin[3]}")
        return claims, ""
    first, chosen = naming[0]
    for claim, other in naming[1:]:
        if other != chosen:
            _note(at, claim, f"{name} already stands for {chosen.host}, by Ingress {first.origin[2]}/{first.origin[3]}")
    behind = in_order(at.group(by_host, chosen.host))
    if not any(claim.ruled for claim in behind):
        return claims, ""
    if any(claim.secret is not None for claim in claims):
        behind = [msgspec.structs.replace(claim, secret=None) for claim in behind]
    if chosen.sent:
        behind = [msgspec.structs.replace(claim, paths=(), default=None) for claim in behind]
    return [*claims, *behind], chosen.host if chosen.sent else ""


def root(at: At, host: str, claims: Iterable[Claim], rules: Iterable[Rule]) -> str:
    """The path that requests for the root of a host are sent to; "" for none.

    It is for an Ingress of the namespace to say whose rule is for the root, if there is one.
    """
    asking = [claim for claim in claims if claim.settings.redirects.root and claim.ruled]
    if not asking:
        return ""
    owner = next((rule for rule in rules if rule.path == "/" and rule.kind != REGEX), None)
    first: Claim | None = None
    for claim in asking:
        path = claim.settings.redirects.root
        if owner is not None and owner.origin[2] != claim.origin[2]:
            _note(at, claim, f"the root of {host} is for Ingress {owner.origin[2]}/{owner.origin[3]}")
        elif first is None:
            first = claim
        elif path != first.settings.redirects.root:
            _note(at, claim, f"the root of {host} is sent elsewhere by {first.origin[2]}/{first.origin[3]}")
    return first.settings.redirects.root if first is not None else ""


def _serves(claim: Claim) -> bool:
    """Whether it has more of a host than proofs."""
    return claim.ruled and (
        claim.default is not None or not claim.paths or any(not one.path.startswith(CHALLENGES) for one in claim.paths)
    )


def _note(at: At, claim: Claim, detail: str) -> None:
    at.note(claim.origin, Finding(claim.origin, "HostSettingClaimed", "metadata.annotations", detail))
