"""Keys of facts, and the values many facts share.

Every reader of an object ends here for its key, its labels and its repeated strings, so that equal ones are one object
in memory: the pods of a Deployment share one tuple of labels. Names are checked on the way, since they become parts of
resource names and of SPIFFE ids, which nobody may forge with a ``/``. Caches are bounded: what falls out of them is
merely not shared any more.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from functools import lru_cache
from sys import intern
from typing import Generic, TypeVar

from watchers.facts.invalid import InvalidObject

ObjectKey = tuple[str, str, str, str]
"""(cluster, kind, namespace, name); the namespace is "" for what belongs to the whole cluster. A plain tuple of
interned strings: the garbage collector stops tracking those, and equal parts are mostly identical."""

Labels = tuple[tuple[str, str], ...]
"""Labels or annotations, sorted by key; equal ones are mostly one object."""

Given = TypeVar("Given", bound=Hashable)
Kept = TypeVar("Kept")

# Unlike labels of host names, what is between two dots of an object's name may be longer than 63 (that of a pod is).
_SUBDOMAIN = re.compile(r"[a-z0-9]+(?:-+[a-z0-9]+)*(?:\.[a-z0-9]+(?:-+[a-z0-9]+)*)*")
_TRUST_DOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9._]{0,253}[a-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_CLUSTER = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._]{0,251}[A-Za-z0-9])?")
_LABEL_KEY = re.compile(
    r"(?:([a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LONGEST_SUBDOMAIN = 253


def label(labels: Labels, key: str) -> str:
    """The value of a label (or annotation), "" where it is absent."""
    for name, value in labels:
        if name == key:
            return value
    return ""


def check_cluster(cluster: str) -> str:
    """The id of a cluster, interned, if it may be one; raises ValueError with the cure otherwise.

    Ids are parts of resource names (``<cluster>//Pod/<namespace>/<name>``), so they follow DNS-1123 in their letters;
    capitals, dots and underscores are allowed besides, because ids in use have them (Istio's default is
    ``Kubernetes``).
    """
    if not _CLUSTER.fullmatch(cluster):
        raise ValueError(
            f"{cluster!r} cannot be the id of a cluster: use letters, digits, '-', '.' and '_', at most 253 of them, "
            "with a letter or a digit at both ends"
        )
    return intern(cluster)


class Shared(Generic[Given, Kept]):
    """A bounded memory of what a value as given is kept as, so that equal values are kept as one object."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[Given, Kept] = {}

    def get(self, given: Given) -> Kept | None:
        """What the value is kept as, if it was given lately."""
        return self._kept.get(given)

    def add(self, given: Given, kept: Kept) -> Kept:
        """Remembers what to keep for values equal to the first argument; returns it."""
        if len(self._kept) >= self._limit:
            # Forgetting all of it is as good as any order, and cheap: what is in use comes back with the next object.
            self._kept.clear()
        self._kept[given] = kept
        return kept


_labels: Shared[tuple[tuple[str, str | None], ...], Labels] = Shared(16_384)
_pairs: Shared[Labels, Labels] = Shared(16_384)


def shared_labels(labels: Mapping[str, str | None] | None, *field: str | int) -> Labels:
    """Labels (or a selector) as a fact keeps them; ``field`` is where they stand, for the error.

    A null value is an empty one, as the API server reads it. Raises InvalidObject for what the API server would
    refuse: values of labels reach resource names (a network's name is one).
    """
    if not labels:
        return ()
    # The API server writes them sorted, so the order as given is nearly always the final one.
    given = tuple(labels.items())
    return _labels.get(given) or _labels.add(given, _checked_labels(tuple(sorted(given)), field))


def shared_annotations(*annotations: tuple[str, str | None]) -> Labels:
    """Annotations as a fact keeps them, from (key, value or None) pairs in the order of their keys."""
    present = tuple([(key, value) for key, value in annotations if value is not None])
    return _shared(present) if present else ()


def _shared(labels: Labels) -> Labels:
    return _pairs.get(labels) or _pairs.add(labels, labels)


def _checked_labels(given: tuple[tuple[str, str | None], ...], field: tuple[str | int, ...]) -> Labels:
    for key, value in given:
        if not _LABEL_KEY.fullmatch(key):
            raise InvalidObject(
                (*field, key),
                f"has the key {key!r}, which no label can have",
                "write it as name or prefix/name, the name of at most 63 letters, digits, '-', '_' and '.'",
            )
        if value is not None and not _LABEL_VALUE.fullmatch(value):
            raise InvalidObject(
                (*field, key),
                f"is {value[:80]!r}, which no label can be",
                "use at most 63 letters, digits, '-', '_' and '.', with a letter or a digit at both ends",
            )
    return _shared(tuple([(intern(key), intern(value or "")) for key, value in given]))


def trust_domain(text: str, *field: str | int) -> str:
    """A trust domain of SPIFFE ids, or "" for none; raises InvalidObject."""
    if text and not _TRUST_DOMAIN.fullmatch(text):
        cause = f"is {text[:80]!r}, which is no SPIFFE trust domain"
        raise InvalidObject(field, cause, "use lower case letters, digits, '-', '.' and '_'")
    return text


def subdomain(name: str, *field: str | int) -> str:
    """A name that must be a DNS-1123 subdomain, as most names of objects; raises InvalidObject."""
    if len(name) > _LONGEST_SUBDOMAIN or not _SUBDOMAIN.fullmatch(name):
        raise InvalidObject(
            field,
            f"is {name[:80]!r}, which no object can be called",
            "use lower case letters, digits, '-' and '.', with a letter or a digit at both ends, at most 253 in all",
        )
    return intern(name)


def dns_label(name: str, *field: str | int) -> str:
    """A name that must be a DNS-1123 label, as those of namespaces and Services; raises InvalidObject."""
    if not _DNS_LABEL.fullmatch(name):
        raise InvalidObject(
            field,
            f"is {name[:80]!r}, which is no name of this kind",
            "use at most 63 lower case letters, digits and '-', with a letter or a digit at both ends",
        )
    return intern(name)


repeated_subdomain = lru_cache(8_192)(subdomain)
"""``subdomain`` for names that many objects mention (nodes, accounts): checked once."""

repeated_dns_label = lru_cache(8_192)(dns_label)
"""``dns_label`` for names that many objects mention (namespaces): checked once."""
