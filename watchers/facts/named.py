"""Facts about single objects of home that were asked for by name, and about what accounts may do there.

Written by `watchers.kubernetes`, under NAMED in the place of a cluster: what is read together with a cluster is
replaced as a whole, and these are not among it. A NamedSecret or RootsConfigMap stands there under its own namespace
and name.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import ObjectKey
from watchers.facts.metadata import Name, namespaced_key
from watchers.facts.secrets import MOST_BYTES, shared_roots

NAMED = "@named"
"""In the place of a cluster's id. No cluster can be called so."""

WantedKey: TypeAlias = tuple[str, str, str]
"""An object that is wanted: the kind of its fact (NamedSecret, RootsConfigMap), its namespace and its name."""


class RootsConfigMap(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="RootsConfigMap"):
    """``ca.crt`` of a ConfigMap, PEM as given, b"" if it has none: roots to trust, which are no secret."""

    roots: bytes

    def __repr__(self) -> str:
        return f"RootsConfigMap({len(self.roots)} bytes)"


class Reading(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Reading"):
    """How an object that was asked for by name is being read. There is none before it was answered for the first time.

    ``state`` is "read" while what is known of it, that it is not there included, is what home last said; "denied" while
    it may not be read; "invalid" if it cannot be used as it is. ``reason`` is for people.
    """

    state: Literal["read", "denied", "invalid"]
    reason: str = ""


class SecretAccess(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="SecretAccess"):
    """Whether a service account of home may list the Secrets of its namespace, as home's API server has it.

    ``reason`` says why not, or why nobody could be asked lately: what was answered last stands then for a while.
    ``pending`` while there was no answer at all and it is too early to make anything of that.
    """

    allowed: bool
    reason: str = ""
    pending: bool = False


class ConfigMapRoots(msgspec.Struct, gc=False):
    """The entry of a ConfigMap that is read."""

    roots: str | None = msgspec.field(default=None, name="ca.crt")


class RootsConfigMapObject(msgspec.Struct, gc=False):
    """A ConfigMap on the wire."""

    metadata: Name
    data: ConfigMapRoots | None = None


def holds_roots(wire: RootsConfigMapObject) -> bool:
    """Whether there are roots in a ConfigMap."""
    return wire.data is not None and wire.data.roots is not None


def read_roots(wire: RootsConfigMapObject, cluster: str) -> tuple[ObjectKey, RootsConfigMap]:
    """Key and fact of a ConfigMap."""
    roots = ((wire.data.roots if wire.data else None) or "").encode(errors="replace")
    if len(roots) > MOST_BYTES:
        raise InvalidObject(("data", "ca.crt"), f"is longer than {MOST_BYTES:,} bytes", "no ConfigMap can be")
    return namespaced_key(cluster, "RootsConfigMap", wire.metadata), RootsConfigMap(shared_roots(roots))


def reading_key(wanted: WantedKey) -> ObjectKey:
    """The key under which it stands how a wanted object is being read."""
    kind, namespace, name = wanted
    return (NAMED, "Reading", namespace, f"{kind}/{name}")


def object_key(wanted: WantedKey) -> ObjectKey:
    """The key under which a wanted object stands."""
    kind, namespace, name = wanted
    return (NAMED, kind, namespace, name)


def access_key(namespace: str, account: str) -> ObjectKey:
    """The key under which it stands what an account may do."""
    return (NAMED, "SecretAccess", namespace, account)
