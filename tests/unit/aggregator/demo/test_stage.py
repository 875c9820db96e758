from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from cryptography import x509

from aggregator.demo import changes
from aggregator.demo.stage import Stage, StageError
from watchers.facts.kinds import decode
from xds.server.authentication import TokenFile
from xds.server.certificate_files import load_authority

EXAMPLES = Path(__file__).parents[4] / "deploy" / "examples" / "two-clusters"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path, west=71, east=72)
    stage.set(EXAMPLES)
    return stage


def test_the_manifests_are_moved_to_the_addresses_of_the_stage(stage: Stage) -> None:
    text = "".join(file.read_text() for site in stage.sites for file in site.manifests.glob("*.yaml"))
    assert "127.71.0.20" in text and "127.72.0.10" in text
    assert "127.1." not in text and "127.2." not in text


def test_every_object_of_it_is_one_that_isthmus_reads(stage: Stage) -> None:
    for site in stage.sites:
        for document in stage.documents(site):
            assert decode(document, site.name, "istio-system") is not None, document


def test_gateways_know_their_control_plane_and_have_a_token_that_it_knows(stage: Stage) -> None:
    (ingress,) = stage.gateways(stage.west)
    assert ingress.node_id == "router~127.71.0.20~ingress-1.istio-system~istio-system.svc.cluster.local"
    assert str(ingress.xds) == "127.71.0.1:15012"
    tokens = json.loads(stage.credentials.identities.read_text())
    assert tokens[Path(ingress.token).read_text()] == {
        "identity": "spiffe://cluster.local/ns/istio-system/sa/ingress",
        "pod": "ingress-1",
    }
    TokenFile(stage.credentials.identities)


def test_destinations_serve_the_services_that_select_them_and_show_their_own_account(stage: Stage) -> None:
    pods = {pod.name: pod for pod in stage.destinations(stage.east)}
    assert set(pods) == {"orders-1", "orders-2", "catalog-1", "catalog-2", "catalog-3"}
    catalog = pods["catalog-1"]
    assert (catalog.address, catalog.app) == ("127.72.1.11", 8080)
    assert catalog.authorities == ("catalog.shop.svc.cluster.local:80",)
    certificate = x509.load_pem_x509_certificate(catalog.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://cluster.local/ns/shop/sa/catalog"]


def test_both_control_planes_can_sign_with_the_shared_root(stage: Stage) -> None:
    assert load_authority(stage.credentials.cacerts).root_certificates == stage.credentials.root.read_text()


def test_whatever_is_secret_is_readable_by_its_owner_alone(stage: Stage) -> None:
    stage.destinations(stage.east)
    files = [*stage.directory.rglob("*.key"), *stage.directory.rglob("*.token"), *stage.directory.rglob("secret-*")]
    for file in [*files, stage.credentials.cacerts / "ca-key.pem", stage.credentials.identities]:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert len(files) == 5 + 2 + 1


def test_examples_that_are_not_there_are_told_with_the_option_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"nowhere/west has no manifests; .*--examples"):
        Stage(tmp_path).set(tmp_path / "nowhere")


def test_a_pod_is_made_unready_and_ready_again_without_touching_anything_else(stage: Stage) -> None:
    file = stage.east.manifests / "catalog.yaml"
    before = file.read_text()
    changes.set_ready(stage.east, "catalog-2", ready=False)
    pods = {pod["metadata"]["name"]: pod["status"]["conditions"][0]["status"] for pod in stage.pods(stage.east)}
    assert pods["catalog-2"] == "False"
    assert [name for name, status in pods.items() if status == "False"] == ["catalog-2"]
    changes.set_ready(stage.east, "catalog-2", ready=True)
    assert file.read_text() == before


def test_a_pod_that_was_edited_away_cannot_be_made_unready(stage: Stage) -> None:
    with pytest.raises(StageError, match="has no pod catalog-9"):
        changes.set_ready(stage.east, "catalog-9", ready=False)


def test_a_second_gateway_has_no_address_before_it_is_announced(stage: Stage) -> None:
    def addresses() -> list[object]:
        (gateway,) = (
            one
            for one in stage.documents(stage.east)
            if one["metadata"]["name"] == "east-west-2" and one["kind"] == "Gateway"
        )
        found: list[object] = gateway["status"]["addresses"]
        return found

    proxy = changes.add_gateway(stage)
    assert (proxy.role, proxy.bind, proxy.service_account) == ("east-west", "127.72.0.11", "east-west-2")
    assert Path(proxy.token).exists()
    assert addresses() == []
    changes.announce_gateway(stage)
    assert addresses() == [{"type": "IPAddress", "value": "127.72.0.11"}]


def test_a_new_host_comes_with_a_certificate_and_a_way_to_its_service(stage: Stage) -> None:
    changes.add_host(stage, "new.example", "catalog")
    objects = {(one["kind"], one["metadata"]["name"]): one for one in stage.documents(stage.west)}
    ingress = objects["Ingress", "new"]
    assert ingress["spec"]["tls"] == [{"hosts": ["new.example"], "secretName": "new-example"}]
    assert ("Secret", "new-example") in objects
