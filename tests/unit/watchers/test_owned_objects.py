"""Objects that are ours as a whole: how they are made, kept and deleted, and what is never done to those of others."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tests.kit import manifests as m
from tests.kit.clock import virtual_time
from tests.kit.kube_api import Refuse
from tests.unit.watchers.test_applier import running
from watchers.facts.conditions import Condition
from watchers.facts.multicluster import ImportPort, ImportSpec
from watchers.owned_objects import DistributedRoots, ImportedService, Removal
from watchers.writes import ServiceImportStatus, Write, WriteKey, request

KEY: WriteKey = ("home", "ServiceImport", "shop", "cart", "object")
PORTS = (ImportPort("http", 80, "TCP", ""),)
SPEC = ImportSpec("ClusterSetIP", PORTS, ("240.240.0.9",), ("IPv4",), "None", 0, "Cluster", "")
NEW = ImportedService((("a", "b"),), (), SPEC, exists=False)
TERMINATING = msgspec.json.encode(
    {
        "kind": "Status",
        "reason": "Forbidden",
        "code": 403,
        "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
    }
)


def sent(write: Write, key: WriteKey = KEY) -> Any:
    return msgspec.json.decode(request(key, write, "").body)


def test_an_import_is_applied_at_its_own_path_with_what_it_says_and_nothing_else() -> None:
    asked = request(KEY, NEW, "")
    assert asked.path == "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/shop/serviceimports/cart"
    assert sent(NEW) == {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ServiceImport",
        "metadata": {"name": "cart", "namespace": "shop", "labels": {"a": "b"}},
        "spec": {
            "type": "ClusterSetIP",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            "ips": ["240.240.0.9"],
            "ipFamilies": ["IPv4"],
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
        },
    }


def test_fields_are_taken_by_force_only_of_an_object_that_is_ours() -> None:
    assert "force" not in request(KEY, NEW, "").query
    assert request(KEY, msgspec.structs.replace(NEW, exists=True), "").query["force"] == "true"


def test_the_status_of_an_import_names_its_clusters() -> None:
    ready = Condition("Ready", "True", "Ready", "", 1, "2026-01-01T00:00:00Z")
    status = sent(ServiceImportStatus(("alpha", "beta"), (ready,)), (*KEY[:4], "status"))["status"]
    assert status["clusters"] == [{"cluster": "alpha"}, {"cluster": "beta"}]
    assert [one["type"] for one in status["conditions"]] == ["Ready"]


@virtual_time
async def test_an_import_is_made_changed_and_deleted() -> None:
    async with running() as world:
        world.table.apply([(KEY, NEW)])
        await asyncio.sleep(1)
        stored = world.cluster.store.get("ServiceImport", ("shop", "cart"))
        assert stored is not None
        changed = msgspec.structs.replace(SPEC, addresses=())
        world.table.apply([(KEY, ImportedService((), (), changed, exists=True))])
        await asyncio.sleep(5)
        after = world.cluster.store.get("ServiceImport", ("shop", "cart"))
        assert after is not None
        assert "ips" not in after.document["spec"]
        assert "labels" not in after.document["metadata"]
        world.table.apply([(KEY, Removal(stored.document["metadata"]["uid"]))])
        await asyncio.sleep(5)
        assert world.cluster.store.get("ServiceImport", ("shop", "cart")) is None
        assert world.outcomes() == {"done": 3}


@virtual_time
async def test_an_object_that_somebody_made_meanwhile_keeps_what_they_wrote() -> None:
    async with running() as world:
        document = m.service_import("shop/cart", "192.0.2.1")
        fields: Any = {"f:spec": {"f:ips": {}}}
        managed = [{"manager": "kubectl", "operation": "Apply", "fieldsV1": fields}]
        world.cluster.apply({**document, "metadata": {**document["metadata"], "managedFields": managed}})
        world.table.apply([(KEY, NEW)])
        await asyncio.sleep(1)
        world.table.apply([(KEY, None)])
        stored = world.cluster.store.get("ServiceImport", ("shop", "cart"))
        assert stored is not None
        assert stored.document["spec"]["ips"] == ["192.0.2.1"]
        assert world.outcomes() == {"conflict": 1}


@virtual_time
async def test_an_object_of_the_same_name_that_came_after_ours_is_not_deleted() -> None:
    async with running() as world:
        world.cluster.apply(m.service_import("shop/cart"))
        world.table.apply([(KEY, Removal("of-one-before"))])
        await asyncio.sleep(1)
        assert world.cluster.store.get("ServiceImport", ("shop", "cart")) is not None
        assert world.outcomes() == {"conflict": 1}


@virtual_time
async def test_a_namespace_that_is_being_deleted_holds_up_no_other_and_is_tried_again() -> None:
    async with running() as world:
        world.cluster.script(Refuse(403, "Forbidden", body=TERMINATING), verb="patch")
        other = (*KEY[:2], "pay", *KEY[3:])
        world.table.apply([(KEY, NEW)])
        await asyncio.sleep(0.1)
        world.table.apply([(other, NEW)])
        await asyncio.sleep(0.1)
        assert world.cluster.store.get("ServiceImport", ("pay", "cart")) is not None
        assert world.outcomes() == {"gone": 1, "done": 1}
        await asyncio.sleep(5)
        assert world.cluster.store.get("ServiceImport", ("shop", "cart")) is not None


# Root certificates.


ROOTS_KEY: WriteKey = ("home", "ConfigMap", "shop", "istio-ca-root-cert", "object")


def test_roots_are_applied_with_istios_label_and_nothing_else() -> None:
    asked = request(ROOTS_KEY, DistributedRoots("PEM"), "")
    assert asked.path == "/api/v1/namespaces/shop/configmaps/istio-ca-root-cert"
    assert msgspec.json.decode(asked.body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "istio-ca-root-cert",
            "namespace": "shop",
            "labels": {"istio.io/config": "true"},
        },
        "data": {"root-cert.pem": "PEM"},
    }


def test_roots_are_forced_upon_nobody_but_where_that_is_said() -> None:
    assert "force" not in request(ROOTS_KEY, DistributedRoots("PEM"), "").query
    assert request(ROOTS_KEY, DistributedRoots("PEM", force=True), "").query["force"] == "true"
