"""How the paths of an Ingress are compared, as annotations want it: as regular expressions.

use-regex makes regular expressions of the paths that are not Exact (aggregator.traffic.path_regexes). By default they
are if the Ingress rewrites paths, since what is rewritten may be made of their groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.traffic.annotations.given import Given, flag

ANNOTATIONS: Final[Mapping[str, str]] = {
    "use-regex": "Whether paths that are not Exact are regular expressions.",
}


class Matching(msgspec.Struct, frozen=True, gc=False):
    """`regex`: whether paths are regular expressions."""

    regex: bool = False


def matching(given: Given, *, rewritten: bool) -> Matching:
    """What an Ingress says of the comparison of its paths, which are `rewritten` or not."""
    return Matching(given.value("use-regex", flag, rewritten))
