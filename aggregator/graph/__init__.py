"""The incremental graph: facts in, messages out, and a small change in costs a small change out.

`graph.Graph` is declared once (its shape never changes at run time), then fed with `begin` and driven with `run`.
`collection` holds what a derivation sees, `engine` runs a pass, `derivations` evaluates and records what was read,
`groups` keeps indexes, folds and pairs, `latch` keeps the last good value, `allocation` gives every claim a value of
its own, `fork` tries a change without making it, `queries` answers why, origins and reached.
Nothing here does I/O, knows the time or logs: inputs, time included, arrive with `begin`.
"""

from __future__ import annotations

from aggregator.graph.allocation import Claim
from aggregator.graph.collection import At, Collection, GraphError, Index, Source, Sums
from aggregator.graph.engine import Pass
from aggregator.graph.graph import Graph
from aggregator.graph.outcome import Outcome, Withheld

__all__ = ["At", "Claim", "Collection", "Graph", "GraphError", "Index", "Outcome", "Pass", "Source", "Sums", "Withheld"]
