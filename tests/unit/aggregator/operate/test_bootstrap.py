from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from aggregator.operate.bootstrap import GatewayProxy, Role, SocketAddress, bootstrap
from xds.server.proxies import claims_of
from xds.session.requests import Node

PROXY = GatewayProxy(
    role="ingress",
    xds=SocketAddress("isthmus.istio-system.svc", 15012),
    root_certificates="/etc/isthmus/root-cert.pem",
    token="/var/run/secrets/tokens/istio-token",
    pod="front.door-1",
    namespace="edge",
    service_account="front-door",
    cluster="west",
    network="net-west",
    address="10.0.0.5",
    bind="0.0.0.0",
    http_port=8080,
    https_port=8443,
    admin=SocketAddress("127.0.0.1", 15000),
    status=SocketAddress("0.0.0.0", 15021),
)


def with_role(role: Role) -> GatewayProxy:
    return msgspec.structs.replace(PROXY, role=role)


@pytest.mark.parametrize(("role", "kind"), [("ingress", "router"), ("east-west", "waypoint")])
def test_the_server_reads_of_its_node_what_the_proxy_is(role: Role, kind: str) -> None:
    node = bootstrap(with_role(role))["node"]
    claims = claims_of(Node(id=node["id"], cluster=node["cluster"], metadata=node["metadata"]))
    assert claims.kind == kind
    assert (claims.pod, claims.namespace, claims.service_account) == ("front.door-1", "edge", "front-door")
    assert claims.cluster == "west"


def test_metadata_are_texts_and_none_is_empty() -> None:
    metadata = bootstrap(msgspec.structs.replace(PROXY, service_account="", network=""))["node"]["metadata"]
    assert all(isinstance(value, str) and value for value in metadata.values())
    assert "NETWORK" not in metadata


def test_only_an_ingress_gateway_claims_ports_for_http() -> None:
    assert bootstrap(PROXY)["node"]["metadata"]["ISTHMUS_HTTPS_PORT"] == "8443"
    assert "ISTHMUS_HTTPS_PORT" not in bootstrap(with_role("east-west"))["node"]["metadata"]


def test_the_document_names_the_token_by_its_file_alone() -> None:
    service = bootstrap(PROXY)["dynamic_resources"]["ads_config"]["grpc_services"][0]["google_grpc"]
    plugin = service["call_credentials"][0]["from_plugin"]
    assert plugin["typed_config"]["secret_data"] == {"filename": "/var/run/secrets/tokens/istio-token"}
    assert plugin["name"] == service["credentials_factory_name"]


def test_nothing_is_ready_before_the_control_plane_has_answered() -> None:
    resources = bootstrap(PROXY)["dynamic_resources"]
    for source in ("lds_config", "cds_config"):
        assert resources[source]["initial_fetch_timeout"] == "0s"


def test_the_port_for_probes_shows_two_paths_of_the_admin_interface_and_no_other() -> None:
    (listener,) = bootstrap(PROXY)["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    (virtual_host,) = manager["route_config"]["virtual_hosts"]
    paths = {route["match"]["path"]: route["route"]["prefix_rewrite"] for route in virtual_host["routes"]}
    assert paths == {"/healthz/ready": "/ready", "/stats/prometheus": "/stats/prometheus"}


def test_it_is_plain_json() -> None:
    document: dict[str, Any] = bootstrap(PROXY)
    assert json.loads(json.dumps(document)) == document
