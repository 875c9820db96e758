"""Label selectors of Kubernetes (metav1.LabelSelector) as facts hold them.

Part of several facts (the mesh configuration, listeners of Gateways). Read from the wire here; whether labels match is
judged by whoever asks.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from watchers.facts.keys import Labels, shared_labels


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``matchExpressions``: ``operator`` is In, NotIn, Exists or DoesNotExist; ``values`` are sorted."""

    key: str
    operator: str
    values: tuple[str, ...]


class LabelSelector(msgspec.Struct, frozen=True, gc=False):
    """Matches labels that satisfy all of its parts; an empty selector matches everything."""

    match_labels: Labels
    expressions: tuple[Requirement, ...]


class RequirementObject(msgspec.Struct, gc=False):
    """A Requirement on the wire."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] | None = None


class LabelSelectorObject(msgspec.Struct, gc=False):
    """A LabelSelector on the wire."""

    match_labels: dict[str, str | None] | None = msgspec.field(default=None, name="matchLabels")
    match_expressions: list[RequirementObject] | None = msgspec.field(default=None, name="matchExpressions")


def read_selector(wire: LabelSelectorObject | None, *field: str | int) -> LabelSelector | None:
    """The selector, None where there is none; ``field`` is where it stands, for InvalidObject."""
    if wire is None:
        return None
    expressions = {
        Requirement(entry.key, entry.operator, tuple(sorted(set(entry.values or ()))))
        for entry in wire.match_expressions or ()
    }
    return LabelSelector(
        shared_labels(wire.match_labels, *field, "matchLabels"),
        tuple(sorted(expressions, key=lambda entry: (entry.key, entry.operator, entry.values))),
    )
