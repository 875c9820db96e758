"""How the paths of an Ingress are compared, as annotations want it: as regular expressions.

use-regex (default "false") makes regular expressions of the paths that are not Exact (aggregator.traffic.path_regexes).
"""

from __future__ import annotations

import msgspec

from aggregator.traffic.annotations.given import Given, flag


class Matching(msgspec.Struct, frozen=True, gc=False):
    """`regex`: whether paths are regular expressions."""

    regex: bool = False


def matching(given: Given) -> Matching:
    """What an Ingress says of the comparison of its paths."""
    return Matching(given.value("use-regex", flag, False))
