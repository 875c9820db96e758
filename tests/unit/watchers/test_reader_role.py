from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from watchers.kubernetes.connection import of_remote
from watchers.reader_role import READ, RULES, Grant, granted, reader

CHART = Path(__file__).parents[3] / "deploy" / "charts" / "isthmus-reader"


def in_file(path: Path) -> list[object]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def test_what_the_command_applies_is_what_the_manifests_say() -> None:
    assert in_file(CHART / "reader.yaml") == list(reader("istio-system"))


@pytest.mark.parametrize("grant", Grant)
def test_what_a_grant_applies_is_what_its_manifests_say(grant: Grant) -> None:
    assert in_file(CHART / "grants" / f"{grant}.yaml") == list(granted(grant, "istio-system"))


def test_no_file_of_the_reader_is_unknown_to_the_command() -> None:
    assert {path.relative_to(CHART).as_posix() for path in CHART.rglob("*.yaml")} == {
        "reader.yaml",
        *(f"grants/{grant}.yaml" for grant in Grant),
    }


def test_a_reader_has_seven_rules_which_only_read() -> None:
    assert len(RULES) == 7
    assert {rule.verbs for rule in RULES} == {READ}


def test_no_rule_of_any_grant_allows_secrets_or_everything() -> None:
    manifests = [*reader("istio-system"), *(one for grant in Grant for one in granted(grant, "istio-system"))]
    rules = [rule for manifest in manifests for rule in manifest.get("rules", ())]
    named = {word for rule in rules for words in rule.values() for word in words}
    assert not named & {"secrets", "*", "delete", "deletecollection", "update", "patch", "impersonate", "bind"}


def test_everything_that_is_read_of_a_remote_is_in_the_rules() -> None:
    allowed = {(rule.group, resource) for rule in RULES for resource in rule.resources}
    for one in of_remote("istio-system"):
        *_, group, _, plural = one.resource.paths[0].split("/")
        assert ("" if group == "api" else group, plural) in allowed


def test_a_reader_that_may_renew_its_token_may_make_one_for_no_other_account() -> None:
    role, binding = granted(Grant.TOKEN_RENEWAL, "mesh", "eyes")
    assert role["kind"] == "Role"
    assert role["metadata"]["namespace"] == "mesh"
    assert [rule["resourceNames"] for rule in role["rules"]] == [["eyes"]]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "eyes", "namespace": "mesh"}]


def test_names_and_namespaces_are_those_asked_for_everywhere() -> None:
    account, role, binding = reader("mesh", "eyes")
    assert (account["metadata"]["namespace"], account["metadata"]["name"]) == ("mesh", "eyes")
    assert role["metadata"]["name"] == binding["roleRef"]["name"] == "eyes"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "eyes", "namespace": "mesh"}]


def test_entries_of_remotes_are_read_only_if_asked_for_and_then_by_a_grant() -> None:
    usual, more = of_remote("istio-system"), of_remote("istio-system", entries=True)
    added = [one for one in more if one not in usual]
    assert [(one.fact, one.required) for one in added] == [("ServiceEntry", False), ("WorkloadEntry", False)]
    (role, _) = granted(Grant.ISTIO_CONFIG, "istio-system")
    assert role["rules"][0]["resources"] == ["serviceentries", "workloadentries"]
