"""A world whose home takes what it is told: writes go into its objects as the fake API server applies them."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.kit.kube_store import Store
from tests.kit.kube_writes import apply_object, apply_status
from tests.kit.manifests import Manifest
from tests.kit.world import World
from watchers.writes import Write, WriteKey, request

NOW = "2026-03-01T00:00:00Z"


class ToldWorld:
    """Home `alpha`, its objects in a store; `settle` makes passes and applies what they want to be written."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(**settings)
        self.store = Store()
        self.world.cluster("alpha")
        self.written: list[WriteKey] = []

    def apply(self, *documents: Manifest) -> None:
        """Create or change objects, whose status stays."""
        for document in documents:
            before = self.store.get(document["kind"], self._name(document))
            kept = before.document if before else {}
            managed = kept.get("metadata", {}).get("managedFields", [])
            metadata = {**document["metadata"], "managedFields": managed}
            status = {**kept.get("status", {}), **document.get("status", {})}
            self.store.apply({**document, "metadata": metadata, "status": status})
            self._see(document["kind"], self._name(document))

    def remove(self, kind: str, name: str) -> None:
        """Delete an object, `namespace/name`."""
        namespace, _, own = name.rpartition("/")
        stored = self.store.get(kind, (namespace, own))
        assert stored is not None
        self.store.delete(kind, name)
        self.world.delete("alpha", msgspec.json.decode(stored.data))

    def writes(self) -> dict[WriteKey, Write]:
        """What is to be written after one more pass."""
        self.world.step()
        return dict(self.world.published.get("writes", {}))

    def settle(self) -> list[WriteKey]:
        """Writes until nothing is to be written; the keys that were."""
        written: list[WriteKey] = []
        for _ in range(10):
            writes = self.writes()
            if not writes:
                return written
            for key, write in writes.items():
                name = key[2], key[3]
                asked = request(key, write, NOW)
                if asked.method == "DELETE":
                    self.remove(key[1], "/".join(name))
                else:
                    apply = apply_status if key[4] == "status" else apply_object
                    manager, force = asked.query["fieldManager"], asked.query.get("force") == "true"
                    apply(self.store, key[1], name, asked.body, manager, force=force)
                    self._see(key[1], name)
                written.append(key)
        raise AssertionError(f"still to be written: {writes}")

    def status(self, kind: str, name: str) -> Any:
        """The status of an object, `namespace/name`."""
        namespace, _, own = name.rpartition("/")
        stored = self.store.get(kind, (namespace, own))
        assert stored is not None
        return stored.document.get("status") or {}

    def conditions(self, kind: str, name: str) -> dict[str, str]:
        """The conditions of an object, as `status reason` by type."""
        return _brief(self.status(kind, name).get("conditions", []))

    def listener(self, name: str, listener: str) -> dict[str, str]:
        """The conditions of a listener of a Gateway."""
        (found,) = [one for one in self.status("Gateway", name)["listeners"] if one["name"] == listener]
        return _brief(found["conditions"])

    def _name(self, document: Manifest) -> tuple[str, str]:
        return document["metadata"].get("namespace", ""), document["metadata"]["name"]

    def _see(self, kind: str, name: tuple[str, str]) -> None:
        stored = self.store.get(kind, name)
        assert stored is not None
        self.world.apply("alpha", msgspec.json.decode(stored.data))


def _brief(conditions: list[dict[str, Any]]) -> dict[str, str]:
    return {one["type"]: f"{one['status']} {one['reason']}" for one in conditions}
