"""What AuthorizationPolicies are told: whether node proxies enforce them, and what of them they do not.

The condition is Istio's, with Istio's reasons, so it is written only in Istio's place (--istio-classes). Policies that
name targets are not for node proxies; PeerAuthentications have no such condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from aggregator.findings import CATALOGUE
from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Withheld
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.security.authorization_policies import Verdict
from aggregator.security.layer4 import Flaw
from aggregator.writes import conditions as made
from watchers.facts.conditions import Condition
from watchers.facts.istio_security import AuthorizationPolicy
from watchers.facts.keys import ObjectKey
from watchers.writes import ConditionsStatus, WriteKey

ZTUNNEL_ACCEPTED: Final = "ZtunnelAccepted"
_MOST = 10
"""Fields that a message names."""


def declare(
    graph: Graph,
    home: Home,
    answers: Answers,
    verdicts: Collection[ObjectKey, Verdict],
    rejected: Index[ObjectKey, Any, Any],
    policies: Source[ObjectKey, AuthorizationPolicy],
) -> Collection[WriteKey, ConditionsStatus]:
    """Declare what home's AuthorizationPolicies are to be told."""

    def status(
        at: At, key: ObjectKey, policy: AuthorizationPolicy
    ) -> Iterable[tuple[WriteKey, Outcome[ConditionsStatus]]]:
        yield (*key, "status"), told(at, key, policy)

    def told(at: At, key: ObjectKey, policy: AuthorizationPolicy) -> Outcome[ConditionsStatus]:
        if key[0] != home.cluster:
            return Withheld("NotOfHome", key[0])
        if not answers.home(at):
            return Withheld("HomeNotSynced")
        verdict = at.get(verdicts, key) if home.istio_classes else None
        if verdict is None and "conditions" not in policy.written:
            return Withheld("NothingToTell")
        wanted = () if verdict is None else (accepted(at, key, policy.generation, verdict),)
        applied = made.as_one(wanted, policy.conditions, (ZTUNNEL_ACCEPTED,))
        return Withheld("StatusCurrent") if applied is None else ConditionsStatus(applied)

    def accepted(at: At, key: ObjectKey, generation: int, verdict: Verdict) -> Condition:
        if verdict.policy is None:
            return made.flawed(ZTUNNEL_ACCEPTED, generation, verdict.flaws[0].code)
        if at.group(rejected, key):
            return made.flawed(ZTUNNEL_ACCEPTED, generation, "ResourceRejected")
        if verdict.flaws:
            # It is enforced all the same, and refuses no less than it says.
            flawed = made.flawed(ZTUNNEL_ACCEPTED, generation, verdict.flaws[0].code)
            return msgspec.structs.replace(flawed, status="True", message=_message(verdict.flaws))
        return Condition(ZTUNNEL_ACCEPTED, "True", "Accepted", "Node proxies enforce it.", generation)

    return graph.expand("status of authorization policies", policies, status)


def _message(flaws: tuple[Flaw, ...]) -> str:
    """What is wrong by kind, and where."""
    told = [
        f"{CATALOGUE[code].meaning} {CATALOGUE[code].cure}" for code in dict.fromkeys(flaw.code for flaw in flaws)
    ]
    fields = [f"{flaw.field}: {flaw.detail}" for flaw in flaws[:_MOST]]
    more = f"; and {len(flaws) - _MOST} more" if len(flaws) > _MOST else ""
    return f"{' '.join(told)} It is about {'; '.join(fields)}{more}."[: made.LONGEST_MESSAGE]
