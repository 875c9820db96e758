"""ServiceExports of home that are told how they do, and the ServiceImports that home is given (KEP-1645)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.kit import manifests as m
from tests.unit.aggregator.writes.told import ToldWorld
from watchers.facts.cluster import Answered
from watchers.owned_objects import Removal
from watchers.writes import WriteKey

APP = {"app": "cart"}
EXPORT, IMPORT = "ServiceExport", "ServiceImport"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
GOOD = {"Valid": "True Valid", "Ready": "True Ready", "Conflict": "False NoConflicts"}


class Clusters(ToldWorld):
    """Home alpha, which serves ServiceImports, and beta; both may have a Service `cart` in `shop`."""

    def __init__(self, *, served: bool = True, **settings: Any) -> None:
        super().__init__(**settings)
        read = (IMPORT,) if served else ()
        self.world.facts.apply([(("alpha", "Answered", "", "alpha"), Answered(("MeshConfig",), read))])
        self.apply(m.namespace("shop"))
        self.beta(m.namespace("shop"))

    def beta(self, *documents: m.Manifest) -> None:
        self.world.apply("beta", *documents)

    def export(self, cluster: str, created: str = OLD, **service: Any) -> None:
        """Exports the service from a cluster."""
        apply = self.apply if cluster == "alpha" else self.beta
        own = {"vip": "10.0.0.1", "selector": APP, **service}
        apply(m.service("shop/cart", own.pop("vip"), **own), m.service_export("shop/cart", created=created))

    def settle(self) -> list[WriteKey]:
        """What was written of exports and imports."""
        return [key for key in super().settle() if key[1] in (EXPORT, IMPORT)]

    def apply_as_it_is(self, document: m.Manifest) -> None:
        """With its owners, as another process left it."""
        self.store.apply(document)
        self.world.apply("alpha", document)

    def imported(self, name: str = "shop/cart") -> Any:
        namespace, _, own = name.rpartition("/")
        stored = self.store.get(IMPORT, (namespace, own))
        return stored.document if stored else None


# Exports.


def test_an_export_that_is_valid_is_told_so() -> None:
    told = Clusters()
    told.export("alpha")
    told.settle()
    assert told.conditions(EXPORT, "shop/cart") == GOOD


def test_an_export_without_service_is_not_valid_and_becomes_so_with_it() -> None:
    told = Clusters()
    told.apply(m.service_export("shop/cart"))
    told.settle()
    assert told.conditions(EXPORT, "shop/cart") == {**GOOD, "Valid": "False NoService", "Ready": "False Pending"}
    told.apply(m.service("shop/cart", "10.0.0.1"))
    told.settle()
    assert told.conditions(EXPORT, "shop/cart") == GOOD


def test_an_external_name_cannot_be_exported() -> None:
    told = Clusters()
    told.export("alpha", spec={"type": "ExternalName", "externalName": "cart.example"})
    told.settle()
    conditions = {**GOOD, "Valid": "False InvalidServiceType", "Ready": "False Failed"}
    assert told.conditions(EXPORT, "shop/cart") == conditions
    assert told.imported() is None


CONFLICTS: list[tuple[str, Any]] = [
    ("PortConflict", {"ports": {"http": 81}}),
    ("TypeConflict", {"vip": None}),
    ("SessionAffinityConflict", {"spec": {"sessionAffinity": "ClientIP"}}),
    ("InternalTrafficPolicyConflict", {"spec": {"internalTrafficPolicy": "Local"}}),
    ("TrafficDistributionConflict", {"spec": {"trafficDistribution": "PreferClose"}}),
    ("PortConflict,TypeConflict", {"ports": {"http": 81}, "vip": None}),
]


@pytest.mark.parametrize(("reason", "service"), CONFLICTS)
@pytest.mark.parametrize("home_is_older", [True, False])
def test_a_conflict_stands_on_homes_export_whoever_decides(reason: str, service: Any, *, home_is_older: bool) -> None:
    told = Clusters()
    told.export("alpha", OLD if home_is_older else NEW)
    told.export("beta", NEW if home_is_older else OLD, **service)
    told.settle()
    assert told.conditions(EXPORT, "shop/cart") == {**GOOD, "Conflict": f"True {reason}"}
    (conflict,) = [one for one in told.status(EXPORT, "shop/cart")["conditions"] if one["type"] == "Conflict"]
    assert ("alpha" if home_is_older else "beta") + " is used, whose export is the oldest" in conflict["message"]


def test_a_conflict_goes_with_its_cause() -> None:
    told = Clusters()
    told.export("alpha")
    told.export("beta", NEW, ports={"http": 81})
    told.settle()
    told.world.delete("beta", m.service_export("shop/cart"))
    told.settle()
    assert told.conditions(EXPORT, "shop/cart") == GOOD


def test_a_conflict_is_not_denied_by_who_has_not_read_all_clusters() -> None:
    told = Clusters()
    told.export("alpha")
    told.export("beta", NEW, ports={"http": 81})
    told.settle()
    told.world.leave("beta")
    told.world.cluster("beta", "connecting", deadline=0.0)
    assert told.settle() == []
    assert told.conditions(EXPORT, "shop/cart")["Conflict"] == "True PortConflict"


def test_exports_of_remotes_are_told_by_their_own_control_planes() -> None:
    told = Clusters()
    told.export("beta")
    assert [key[:2] for key in told.settle()] == [("alpha", IMPORT), ("alpha", IMPORT)]


def test_an_export_that_another_controller_tells_is_left_to_it() -> None:
    told = Clusters()
    told.export("alpha")
    valid = {"type": "Valid", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 1}
    told.apply({**m.service_export("shop/cart"), "status": {"conditions": [valid]}})
    told.settle()
    assert told.status(EXPORT, "shop/cart") == {"conditions": [valid]}


def test_where_it_is_switched_off_what_was_written_is_taken_back() -> None:
    told = Clusters()
    told.export("alpha")
    told.settle()
    off = Clusters(multicluster_services=False)
    off.export("alpha")
    assert off.settle() == []
    for kind in (EXPORT, IMPORT):
        stored = told.store.get(kind, ("shop", "cart"))
        assert stored is not None
        off.apply_as_it_is(stored.document)
    off.settle()
    assert off.imported() is None
    assert off.status(EXPORT, "shop/cart") == {}


# Imports.


def test_an_exported_service_is_imported_with_its_properties() -> None:
    told = Clusters()
    spec = {
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}},
        "internalTrafficPolicy": "Cluster",
        "trafficDistribution": "PreferClose",
        "ipFamilies": ["IPv4"],
    }
    ports = {"http": 80, "dns": {"port": 53, "protocol": "UDP", "appProtocol": "dns"}}
    told.export("beta", spec=spec, ports=ports)
    told.settle()
    found = told.imported()
    (address,) = found["spec"].pop("ips")
    assert address.startswith("240.240.")
    assert found["spec"] == {
        "type": "ClusterSetIP",
        "ports": [
            {"name": "http", "port": 80, "protocol": "TCP"},
            {"name": "dns", "port": 53, "protocol": "UDP", "appProtocol": "dns"},
        ],
        **spec,
    }
    assert found["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "isthmus"}
    assert found["status"]["clusters"] == [{"cluster": "beta"}]
    assert told.conditions(IMPORT, "shop/cart") == {"Ready": "True Ready"}


def test_its_address_is_the_one_that_proxies_are_told() -> None:
    told = Clusters()
    told.export("beta", spec={"ipFamilies": ["IPv4"]})
    told.settle()
    (address,) = told.world.address("shop/cart.shop.svc.clusterset.local")["addresses"]
    assert told.imported()["spec"]["ips"] == [address["address"]]


def test_there_is_one_address_for_each_family_in_their_order() -> None:
    told = Clusters()
    told.export("alpha", spec={"ipFamilies": ["IPv6", "IPv4"]})
    told.settle()
    spec = told.imported()["spec"]
    assert spec["ipFamilies"] == ["IPv6", "IPv4"]
    assert [":" in one for one in spec["ips"]] == [True, False]


def test_a_headless_service_is_imported_without_address() -> None:
    told = Clusters()
    told.export("beta", vip=None)
    told.settle()
    assert told.imported()["spec"]["type"] == "Headless"
    assert "ips" not in told.imported()["spec"]


def test_an_import_names_all_clusters_that_export_and_has_the_union_of_their_ports() -> None:
    told = Clusters()
    told.export("alpha", ports={"http": 80})
    told.export("beta", NEW, ports={"http": 80, "grpc": 90})
    told.settle()
    assert told.status(IMPORT, "shop/cart")["clusters"] == [{"cluster": "alpha"}, {"cluster": "beta"}]
    assert [one["name"] for one in told.imported()["spec"]["ports"]] == ["http", "grpc"]


def test_labels_and_annotations_are_those_the_oldest_export_exports() -> None:
    told = Clusters()
    told.export("alpha", NEW)
    told.export("beta")
    told.apply(m.service_export("shop/cart", labels={"tier": "back"}, created=NEW))
    told.beta(m.service_export("shop/cart", labels={"tier": "front"}, annotations={"note": "a b"}, created=OLD))
    told.settle()
    metadata = told.imported()["metadata"]
    assert metadata["labels"] == {"app.kubernetes.io/managed-by": "isthmus", "tier": "front"}
    assert metadata["annotations"] == {"note": "a b"}
    told.beta(m.service_export("shop/cart", created=OLD))
    told.settle()
    assert told.imported()["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "isthmus"}
    assert "annotations" not in told.imported()["metadata"]


def test_an_import_goes_when_nobody_exports_the_service_any_more_and_not_before() -> None:
    told = Clusters()
    told.export("alpha")
    told.export("beta", NEW)
    told.settle()
    told.remove(EXPORT, "shop/cart")
    told.settle()
    assert told.status(IMPORT, "shop/cart")["clusters"] == [{"cluster": "beta"}]
    told.world.delete("beta", m.service_export("shop/cart"))
    told.settle()
    assert told.imported() is None


def test_the_address_stays_when_another_cluster_becomes_the_oldest() -> None:
    told = Clusters()
    told.export("alpha", NEW)
    told.settle()
    before = told.imported()["spec"]["ips"]
    told.export("beta", OLD)
    told.settle()
    assert told.imported()["spec"]["ips"] == before


def test_what_was_written_is_not_written_again() -> None:
    told = Clusters()
    told.export("alpha")
    assert told.settle()
    assert told.settle() == []


def test_what_somebody_changes_in_an_import_of_ours_is_set_right() -> None:
    told = Clusters()
    told.export("alpha")
    told.settle()
    right = told.imported()["spec"]
    told.apply({**told.imported(), "spec": {**right, "ports": [{"port": 9}]}})
    told.settle()
    assert told.imported()["spec"] == right


def test_an_import_that_somebody_deletes_is_made_again_with_its_address() -> None:
    told = Clusters()
    told.export("alpha")
    told.settle()
    before = told.imported()["spec"]
    told.remove(IMPORT, "shop/cart")
    told.settle()
    assert told.imported()["spec"] == before


def test_nothing_of_an_export_is_written_where_its_namespace_is_not_selected() -> None:
    told = Clusters()
    told.export("alpha")
    told.settle()
    told.apply(m.mesh_config_map(discoverySelectors=[{"matchLabels": {"mesh": "on"}}]))
    told.settle()
    assert told.imported() is None
    assert told.status(EXPORT, "shop/cart") == {}


def test_an_import_that_somebody_else_made_is_left_alone() -> None:
    told = Clusters()
    told.apply(m.service_import("shop/cart", "192.0.2.50"))
    before = told.imported()
    told.export("beta")
    assert told.settle() == []
    assert told.imported() == before
    told.world.delete("beta", m.service_export("shop/cart"))
    assert told.settle() == []


def test_where_the_kind_is_not_served_nothing_is_imported() -> None:
    told = Clusters(served=False)
    told.export("beta")
    assert told.settle() == []


def test_nothing_is_imported_into_a_namespace_that_home_does_not_have() -> None:
    told = Clusters()
    told.beta(m.namespace("far"), m.service("far/cart", "10.0.0.1"), m.service_export("far/cart"))
    assert told.settle() == []
    told.apply(m.namespace("far"))
    told.settle()
    assert told.imported("far/cart")


def test_a_cluster_that_has_not_been_read_yet_takes_nothing_from_its_imports() -> None:
    told = Clusters()
    told.export("alpha")
    told.export("beta", NEW, ports={"http": (80, 8080), "grpc": 90})
    told.settle()
    told.world.leave("beta")
    told.world.cluster("beta", "connecting", deadline=0.0)
    told.remove(EXPORT, "shop/cart")
    assert told.settle() == []
    assert told.imported() is not None
    told.world.leave("beta")
    told.settle()
    assert told.imported() is None


def test_a_cluster_that_cannot_be_reached_does_not_hold_up_imports_that_are_not_its_own() -> None:
    told = Clusters()
    told.world.cluster("gamma", "connecting", deadline=0.0)
    told.export("alpha")
    told.settle()
    assert told.imported() is not None
    told.remove(EXPORT, "shop/cart")
    told.settle()
    assert told.imported() is None


def test_nothing_is_written_before_every_cluster_has_answered_or_passed_its_limit() -> None:
    told = Clusters()
    told.world.cluster("gamma", "connecting", deadline=told.world.now + 10)
    told.export("alpha")
    assert told.settle() == []
    told.world.wait(11)
    assert told.settle()


def test_a_deletion_is_of_the_very_object() -> None:
    told = Clusters()
    told.export("alpha")
    told.settle()
    uid = told.imported()["metadata"]["uid"]
    told.remove(EXPORT, "shop/cart")
    writes = {key: write for key, write in told.writes().items() if key[1] == IMPORT}
    assert writes == {("alpha", IMPORT, "shop", "cart", "object"): Removal(uid)}


def test_records_of_writes_can_be_kept_and_read_again() -> None:
    told = Clusters()
    told.export("alpha")
    for write in told.writes().values():
        assert msgspec.convert(msgspec.to_builtins(write), type(write)) == write
