"""A stand-in for the ztunnel of a destination: an Envoy that ends the inner tunnel at the address of a pod.

In: pods with their certificates. Out: the configuration of one Envoy for all of them. As a ztunnel does, it listens on
port 15008 of every pod's address, shows the pod's own certificate, wants one of the mesh from its client, serves
CONNECT for the pod's own address and services alone, and hands the bytes to the application. It knows no policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from aggregator.operate.bootstrap import SocketAddress

HBONE_PORT: Final = 15008
_TYPE: Final = "type.googleapis.com/"
_TLS: Final = _TYPE + "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
_MANAGER: Final = _TYPE + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER: Final = _TYPE + "envoy.extensions.filters.http.router.v3.Router"
_FILE_LOG: Final = _TYPE + "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"

LOGGED: Final = {
    "pod": "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%",
    "authority": "%REQ(:AUTHORITY)%",
    "network": "%REQ(X-FORWARDED-NETWORK)%",
    "source": "%REQ(X-ISTIO-SOURCE)%",
    "peer": "%DOWNSTREAM_PEER_URI_SAN%",
    "from": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
    "serial": "%DOWNSTREAM_PEER_SERIAL%",
    "code": "%RESPONSE_CODE%",
    "start": "%START_TIME(%s.%6f)%",
    "event": "%ACCESS_LOG_TYPE%",
}
"""The fields of the access log. `event` tells the line of an opened tunnel from that of one that has ended."""


class Pod(msgspec.Struct, frozen=True):
    """One pod. `certificate`, `key` and `root` are PEM files; `authorities` the `host:port` forms of CONNECT it serves
    beside those of its own address; `app` is the port of its application, on the pod's address.
    """

    name: str
    address: str
    certificate: Path
    key: Path
    root: Path
    authorities: tuple[str, ...]
    app: int


def destination(pods: Sequence[Pod], trust_domain: str, admin: SocketAddress) -> dict[str, Any]:
    """The configuration of the Envoy that stands for the ztunnels of these pods."""
    return {
        "admin": {"address": _socket(admin.host, admin.port)},
        "static_resources": {
            "listeners": [_listener(pod, trust_domain) for pod in pods],
            "clusters": [_application(pod) for pod in pods],
        },
    }


def _listener(pod: Pod, trust_domain: str) -> dict[str, Any]:
    connect = {
        "match": {"connect_matcher": {}},
        "route": {
            "cluster": pod.name,
            "timeout": "0s",
            "upgrade_configs": [{"upgrade_type": "CONNECT", "connect_config": {}}],
        },
    }
    domains = [*pod.authorities, f"{pod.address}:{pod.app}"]
    log = {
        "name": "access",
        "typed_config": {"@type": _FILE_LOG, "log_format": {"json_format": LOGGED}},
    }
    manager = {
        "@type": _MANAGER,
        "stat_prefix": pod.name,
        "http2_protocol_options": {"allow_connect": True},
        "upgrade_configs": [{"upgrade_type": "CONNECT"}],
        "stream_idle_timeout": "0s",
        "route_config": {"virtual_hosts": [{"name": "pod", "domains": domains, "routes": [connect]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER}}],
        "access_log": [log],
        # A tunnel lives as long as its connection; that it is there is told at once.
        "access_log_options": {"flush_log_on_tunnel_successfully_established": True},
    }
    return {
        "name": pod.name,
        "address": _socket(pod.address, HBONE_PORT),
        "filter_chains": [
            {
                "transport_socket": {"name": "tls", "typed_config": _tls(pod, trust_domain)},
                "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}],
            }
        ],
    }


def _tls(pod: Pod, trust_domain: str) -> dict[str, Any]:
    return {
        "@type": _TLS,
        "require_client_certificate": True,
        "common_tls_context": {
            "tls_params": {
                "tls_minimum_protocol_version": "TLSv1_3",
                "tls_maximum_protocol_version": "TLSv1_3",
            },
            "alpn_protocols": ["h2"],
            "tls_certificates": [
                {
                    "certificate_chain": {"filename": str(pod.certificate)},
                    "private_key": {"filename": str(pod.key)},
                }
            ],
            "validation_context": {
                "trusted_ca": {"filename": str(pod.root)},
                "match_typed_subject_alt_names": [
                    {"san_type": "URI", "matcher": {"prefix": f"spiffe://{trust_domain}/"}}
                ],
            },
        },
    }


def _application(pod: Pod) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _socket(pod.address, pod.app)}}
    return {
        "name": pod.name,
        "type": "STATIC",
        "load_assignment": {"cluster_name": pod.name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _socket(address: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}
