"""The mesh configuration: one ConfigMap of one namespace, and the text in it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit import manifests
from tests.unit.watchers.recorded import recorded
from watchers.facts import kinds
from watchers.facts.invalid import InvalidObject
from watchers.facts.mesh_config import EntryVisibility, LabelSelector, MeshConfig, Requirement, ServiceScope


def fact(document: Any) -> Any:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    return keyed[1]


def refused(text: str) -> InvalidObject:
    with pytest.raises(InvalidObject) as caught:
        fact({**manifests.mesh_config_map(), "data": {"mesh": text}})
    return caught.value


def test_a_recorded_mesh_config() -> None:
    assert kinds.decode(recorded("mesh_config_map"), "west", "istio-system") == (
        ("west", "MeshConfig", "istio-system", "istio"),
        MeshConfig(
            trust_domain="mesh.example",
            root_namespace="istio-config",
            scopes=(
                ServiceScope(None, LabelSelector((), (Requirement("istio.io/global", "In", ("true",)),)), "GLOBAL"),
                ServiceScope(LabelSelector((("team", "pay"),), ()), None, "LOCAL"),
            ),
            access_log_file="/dev/stdout",
        ),
    )


def test_other_config_maps_are_no_facts() -> None:
    elsewhere = manifests.mesh_config_map(system_namespace="shop")
    other = {**manifests.mesh_config_map(), "metadata": {"name": "other", "namespace": "istio-system"}}
    assert kinds.decode(elsewhere, "west", "istio-system") is None
    assert kinds.decode(other, "west", "istio-system") is None


def test_the_system_namespace_may_be_another() -> None:
    elsewhere = manifests.mesh_config_map(system_namespace="mesh")
    assert kinds.decode(elsewhere, "west", "mesh") is not None


def test_a_broken_text_in_another_config_map_does_no_harm() -> None:
    elsewhere = {**manifests.mesh_config_map(system_namespace="shop"), "data": {"mesh": "{"}}
    assert kinds.decode(elsewhere, "west", "istio-system") is None


def test_no_scopes_are_not_an_empty_list_of_scopes() -> None:
    assert fact(manifests.mesh_config_map()).scopes is None
    assert fact(manifests.mesh_config_map(scopes=[])).scopes == ()


@pytest.mark.parametrize("data", [None, {}, {"mesh": None}, {"mesh": ""}, {"mesh": "# nothing\n"}])
def test_an_empty_mesh_config_says_nothing(data: dict[str, str | None] | None) -> None:
    assert fact({**manifests.mesh_config_map(), "data": data}) == MeshConfig("", "", None)


def test_a_scope_is_local_unless_it_says_otherwise() -> None:
    assert fact(manifests.mesh_config_map(scopes=[{}])).scopes == (ServiceScope(None, None, "LOCAL"),)


@pytest.mark.parametrize("domain", ["a/b", "A", "spiffe://a", "a b"])
def test_what_is_no_trust_domain_is_refused(domain: str) -> None:
    error = refused(f"\ntrustDomain: {domain}\n")
    assert (error.path, error.line) == (("data", "mesh", "trustDomain"), 2)


def test_what_is_no_namespace_is_refused() -> None:
    assert refused("rootNamespace: a/b").path == ("data", "mesh", "rootNamespace")


def test_a_field_of_the_wrong_type_is_named_with_its_line_in_the_text() -> None:
    error = refused("trustDomain: a\nserviceScopeConfigs:\n- scope: GLOBAL\n- scope: EVERYWHERE\n")
    assert (error.path, error.line) == (("data", "mesh", "serviceScopeConfigs", 1, "scope"), 4)
    assert "EVERYWHERE" in error.cause


def test_a_selector_in_it_is_checked() -> None:
    error = refused("serviceScopeConfigs:\n- servicesSelector:\n    matchLabels:\n      a: true\n")
    assert error.path == ("data", "mesh", "serviceScopeConfigs", 0, "servicesSelector", "matchLabels", "a")
    assert (error.cure, error.line) == ('put it in quotes: "true"', 4)


def test_a_text_that_is_no_yaml_is_named_with_its_line_in_the_text() -> None:
    error = refused("trustDomain: a\n b: c\n")
    assert (error.path, error.line) == (("data", "mesh"), 2)


def test_a_text_that_is_no_mapping_is_refused() -> None:
    assert refused("- a\n").path == ("data", "mesh")


def test_an_alias_bomb_in_the_text_is_refused() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "values" in refused("\n".join(lines)).cause


def test_what_is_no_whole_path_is_no_access_log() -> None:
    assert refused("accessLogFile: logs/access").path == ("data", "mesh", "accessLogFile")


def test_who_may_see_entries() -> None:
    told = fact(
        manifests.mesh_config_map(
            serviceEntryVisibility={
                "defaultVisibility": "NAMESPACE",
                "policies": [
                    {
                        "visibility": "NONE",
                        "matchingRules": [{"namespaceSelector": {"matchLabels": {"team": "pay"}}}, {}],
                    },
                    {},
                ],
            }
        )
    )
    assert told.entry_visibility == EntryVisibility(
        "NAMESPACE", (("NONE", (LabelSelector((("team", "pay"),), ()), None)), ("PUBLIC", ()))
    )
    assert fact(manifests.mesh_config_map(serviceEntryVisibility={})).entry_visibility == EntryVisibility("PUBLIC", ())
    assert fact(manifests.mesh_config_map()).entry_visibility is None


def test_a_visibility_that_does_not_exist_is_refused() -> None:
    error = refused("\nserviceEntryVisibility:\n  defaultVisibility: SOME\n")
    assert error.path == ("data", "mesh", "serviceEntryVisibility", "defaultVisibility")
