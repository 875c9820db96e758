"""The bootstrap of a stock Envoy that works as a gateway: who it is, where its control plane is, how it is watched.

In: what a pod knows of itself. Out: a document in the JSON form of envoy.config.bootstrap.v3.Bootstrap. All listeners
and clusters of traffic come over xDS; static are only the port for probes and Prometheus, which must answer while there
is nothing else, and its way to the admin interface. Never holds a token or key: only the paths of their files.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from aggregator.traffic import path_regexes

Role: TypeAlias = Literal["east-west", "ingress"]
Mode: TypeAlias = Literal["on-demand", "compatible"]

# Node ids begin with Istio's types of proxies, of which an east-west gateway of ambient meshes is a waypoint.
_NODE_TYPES: Final = {"east-west": "waypoint", "ingress": "router"}

READINESS_PATH: Final = "/healthz/ready"
METRICS_PATH: Final = "/stats/prometheus"

_ADMIN_CLUSTER: Final = "admin"
_TYPE: Final = "type.googleapis.com/"
_WAIT_FOR_READY: Final = '{"methodConfig":[{"name":[{}],"waitForReady":true}]}'

Document: TypeAlias = dict[str, Any]


class SocketAddress(msgspec.Struct, frozen=True):
    """An IP address or host name, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class GatewayProxy(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway pod, as its bootstrap has to describe it.

    `xds` is the control plane's TLS port and `root_certificates` the file it is verified with; `token` is the file with
    the pod's service account token, read again for every stream. `pod`, `namespace`, `service_account` ("": not
    claimed), `cluster` and `network` say who it is, which the control plane compares with what the token proves.
    `address` is the pod's own, `bind` where its listeners for traffic bind; `http_port` and `https_port` are those of
    an ingress gateway, and `mode` how it asks to be told what it serves ("": by what it is able to). `admin` is for
    this machine only, `status` for probes and Prometheus.
    """

    role: Role
    xds: SocketAddress
    root_certificates: str
    token: str
    pod: str
    namespace: str
    service_account: str
    cluster: str
    network: str
    address: str
    bind: str
    http_port: int
    https_port: int
    admin: SocketAddress
    status: SocketAddress
    mode: Mode | Literal[""] = ""

    @property
    def node_id(self) -> str:
        """`<type>~<address>~<pod>.<namespace>~<domain>`, the form in which Istio's control planes know proxies."""
        namespace = self.namespace
        domain = f"{namespace}.svc.cluster.local"
        return f"{_NODE_TYPES[self.role]}~{self.address}~{self.pod}.{namespace}~{domain}"


def bootstrap(proxy: GatewayProxy) -> Document:
    """The bootstrap of a proxy, for `envoy --config-path`.

    How long listeners drain is no part of it: that is Envoy's own option --drain-time-s.
    """
    from_ads = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
    return {
        "node": _node(proxy),
        "admin": {"address": _socket(proxy.admin)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                # A stock Envoy's node lists its 500 extensions, some 60 KB.
                "set_node_on_first_message_only": True,
                "grpc_services": [_control_plane(proxy)],
            },
            # Without a time limit: a gateway that knows nothing yet must not call itself ready.
            "lds_config": from_ads,
            "cds_config": from_ads,
        },
        "static_resources": {"listeners": [_status_listener(proxy)], "clusters": [_admin_cluster(proxy)]},
        # The tunnels of HBONE are steps from one listener of this process to the next.
        "bootstrap_extensions": [
            {
                "name": "envoy.bootstrap.internal_listener",
                "typed_config": _typed(
                    "envoy.extensions.bootstrap.internal_listener.v3.InternalListener", buffer_size_kb=64
                ),
            }
        ],
        # Statistics of clusters without traffic are not kept, of which a gateway has many.
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
        # Larger regular expressions than the 100 instructions of Envoy's own limit: a character is one.
        "layered_runtime": {
            "layers": [{"name": "isthmus", "static_layer": {"re2.max_program_size.error_level": path_regexes.LARGEST}}]
        },
    }


def _node(proxy: GatewayProxy) -> Document:
    metadata = {
        "NAME": proxy.pod,
        "NAMESPACE": proxy.namespace,
        "SERVICE_ACCOUNT": proxy.service_account,
        "CLUSTER_ID": proxy.cluster,
        "NETWORK": proxy.network,
        "INSTANCE_IPS": proxy.address,
        "ISTHMUS_BIND": proxy.bind,
    }
    if proxy.role == "ingress":
        metadata |= {"ISTHMUS_HTTP_PORT": str(proxy.http_port), "ISTHMUS_HTTPS_PORT": str(proxy.https_port)}
        metadata["ISTHMUS_INGRESS_MODE"] = proxy.mode
    return {
        "id": proxy.node_id,
        "cluster": f"{proxy.pod}.{proxy.namespace}",
        "metadata": {key: value for key, value in metadata.items() if value},
    }


def _control_plane(proxy: GatewayProxy) -> Document:
    """The gRPC service of the ADS stream.

    By Google's library, since that can read a token from a file again for every stream; Envoy's own sends what it read
    at its start, and tokens of service accounts are replaced within the hour.
    """
    credentials = "envoy.grpc_credentials.file_based_metadata"
    return {
        "google_grpc": {
            "target_uri": str(proxy.xds),
            "stat_prefix": "isthmus",
            "channel_credentials": {"ssl_credentials": {"root_certs": {"filename": proxy.root_certificates}}},
            "call_credentials": [
                {
                    "from_plugin": {
                        "name": credentials,
                        "typed_config": _typed(
                            "envoy.config.grpc_credential.v3.FileBasedMetadataConfig",
                            secret_data={"filename": proxy.token},
                            header_key="authorization",
                            header_prefix="Bearer ",
                        ),
                    }
                }
            ],
            "credentials_factory_name": credentials,
            "channel_args": {
                "args": {
                    # 4 MiB by default, which the routes of some 10,000 hosts exceed.
                    "grpc.max_receive_message_length": {"int_value": -1},
                    # Finds a control plane that is gone without a word.
                    "grpc.keepalive_time_ms": {"int_value": 30_000},
                    "grpc.keepalive_timeout_ms": {"int_value": 10_000},
                    # While there is no connection a stream waits for one (gRFC A6: waitForReady) instead of failing:
                    # Envoy would wait ever longer before the next, up to 30 s, and reads no retry policy here.
                    "grpc.service_config": {"string_value": _WAIT_FOR_READY},
                    "grpc.initial_reconnect_backoff_ms": {"int_value": 100},
                    "grpc.min_reconnect_backoff_ms": {"int_value": 1_000},
                    "grpc.max_reconnect_backoff_ms": {"int_value": 2_000},
                }
            },
        },
        "initial_metadata": [{"key": "clusterid", "value": proxy.cluster}],
    }


def _status_listener(proxy: GatewayProxy) -> Document:
    """The one static listener: two paths of the admin interface, and nothing else of it."""
    routes = [
        {
            "match": {"path": path},
            "route": {"cluster": _ADMIN_CLUSTER, "prefix_rewrite": rewritten},
        }
        for path, rewritten in ((READINESS_PATH, "/ready"), (METRICS_PATH, METRICS_PATH))
    ]
    manager = _typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="status",
        route_config={"virtual_hosts": [{"name": "status", "domains": ["*"], "routes": routes}]},
        http_filters=[
            {
                "name": "envoy.filters.http.router",
                "typed_config": _typed("envoy.extensions.filters.http.router.v3.Router"),
            }
        ],
    )
    return {
        "name": "status",
        "address": _socket(proxy.status),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _admin_cluster(proxy: GatewayProxy) -> Document:
    endpoint = {"endpoint": {"address": _socket(proxy.admin)}}
    return {
        "name": _ADMIN_CLUSTER,
        "type": "STATIC",
        "load_assignment": {"cluster_name": _ADMIN_CLUSTER, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _socket(address: SocketAddress) -> Document:
    return {"socket_address": {"address": address.host, "port_value": address.port}}


def _typed(message: str, **fields: Any) -> Document:
    return {"@type": _TYPE + message, **fields}
