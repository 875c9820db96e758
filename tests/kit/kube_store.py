"""What a fake Kubernetes API server holds: objects by resource, each write a revision, and the history watches read.

`tests/kit/kube_api.py` answers requests from it. Where clients can tell it behaves as the API server's storage does:
one revision counter for all kinds, a history that can be compacted, lists that are pages of one revision. Pure: knows
no HTTP and no time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from tests.kit.manifests import CREATED, Manifest

Name = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name."""

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class Resource(msgspec.Struct, frozen=True):
    """A kind as the API serves it; ``api_version`` is the one of its paths."""

    kind: str
    api_version: str
    plural: str
    namespaced: bool = True

    @property
    def root(self) -> str:
        """The path of all its objects in all namespaces."""
        return ("/api/" if "/" not in self.api_version else "/apis/") + f"{self.api_version}/{self.plural}"


RESOURCES = (
    Resource("Namespace", "v1", "namespaces", namespaced=False),
    Resource("Node", "v1", "nodes", namespaced=False),
    Resource("Pod", "v1", "pods"),
    Resource("Service", "v1", "services"),
    Resource("ConfigMap", "v1", "configmaps"),
    Resource("Secret", "v1", "secrets"),
    Resource("Lease", "coordination.k8s.io/v1", "leases"),
    Resource("EndpointSlice", "discovery.k8s.io/v1", "endpointslices"),
    Resource("Gateway", "gateway.networking.k8s.io/v1", "gateways"),
    Resource("GatewayClass", "gateway.networking.k8s.io/v1", "gatewayclasses", namespaced=False),
    Resource("ReferenceGrant", "gateway.networking.k8s.io/v1", "referencegrants"),
    Resource("HTTPRoute", "gateway.networking.k8s.io/v1", "httproutes"),
    Resource("TokenReview", "authentication.k8s.io/v1", "tokenreviews", namespaced=False),
    Resource("SubjectAccessReview", "authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False),
    Resource("Ingress", "networking.k8s.io/v1", "ingresses"),
    Resource("IngressClass", "networking.k8s.io/v1", "ingressclasses", namespaced=False),
    Resource("AuthorizationPolicy", "security.istio.io/v1", "authorizationpolicies"),
    Resource("PeerAuthentication", "security.istio.io/v1", "peerauthentications"),
    Resource("ServiceEntry", "networking.istio.io/v1", "serviceentries"),
    Resource("WorkloadEntry", "networking.istio.io/v1", "workloadentries"),
    Resource("ServiceExport", "multicluster.x-k8s.io/v1alpha1", "serviceexports"),
    Resource("ServiceImport", "multicluster.x-k8s.io/v1alpha1", "serviceimports"),
)
"""The kinds a server serves unless told otherwise."""


class Stored(msgspec.Struct, frozen=True):
    """An object at one revision."""

    name: Name
    labels: Mapping[str, str]
    document: Manifest
    data: bytes


class Event(msgspec.Struct, frozen=True):
    """One write: the object before (None: it was not there) and after (None: it is gone).

    The object of a deletion carries the revision of the deletion, as on the wire.
    """

    revision: int
    kind: str
    before: Stored | None
    after: Stored | None


Selector = Callable[[Stored], bool]


class Compacted(Exception):
    """The history no longer reaches back to the revision asked for."""


class Store:
    """Objects and history of one cluster. ``on_write`` is called after every write."""

    def __init__(self, resources: Iterable[Resource] = RESOURCES, on_write: Callable[[], None] = lambda: None) -> None:
        self.resources = {resource.kind: resource for resource in resources}
        self.revision = 1000
        self.compacted = 1000
        self._objects: dict[str, dict[Name, Stored]] = {kind: {} for kind in self.resources}
        self._events: list[Event] = []
        self._on_write = on_write

    def apply(self, *documents: Manifest) -> int:
        """Creates or changes objects, each by a revision of its own; the last revision.

        An object equal to what is there changes nothing, as with a server-side apply.
        """
        for document in documents:
            resource = self.resources[document["kind"]]
            metadata = document["metadata"]
            name = (metadata.get("namespace") or "default" if resource.namespaced else "", metadata["name"])
            before = self._objects[resource.kind].get(name)
            whole = {**document, "apiVersion": resource.api_version}
            if before is not None and _content(before.document) == _content(whole):
                continue
            self.revision += 1
            after = _stored(whole, name, self.revision, before)
            self._objects[resource.kind][name] = after
            self._events.append(Event(self.revision, resource.kind, before, after))
        self._on_write()
        return self.revision

    def delete(self, kind: str, *names: str) -> int:
        """Deletes objects, named ``"namespace/name"`` or ``"name"``; the last revision. KeyError if one is missing."""
        for text in names:
            space, slash, own = text.rpartition("/")
            name = (space if slash or not self.resources[kind].namespaced else "default", own)
            before = self._objects[kind].pop(name)
            self.revision += 1
            gone = _stored(before.document, name, self.revision, before)
            self._events.append(Event(self.revision, kind, gone, None))
        self._on_write()
        return self.revision

    def compact(self) -> None:
        """Forgets the history: whoever watches from before now is told that it is gone."""
        self.compacted = self.revision
        self._events.clear()

    def advance(self, revisions: int = 1) -> int:
        """Revisions pass in which nothing that is served here changes; the last one."""
        self.revision += revisions
        self._on_write()
        return self.revision

    def objects(self, kind: str, selects: Selector = lambda _: True) -> list[Stored]:
        """The objects of a kind now, in the order of namespace and name, which is the order of lists."""
        return [stored for _, stored in sorted(self._objects[kind].items()) if selects(stored)]

    def get(self, kind: str, name: Name) -> Stored | None:
        """One object now."""
        return self._objects[kind].get(name)

    def events(self, kind: str, after: int, selects: Selector) -> Iterator[tuple[EventType, Stored]]:
        """What happened to the selected objects of a kind after a revision; raises Compacted if that is not known.

        An object that ceases to be selected is DELETED, one that begins to be is ADDED.
        """
        if after < self.compacted:
            raise Compacted
        for event in self._since(after):
            if event.kind != kind:
                continue
            was = event.before is not None and selects(event.before)
            if event.after is not None and selects(event.after):
                yield ("MODIFIED" if was else "ADDED"), event.after
            elif was and event.before is not None:
                gone = event.before if event.after is None else event.after
                yield "DELETED", gone

    def _since(self, revision: int) -> Sequence[Event]:
        first = len(self._events)
        while first and self._events[first - 1].revision > revision:
            first -= 1
        return self._events[first:]


def label_selector(text: str) -> Selector:
    """The labelSelector of a request: ``a=b``, ``a!=b``, ``a`` and ``!a``, joined by commas."""
    terms = [term for term in text.split(",") if term]
    return lambda stored: all(_has(stored.labels, term) for term in terms)


def field_selector(text: str) -> Selector:
    """The fieldSelector of a request, for fields that are plain strings: ``metadata.name=x``, ``type!=y``."""
    terms = [term for term in text.split(",") if term]
    return lambda stored: all(_reads(stored.document, term) for term in terms)


def _has(labels: Mapping[str, str], term: str) -> bool:
    if "!=" in term:
        key, _, value = term.partition("!=")
        return labels.get(key) != value
    if "=" in term:
        key, _, value = term.replace("==", "=").partition("=")
        return labels.get(key) == value
    return (term.lstrip("!") in labels) is not term.startswith("!")


def _reads(document: Manifest, term: str) -> bool:
    differs = "!=" in term
    path, _, wanted = term.partition("!=" if differs else "=")
    value: Any = document
    for step in path.split("."):
        value = value.get(step, "") if isinstance(value, dict) else ""
    return (value == wanted) is not differs


def _content(document: Manifest) -> Manifest:
    ours = ("resourceVersion", "uid", "creationTimestamp", "namespace")
    metadata = {key: value for key, value in document["metadata"].items() if key not in ours}
    return {**document, "metadata": metadata}


def _stored(document: Manifest, name: Name, revision: int, before: Stored | None) -> Stored:
    given = document["metadata"]
    uid = before.document["metadata"]["uid"] if before else given.get("uid", f"uid-{revision}")
    created = before.document["metadata"]["creationTimestamp"] if before else given.get("creationTimestamp", CREATED)
    own: Manifest = {"uid": uid, "creationTimestamp": created, "resourceVersion": str(revision)}
    if name[0]:
        own["namespace"] = name[0]
    whole = {**document, "metadata": {**given, **own}}
    return Stored(name, given.get("labels") or {}, whole, json.dumps(whole, separators=(",", ":")).encode())
