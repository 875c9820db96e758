"""How a fake Kubernetes API takes writes: creations, updates at a version, deletions, and server-side applies.

Joins requests to the objects of `kube_store`, as far as a client can tell the difference from a real server: a field
belongs to whoever applied it, is taken over by force only, and goes with the last who owned it. Of lists those of
conditions and listeners are maps by type and name, as their schemas say, but of Istio's kinds, whose schemas say
nothing; all others are one value.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from tests.kit.kube_store import Name, Store

Path = tuple[str, ...]
_KEYS = {"conditions": "type", "listeners": "name"}
_METADATA = ("labels", "annotations")
_ISTIO = ("AuthorizationPolicy", "ServiceEntry", "WorkloadEntry")


class Refused(Exception):
    """The write is answered with this status and reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def create(store: Store, kind: str, namespace: str, body: bytes) -> dict[str, Any]:
    """A new object."""
    document = _document(body, kind)
    name = document["metadata"].get("name", "")
    if store.get(kind, (namespace, name)) is not None:
        raise Refused(409, "AlreadyExists", f"{name} already exists")
    return _stored(store, kind, (namespace, name), document)


def update(store: Store, kind: str, name: Name, body: bytes) -> dict[str, Any]:
    """An object as a whole, if it is still at the version the body names."""
    document, before = _document(body, kind), store.get(kind, name)
    if before is None:
        raise Refused(404, "NotFound", "not found")
    given = document["metadata"].get("resourceVersion")
    if given and given != before.document["metadata"]["resourceVersion"]:
        raise Refused(409, "Conflict", "the object has been modified; please apply your changes to the latest version")
    return _stored(store, kind, name, document)


def apply_status(store: Store, kind: str, name: Name, body: bytes, manager: str, *, force: bool) -> dict[str, Any]:
    """Fields of the status that are to be this manager's, and no others that were."""
    if not manager:
        raise Refused(400, "BadRequest", "fieldManager is required for apply patch")
    applied, before = _document(body, kind), store.get(kind, name)
    if before is None:
        raise Refused(404, "NotFound", "not found")
    document = copy.deepcopy(before.document)
    owners = _owners(document, "status")
    keys = {} if kind in _ISTIO else _KEYS
    wanted, present = dict(_leaves(_status(applied), keys)), dict(_leaves(_status(document), keys))
    _take(owners, present, wanted, manager, force=force)
    document["status"] = _tree(present).get("status", {})
    return _stored(store, kind, name, _with_owners(document, owners, "status"))


def apply_object(store: Store, kind: str, name: Name, body: bytes, manager: str, *, force: bool) -> dict[str, Any]:
    """Labels, annotations and fields of spec or data that are to be this manager's; the object is made if there is
    none.
    """
    if not manager:
        raise Refused(400, "BadRequest", "fieldManager is required for apply patch")
    applied, before = _document(body, kind), store.get(kind, name)
    document: dict[str, Any] = copy.deepcopy(before.document) if before is not None else {"kind": kind, "metadata": {}}
    owners = _owners(document, "")
    wanted, present = dict(_leaves(_own(applied), {})), dict(_leaves(_own(document), {}))
    _take(owners, present, wanted, manager, force=force)
    tree = _tree(present)
    for part in _METADATA:
        document["metadata"].pop(part, None)
    document["metadata"].update(tree.get("metadata", {}))
    for part in ("data", "spec"):
        if part in tree or part in document:
            document[part] = tree.get(part, {})
    return _stored(store, kind, name, _with_owners(document, owners, ""))


def delete(store: Store, kind: str, name: Name, body: bytes) -> dict[str, Any]:
    """An object goes, if it is the one that is meant."""
    before = store.get(kind, name)
    if before is None:
        raise Refused(404, "NotFound", "not found")
    options = (yaml.safe_load(body) if body else None) or {}
    wanted = (options.get("preconditions") or {}).get("uid")
    if wanted and wanted != before.document["metadata"]["uid"]:
        raise Refused(409, "Conflict", "the UID in the precondition does not match the UID in record")
    store.delete(kind, "/".join(name))
    return {"kind": "Status", "status": "Success"}


def _take(
    owners: dict[str, set[Path]], present: dict[Path, Any], wanted: dict[Path, Any], manager: str, *, force: bool
) -> None:
    """Makes what is wanted the manager's, and nothing else any more."""
    for other, paths in owners.items():
        if other == manager:
            continue
        disputed = {path for path in paths if path in wanted and present.get(path) != wanted[path]}
        if disputed and not force:
            raise Refused(409, "Conflict", f"conflict with {other}")
        owners[other] = paths - disputed
    others = {path for other, paths in owners.items() if other != manager for path in paths}
    for path in owners.get(manager, set()) - wanted.keys() - others:
        present.pop(path, None)
    present.update(wanted)
    owners[manager] = set(wanted)


def _status(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": document["status"]} if document.get("status") else {}


def _own(document: Mapping[str, Any]) -> dict[str, Any]:
    """What somebody can own of an object but its status."""
    metadata = {part: document["metadata"][part] for part in _METADATA if document["metadata"].get(part)}
    parts = {"metadata": metadata, "data": document.get("data"), "spec": document.get("spec")}
    return {name: part for name, part in parts.items() if part}


def _document(body: bytes, kind: str) -> dict[str, Any]:
    document = yaml.safe_load(body)
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise Refused(400, "BadRequest", f"the object is no {kind}")
    return document


def _stored(store: Store, kind: str, name: Name, document: dict[str, Any]) -> dict[str, Any]:
    metadata = {**document["metadata"], "name": name[1], **({"namespace": name[0]} if name[0] else {})}
    store.apply({**document, "metadata": metadata})
    after = store.get(kind, name)
    assert after is not None
    decoded: dict[str, Any] = msgspec.json.decode(after.data)
    return decoded


def _owners(document: dict[str, Any], subresource: str) -> dict[str, set[Path]]:
    return {
        entry["manager"]: set(_paths(entry["fieldsV1"]))
        for entry in document["metadata"].get("managedFields", ())
        if entry.get("subresource", "") == subresource
    }


def _with_owners(document: dict[str, Any], owners: Mapping[str, set[Path]], subresource: str) -> dict[str, Any]:
    managed = [
        one for one in document["metadata"].get("managedFields", ()) if one.get("subresource", "") != subresource
    ]
    for owner, paths in sorted(owners.items()):
        if paths:
            entry = {"manager": owner, "operation": "Apply", "fieldsV1": _fields(sorted(paths))}
            managed.append({**entry, "subresource": subresource} if subresource else entry)
    document["metadata"]["managedFields"] = managed
    return document


def _fields(paths: list[Path]) -> dict[str, Any]:
    """Paths in the form of FieldsV1: nested, `f:` before names and `k:` before the keys of a list's entries."""
    tree: dict[str, Any] = {}
    for path in paths:
        place = tree
        for within, step in zip(("", *path), path, strict=False):
            entry = f"k:{json.dumps({_KEYS[within]: step[2:]})}" if step.startswith("k:") else f"f:{step}"
            place = place.setdefault(entry, {})
    return tree


def _paths(fields: dict[str, Any], at: Path = ()) -> Iterator[Path]:
    if not fields:
        yield at
    for entry, inner in fields.items():
        step = f"k:{next(iter(json.loads(entry[2:]).values()))}" if entry.startswith("k:") else entry[2:]
        yield from _paths(inner, (*at, step))


def _leaves(value: dict[str, Any], keys: Mapping[str, str], at: Path = ()) -> Iterator[tuple[Path, Any]]:
    for name, inner in value.items():
        if name in keys and isinstance(inner, list):
            for entry in inner:
                yield from _leaves(entry, keys, (*at, name, f"k:{entry[keys[name]]}"))
        elif isinstance(inner, dict) and inner:
            yield from _leaves(inner, keys, (*at, name))
        else:
            yield (*at, name), inner


def _tree(leaves: dict[Path, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in leaves.items():
        place = tree
        for step in path[:-1]:
            place = place.setdefault(step, {})
        place[path[-1]] = value
    listed = _listed(tree)
    assert isinstance(listed, dict)
    return listed


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.startswith("k:") for key in value):
        return [_listed(entry) for entry in value.values()]
    return {key: _listed(inner) for key, inner in value.items()}
