"""References from one namespace into another: the one place where it is decided whether one counts.

Within a namespace every reference does. Into another one it takes a ReferenceGrant there, that is to say in the
namespace of what is referred to: one in the namespace that refers would let everybody help himself. A grant names the
group, kind and namespace of who refers, and the group and kind, perhaps the name, of what; all of it is compared as it
is written. Only home's grants count.

Whoever asks reads what he asks about and nothing else, so a grant that changes costs those it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from aggregator.graph import At, Graph, Source
from aggregator.mesh.home import Home
from aggregator.mesh.selection import Includes
from watchers.facts.keys import ObjectKey
from watchers.facts.reference_grants import ReferenceGrant


class Referrer(msgspec.Struct, frozen=True, gc=False):
    """Who refers to something: the group and kind of an object, and its namespace."""

    group: str
    kind: str
    namespace: str


class Target(msgspec.Struct, frozen=True, gc=False):
    """What is referred to."""

    group: str
    kind: str
    namespace: str
    name: str


Allows: TypeAlias = Callable[[At, Referrer, Target], bool]
"""Whether a reference counts, read inside a derivation."""

_Grant: TypeAlias = tuple[str, str, str, str, str, str, str]
"""Namespace of the grant; group, kind and namespace of who may refer; group, kind and name ("": any) of what."""


def declare(
    graph: Graph, home: Home, includes: Includes, grants: Source[ObjectKey, ReferenceGrant]
) -> Allows:
    """Declare what is granted at home."""

    def granted(key: ObjectKey, grant: ReferenceGrant) -> Iterable[_Grant]:
        return {
            (key[2], source.group, source.kind, source.namespace, target.group, target.kind, target.name)
            for source in grant.sources
            for target in grant.targets
        }

    given = graph.index("references that are granted", grants, granted, unless=lambda key, _: key[0] != home.cluster)

    def allows(at: At, referrer: Referrer, target: Target) -> bool:
        if referrer.namespace == target.namespace:
            return True
        if not includes(at, home.cluster, target.namespace):
            return False
        ways = (target.namespace, referrer.group, referrer.kind, referrer.namespace, target.group, target.kind)
        # No object has an empty name, which is how "any" is written here.
        return bool(target.name) and any(at.group(given, (*ways, name)) for name in (target.name, ""))

    return allows
