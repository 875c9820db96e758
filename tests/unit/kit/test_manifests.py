"""The builders of manifests: what they leave to defaults, and that files appear whole."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.kit import manifests
from tests.kit.manifests import manifest_text, write_manifests


def test_names_may_have_a_namespace() -> None:
    assert manifests.pod("shop/a")["metadata"]["namespace"] == "shop"
    assert manifests.pod("a")["metadata"]["namespace"] == "default"
    assert "namespace" not in manifests.node("a")["metadata"]


def test_a_pod_of_a_deployment_looks_like_one() -> None:
    metadata = manifests.pod("shop/a-1", deployment="a")["metadata"]
    assert metadata["generateName"] == "a-5d8f7c9b6-"
    assert metadata["ownerReferences"][0]["name"] == "a-5d8f7c9b6"
    assert metadata["labels"] == {"pod-template-hash": "5d8f7c9b6"}


def test_the_first_of_several_addresses_is_the_pods_own() -> None:
    status = manifests.pod("a", ["10.0.0.1", "fd00::1"])["status"]
    assert (status["podIP"], status["podIPs"]) == ("10.0.0.1", [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}])


def test_a_pod_without_an_address_has_none() -> None:
    assert set(manifests.pod("a")["status"]) == {"phase", "conditions"}


def test_own_fields_overlay_those_of_the_builder() -> None:
    pod = manifests.pod(
        "a", account="x", metadata={"uid": "7"}, spec={"serviceAccountName": "y"}, status={"phase": "Z"}
    )
    assert (pod["metadata"]["uid"], pod["spec"]["serviceAccountName"], pod["status"]["phase"]) == ("7", "y", "Z")


def test_the_three_ways_to_write_a_port() -> None:
    service = manifests.service("a", ports={"a": 1, "b": (2, "x"), "c": {"port": 3, "protocol": "UDP"}})
    assert service["spec"]["ports"] == [
        {"name": "a", "protocol": "TCP", "port": 1, "targetPort": 1},
        {"name": "b", "protocol": "TCP", "port": 2, "targetPort": "x"},
        {"name": "c", "protocol": "UDP", "port": 3},
    ]


def test_no_cluster_ip_is_not_a_headless_service() -> None:
    assert "clusterIP" not in manifests.service("a")["spec"]
    assert manifests.service("a", None)["spec"]["clusterIP"] == "None"


def test_the_mesh_configuration_is_text_in_a_config_map() -> None:
    document = manifests.mesh_config_map(trust_domain="a", scopes=[], accessLogFile="/dev/stdout")
    assert yaml.safe_load(document["data"]["mesh"]) == {
        "accessLogFile": "/dev/stdout",
        "trustDomain": "a",
        "serviceScopeConfigs": [],
    }


def test_yaml_has_no_aliases_even_where_objects_share_parts() -> None:
    labels = {"a": "b"}
    text = manifest_text(manifests.pod("a", labels=labels, metadata={"labels": labels, "annotations": labels}))
    assert "&" not in text
    assert "*" not in text


def test_json_is_one_object_or_a_list_of_several() -> None:
    assert json.loads(manifest_text(manifests.node("a"), form="json"))["kind"] == "Node"
    assert json.loads(manifest_text(manifests.node("a"), manifests.node("b"), form="json"))["kind"] == "List"


def test_files_are_replaced_in_one_step_and_leave_no_draft(tmp_path: Path) -> None:
    first = write_manifests(tmp_path / "west", manifests.node("a"), file="nodes.yaml")
    inode = first.stat().st_ino
    second = write_manifests(tmp_path / "west", manifests.node("b"), file="nodes.yaml")
    assert first == second == tmp_path / "west/nodes.yaml"
    assert second.stat().st_ino != inode
    assert [path.name for path in (tmp_path / "west").iterdir()] == ["nodes.yaml"]
    assert yaml.safe_load(second.read_text())["metadata"]["name"] == "b"
