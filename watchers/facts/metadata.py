"""The metadata every Kubernetes object has, as it stands on the wire, and the key that comes of it.

Used by the readers of all kinds. Wire structs name only the fields we use, each by its own wire name; everything else
(managedFields, resourceVersion, uid ...) is skipped by the decoder without becoming an object, so it can never make two
facts differ. Every optional field may be null, which means the same as absent.
"""

from __future__ import annotations

import datetime as dt
import re
from sys import intern

import msgspec

from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import Labels, ObjectKey, dns_label, repeated_dns_label, shared_labels, subdomain

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Name(msgspec.Struct, gc=False):
    """``metadata`` of kinds whose labels are not all kept: the parts of the key."""

    name: str
    namespace: str | None = None


class ObjectMeta(Name, gc=False):
    """``metadata`` of most kinds; those with annotations or more fields extend it."""

    labels: dict[str, str | None] | None = None
    creation: str | None = msgspec.field(default=None, name="creationTimestamp")


class OwnedMap(msgspec.Struct, gc=False):
    """A map of ``fieldsV1`` of which nothing is read."""


Owned = OwnedMap | str | float | bool | None
"""What somebody owns below a field, in ``fieldsV1`` of an entry of managedFields. API servers write maps alone; what no
map is means nothing, and lists, of which a hostile one can hold a million, are refused.
"""


def namespaced_key(cluster: str, kind: str, metadata: Name) -> ObjectKey:
    """The key of an object of a namespace; without one it is in ``default``, where kubectl would put it."""
    namespace = metadata.namespace
    return (
        cluster,
        kind,
        repeated_dns_label(namespace, "metadata", "namespace") if namespace else "default",
        subdomain(metadata.name, "metadata", "name"),
    )


def service_key(cluster: str, metadata: Name) -> ObjectKey:
    """The key of a Service, whose name is one label of a host name."""
    dns_label(metadata.name, "metadata", "name")
    return namespaced_key(cluster, "Service", metadata)


def cluster_key(cluster: str, kind: str, metadata: Name) -> ObjectKey:
    """The key of an object that belongs to the whole cluster; a namespace it may claim is ignored."""
    return (cluster, kind, "", subdomain(metadata.name, "metadata", "name"))


def labels_of(metadata: ObjectMeta) -> Labels:
    """The labels of an object."""
    return shared_labels(metadata.labels, "metadata", "labels")


def created(given: str | None) -> str:
    """When an object was made, from its ``creationTimestamp``; "" where that is unknown.

    RFC 3339 in UTC, to the second, as the API server writes it. Facts are ordered by it as text, so the rarer spellings
    (an offset, fractions) are brought to that one form.
    """
    if not given:
        return ""
    if _INSTANT.fullmatch(given):
        return intern(given)
    try:
        moment = dt.datetime.fromisoformat(given)
        if moment.tzinfo is None:
            raise ValueError(given)
        return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        raise InvalidObject(
            ("metadata", "creationTimestamp"),
            f"is {given[:80]!r}, which is no time",
            "write it in RFC 3339, such as 2026-01-01T00:00:00Z, or leave it out",
        ) from None
