"""A real Envoy whose own listener asks for credentials by name: visitors see the newest of them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from aggregator.demo import client
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.eventually import eventually_awaited
from tests.kit.ingress_gateway import GATEWAY, IngressGateway
from tests.kit.ports import free_port

HOST = "a.example"
SERVERS, VISITORS, STRANGERS = c.Issuer("servers"), c.Issuer("visitors"), c.Issuer("strangers")
_TYPE = "type.googleapis.com/envoy.extensions."


def listener(port: int) -> dict[str, Any]:
    """A listener that takes visitors with a certificate only, and answers all of them alike."""

    def secret(name: str) -> dict[str, Any]:
        return {"name": name, "sds_config": {"ads": {}, "resource_api_version": "V3"}}

    tls = {
        "@type": f"{_TYPE}transport_sockets.tls.v3.DownstreamTlsContext",
        "require_client_certificate": True,
        "common_tls_context": {
            "tls_certificate_sds_secret_configs": [secret("kubernetes://tls")],
            "validation_context_sds_secret_config": secret("kubernetes://tls-cacert"),
        },
    }
    manager = {
        "@type": f"{_TYPE}filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "own",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "own",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 204}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPE}filters.http.router.v3.Router"},
            }
        ],
    }
    return {
        "name": "own",
        "address": {"socket_address": {"address": GATEWAY, "port_value": port}},
        "filter_chains": [
            {
                "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
                "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}],
            }
        ],
    }


def tls(*, roots: c.Issuer = VISITORS) -> m.Manifest:
    chain, key = c.host_pair(HOST, issuer=SERVERS)
    ca = c.pem(roots.certificate)
    return m.secret("istio-system/tls", kind="kubernetes.io/tls", tls_crt=chain, tls_key=key, ca_crt=ca)


async def test_a_listener_is_given_its_pair_and_the_roots_of_its_visitors_by_name(tmp_path: Path, binary: Path) -> None:
    port = free_port(GATEWAY)

    def visitor(issuer: c.Issuer) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=c.pem(SERVERS.certificate).decode())
        chain, key = c.host_pair("visitor.example", issuer=issuer)
        (tmp_path / "visitor.pem").write_bytes(chain + key)
        context.load_cert_chain(tmp_path / "visitor.pem")
        # With TLS 1.3 a visitor learns of a refusal only after its request.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    async def serial(context: ssl.SSLContext) -> str:
        """That of the certificate shown; "" where there is no answer."""
        try:
            answer = await client.get(HOST, "/", at=(GATEWAY, port), trust=context, timeout=5.0)
        except client.Unanswered:
            return ""
        assert answer.status == 204
        return answer.serial

    friend, stranger = visitor(VISITORS), visitor(STRANGERS)
    async with IngressGateway(tmp_path, binary, tls(), listeners=[listener(port)]) as gateway:
        first = await serial(friend)
        assert first
        assert await serial(stranger) == ""

        async def renewed() -> bool:
            return await serial(friend) not in ("", first)

        gateway.apply(tls())
        await eventually_awaited(renewed, 10.0)

        async def let_in() -> bool:
            return await serial(stranger) != ""

        gateway.apply(tls(roots=STRANGERS))
        await eventually_awaited(let_in, 10.0)
        assert await serial(friend) == ""
        assert gateway.refused() == []
