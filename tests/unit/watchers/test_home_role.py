from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from watchers.kubernetes.connection import of_home, registrations
from watchers.reader_role import READ

ROLE = Path(__file__).parents[3] / "deploy" / "charts" / "isthmus" / "role.yaml"
SYSTEM = "istio-system"


def granted(kind: str) -> set[tuple[str, str, str]]:
    """Group, resource and verb of all that the roles of a kind allow."""
    roles: list[dict[str, Any]] = [one for one in yaml.safe_load_all(ROLE.read_text()) if one["kind"] == kind]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_everything_that_is_read_of_home_is_in_its_roles_but_credentials_of_other_namespaces() -> None:
    everywhere, in_system = granted("ClusterRole"), granted("Role")
    for one in (*of_home(SYSTEM, roots=True), registrations(SYSTEM)):
        base, _, plural = one.resource.paths[0].replace(f"/namespaces/{SYSTEM}", "").rpartition("/")
        *_, group, _ = base.split("/")
        allowed = everywhere | (in_system if one.resource.namespace else set())
        wanted = {("" if group == "api" else group, plural, verb) for verb in READ}
        assert wanted <= allowed or one.fact == "TLSSecret", one.fact


def test_of_config_maps_outside_the_system_namespace_only_those_of_root_certificates_are_read_and_written() -> None:
    roles = [one for one in yaml.safe_load_all(ROLE.read_text()) if one["kind"] == "ClusterRole"]
    rules = [rule for role in roles for rule in role["rules"] if "configmaps" in rule["resources"]]
    assert [rule["resourceNames"] for rule in rules] == [["istio-ca-root-cert"]]


def test_credentials_are_read_in_the_system_namespace_alone() -> None:
    assert not any(resource == "secrets" for _, resource, _ in granted("ClusterRole"))


def test_what_is_written_is_statuses_imports_roots_registrations_the_authority_and_the_lease() -> None:
    written = {one for one in granted("ClusterRole") | granted("Role") if one[2] not in READ}
    assert written == {
        ("", "configmaps", "create"),
        ("", "configmaps", "patch"),
        ("", "secrets", "create"),
        ("", "secrets", "patch"),
        ("", "services/status", "patch"),
        # Creates nothing that stays: it is how an API server is asked.
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
        ("coordination.k8s.io", "leases", "create"),
        ("coordination.k8s.io", "leases", "update"),
        ("gateway.networking.k8s.io", "gatewayclasses/status", "patch"),
        ("gateway.networking.k8s.io", "gateways/status", "patch"),
        ("networking.istio.io", "serviceentries/status", "patch"),
        ("networking.istio.io", "workloadentries/status", "patch"),
        ("security.istio.io", "authorizationpolicies/status", "patch"),
        ("multicluster.x-k8s.io", "serviceexports/status", "patch"),
        ("multicluster.x-k8s.io", "serviceimports", "create"),
        ("multicluster.x-k8s.io", "serviceimports", "delete"),
        ("multicluster.x-k8s.io", "serviceimports", "patch"),
        ("multicluster.x-k8s.io", "serviceimports/status", "patch"),
        ("networking.k8s.io", "ingresses/status", "patch"),
    }
