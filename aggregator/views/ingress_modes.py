"""How an ingress gateway is told what it serves: on demand, or in compatibility mode.

On demand each host is a resource of its own, and one more costs the same beside ten thousand. A proxy that cannot take
that is told listeners and routes of all hosts at once: one that speaks the state-of-the-world variant, or is built
without certificates on demand or without one of the filters. An operator may ask for either, by a label of the
gateway's pod or in its bootstrap; what a proxy cannot do is not done whoever asks for it.
"""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """The two forms."""

    ON_DEMAND = "on-demand"
    """Routes as scopes, certificates and clusters by name (views.ingress_gateway)."""
    COMPATIBLE = "compatible"
    """Chains by certificate, routes as one table, all clusters (views.ingress_compatible)."""


def mode_of(*asked: str, able: bool) -> Mode:
    """The mode of a gateway that is `able` to be served on demand: the first of those asked for that is one."""
    if not able:
        return Mode.COMPATIBLE
    return next((Mode(one) for one in asked if one in tuple(Mode)), Mode.ON_DEMAND)
