"""What objects that ask for a waypoint are told of it: Istio's condition, with its reasons.

It is judged as it is for proxies, so it says what is in force. It belongs to Istio: only a process in Istio's place
(--istio-classes) writes it.
"""

from __future__ import annotations

from typing import Final

from aggregator.findings import CATALOGUE
from aggregator.mesh.waypoints import Attached, Refused, Waypoint
from watchers.facts.conditions import Condition, Conditions

WAYPOINT_BOUND: Final = "istio.io/WaypointBound"


def bound(found: Attached | Refused | None, *, ingress: bool = False) -> Conditions:
    """The condition; none where no waypoint is asked for. With ``ingress`` gateways go through the waypoint, too."""
    if found is None:
        return ()
    if isinstance(found, Refused):
        return (_unbound(found, "No waypoint is used"),)
    name = _name(found.waypoint)
    if found.without_canary is not None:
        return (_unbound(found.without_canary, f"All traffic goes through waypoint {name}, without a canary"),)
    message = f"Attached to waypoint {name}."
    if found.canary is not None:
        message += f" {found.canary_weight} percent of the traffic go through {_name(found.canary)}."
    if ingress:
        message += " Traffic of ingress gateways goes through it as well."
    return (Condition(WAYPOINT_BOUND, "True", "WaypointAccepted", message, 0),)


def _unbound(why: Refused, outcome: str) -> Condition:
    message = f"{outcome}: {why.detail}. {CATALOGUE[why.reason].cure}"
    return Condition(WAYPOINT_BOUND, "False", why.reason, message, 0)


def _name(waypoint: Waypoint) -> str:
    return f"{waypoint.namespace}/{waypoint.name}"
