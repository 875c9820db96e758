"""Facts of gateway.networking.k8s.io: ReferenceGrant, by which a namespace lets objects of others refer to its own.

Read as in core.py. What a grant allows is judged in `aggregator.security.references`.
"""

from __future__ import annotations

from sys import intern

import msgspec

from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import ObjectKey
from watchers.facts.metadata import Name, namespaced_key

MOST_ENTRIES = 16
"""Entries of ``from`` and of ``to``, each: the API's own limit. What is granted is every one to every one."""


class GrantFrom(msgspec.Struct, frozen=True, gc=False):
    """Who may refer: objects of a group and kind in a namespace."""

    group: str
    kind: str
    namespace: str


class GrantTo(msgspec.Struct, frozen=True, gc=False):
    """To what: objects of a group and kind in the grant's own namespace, one by name or ("") all."""

    group: str
    kind: str
    name: str


class ReferenceGrant(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="ReferenceGrant"):
    """A ReferenceGrant; every one of ``sources`` may refer to every one of ``targets``."""

    sources: tuple[GrantFrom, ...]
    targets: tuple[GrantTo, ...]


class GrantFromObject(msgspec.Struct, gc=False):
    """One entry of ``spec.from``."""

    kind: str
    namespace: str
    group: str | None = None


class GrantToObject(msgspec.Struct, gc=False):
    """One entry of ``spec.to``."""

    kind: str
    group: str | None = None
    name: str | None = None


class ReferenceGrantSpec(msgspec.Struct, gc=False):
    """``spec`` of a ReferenceGrant."""

    sources: list[GrantFromObject] | None = msgspec.field(default=None, name="from")
    targets: list[GrantToObject] | None = msgspec.field(default=None, name="to")


class ReferenceGrantObject(msgspec.Struct, gc=False):
    """A ReferenceGrant on the wire."""

    metadata: Name
    spec: ReferenceGrantSpec


def read_reference_grant(wire: ReferenceGrantObject, cluster: str) -> tuple[ObjectKey, ReferenceGrant]:
    """Key and fact of a ReferenceGrant."""
    sources, targets = wire.spec.sources or [], wire.spec.targets or []
    for field, entries in (("from", sources), ("to", targets)):
        if len(entries) > MOST_ENTRIES:
            raise InvalidObject(
                ("spec", field), f"has {len(entries)} entries, and {MOST_ENTRIES} are the most", "use several grants"
            )
    return namespaced_key(cluster, "ReferenceGrant", wire.metadata), ReferenceGrant(
        tuple([GrantFrom(intern(one.group or ""), intern(one.kind), intern(one.namespace)) for one in sources]),
        tuple([GrantTo(intern(one.group or ""), intern(one.kind), one.name or "") for one in targets]),
    )
