"""Objects as they are asked for: where API servers serve a kind, which of its objects become facts, under which keys.

In: kinds of facts. Out: paths, selectors and prefixes for `watchers.kubernetes.reflector`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from watchers.facts import secrets
from watchers.facts.kinds import KINDS, Kind


class Resource(msgspec.Struct, frozen=True):
    """Objects of a kind as they are asked for: all, those of a namespace, or those a selector selects.

    With a ``name`` it is the one of a namespace, which the field selector has to say as well.
    """

    kind: Kind
    namespace: str = ""
    field_selector: str = ""
    label_selector: str = ""
    name: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Where an API server serves them, the best version first."""
        plural = _plural(self.kind.name.lower())
        place = f"namespaces/{self.namespace}/" if self.namespace else ""
        return tuple(
            f"/{'apis' if '/' in version else 'api'}/{version}/{place}{plural}" for version in self.kind.api_versions
        )

    def prefix(self, cluster: str) -> tuple[str, ...]:
        """What the keys of their facts begin with; nobody else may write there."""
        prefix = (cluster, self.kind.fact)
        return (*prefix, *filter(None, (self.namespace, self.name)))

    @property
    def selective(self) -> bool:
        """Whether it is read of selected namespaces alone."""
        return self.kind.namespaced and not self.namespace


def single(kind: Kind, namespace: str, name: str) -> Resource:
    """One object. Asked for so, it can be granted by its name (``resourceNames``)."""
    return Resource(kind, namespace, f"metadata.name={name}", name=name)


def _plural(name: str) -> str:
    """The name of a kind's resource, as API conventions form it."""
    if name.endswith("y") and name[-2] not in "aeiou":
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def resources(system_namespace: str, kinds: Iterable[Kind] = KINDS) -> tuple[Resource, ...]:
    """Every kind as it is asked for, so that a server sends no object that would become no fact."""
    return tuple(_resource(kind, system_namespace) for kind in kinds)


def _resource(kind: Kind, system_namespace: str) -> Resource:
    if kind.fact == "MeshConfig":
        return Resource(kind, namespace=system_namespace, field_selector=f"metadata.name={kind.called}")
    if kind.called:
        return Resource(kind, field_selector=f"metadata.name={kind.called}")
    if kind.fact == "TLSSecret":
        return Resource(kind, field_selector=f"type={secrets.TLS_TYPE}")
    return Resource(kind)
