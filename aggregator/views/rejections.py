"""Rejected resources as findings on the objects they were made from.

A finding stands while the rejected version is what the view holds; new content withdraws it. What is written into
statuses tells of it, too.
"""

from __future__ import annotations

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Withheld
from aggregator.views.view import ResourceKey
from watchers.facts.keys import ObjectKey
from xds.encoded import Resource


class Rejection(msgspec.Struct, frozen=True):
    """A proxy's refusal of one version of a resource: the objects behind it, who refused, and in which words."""

    objects: tuple[ObjectKey, ...]
    version: str
    proxy: str
    message: str


def declare(
    graph: Graph, rejections: Source[ResourceKey, Rejection], told: list[Collection[ResourceKey, Resource]]
) -> Index[ObjectKey, ResourceKey, Rejection]:
    """Declare the findings of rejected resources; the result is what is rejected of an object."""

    def current(at: At, key: ResourceKey, rejection: Rejection) -> Outcome[Rejection]:
        versions = [resource.version for collection in told if (resource := at.get(collection, key)) is not None]
        if rejection.version not in versions:
            return Withheld("RejectedNoLonger")
        for subject in rejection.objects:
            detail = f"{key[1]} was refused by {rejection.proxy}: {rejection.message}"
            at.note(subject, Finding(subject, "ResourceRejected", "", detail))
        return rejection

    rejected = graph.derive("rejected resources", rejections, current)
    return graph.index("rejections by object", rejected, lambda _, one: one.objects)
