"""The HTTP connection manager of an ingress gateway and its TLS: constant, however many hosts there are.

What is known of single hosts comes by name: routes as scopes (SRDS), certificates (SDS) and clusters (CDS) when they
are first asked for. The manager makes the key of the scope itself, of the class of its chain and the request's host, so
that a client that uses a connection for another host than it was made for never gets past that host's TLS settings. A
change of these bytes drains connections and throws certificates away, so filters that some route may need one day are
there, disabled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xds import protos
from xds.messages.extension import Extension, extension, write_extension
from xds.messages.filters import STARTED, AccessLog, http_router, write_access_log

if TYPE_CHECKING:
    from google.protobuf.message import Message

CLASS_HEADER: Final = "x-isthmus-class"
HOST_HEADER: Final = "x-isthmus-host"
SCOPE_HEADERS: Final = (CLASS_HEADER, HOST_HEADER)
"""The headers a scope is found by, which the manager sets whatever a client has sent."""

NO_NAME: Final = "__nosni__"
"""The name under which a certificate is asked for if the client names no host; no host can have it."""

CLUSTER_TIMEOUT: Final = 2
"""Seconds a request waits for its cluster. Every cluster that a route names is told, so this is for a control plane
that cannot be reached."""
HEADERS_TIMEOUT: Final = 30
"""Seconds a client may take to send the headers of a request."""

LOGGED: Final = {
    "event": "%ACCESS_LOG_TYPE%",
    "start": STARTED,
    "host": "%REQ(:AUTHORITY)%",
    "method": "%REQ(:METHOD)%",
    "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
    "protocol": "%PROTOCOL%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS%",
    "sni": "%REQUESTED_SERVER_NAME%",
    "route": "%ROUTE_NAME%",
    "cluster": "%UPSTREAM_CLUSTER_RAW%",
    "upstream": "%UPSTREAM_HOST%",
    "code": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    "received": "%BYTES_RECEIVED%",
    "sent": "%BYTES_SENT%",
    "duration_ms": "%DURATION%",
}
"""What is written down of each request."""

_ext = protos.envoy.extensions
_http = protos.envoy.extensions.filters.http


def on_demand_tls() -> Extension:
    """The transport socket of a listener that fetches the certificate of a host when a client first asks for it."""
    context = _ext.transport_sockets.tls.v3.DownstreamTlsContext()
    # The certificates on demand refuse to work with either.
    context.disable_stateless_session_resumption = True
    context.disable_stateful_session_resumption = True
    context.common_tls_context.alpn_protocols.extend(("h2", "http/1.1"))
    mapper = _ext.transport_sockets.tls.cert_mappers.sni.v3.SNI(default_value=NO_NAME)
    selector = _ext.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config()
    _write_ads(selector.config_source)
    write_extension(selector.certificate_mapper, extension("envoy.tls.certificate_mappers.sni", mapper))
    write_extension(
        context.common_tls_context.custom_tls_certificate_selector,
        extension("envoy.tls.certificate_selectors.on_demand_secret", selector),
    )
    return extension("envoy.transport_sockets.tls", context)


def scoped_manager(
    stat_prefix: str, scope_class: str, *, secure: bool, access_logs: tuple[AccessLog, ...] = ()
) -> Extension:
    """The network filter that serves HTTP with the routes of class `scope_class`.

    A host without a scope is answered 404, or with `secure` 421: the client has used a connection for a host that it
    was not made for, and should make another.
    """
    config = _ext.filters.network.http_connection_manager.v3.HttpConnectionManager(stat_prefix=stat_prefix)
    config.use_remote_address.value = True
    config.normalize_path.value = True
    config.merge_slashes = True
    config.strip_any_host_port = True
    config.strip_trailing_host_dot = True
    config.request_headers_timeout.seconds = HEADERS_TIMEOUT
    config.http2_protocol_options.max_concurrent_streams.value = 100
    config.upgrade_configs.add(upgrade_type="websocket")
    write_extension(config.early_header_mutation_extensions.add(), _scope_headers(scope_class))
    scoped = config.scoped_routes
    scoped.name = "hosts"
    for header in SCOPE_HEADERS:
        fragment = scoped.scope_key_builder.fragments.add()
        fragment.header_value_extractor.name = header
        fragment.header_value_extractor.index = 0
    _write_ads(scoped.rds_config_source)
    _write_ads(scoped.scoped_rds.scoped_rds_config_source)
    scoped.scoped_rds.scoped_rds_config_source.initial_fetch_timeout.SetInParent()  # 0: no routes are no answer
    if secure:
        mapper = config.local_reply_config.mappers.add()
        mapper.filter.response_flag_filter.flags.append("NR")
        mapper.status_code.value = 421
    for name, message, disabled in _http_filters():
        added = config.http_filters.add(disabled=disabled)
        write_extension(added, extension(name, message))
    write_extension(config.http_filters.add(), http_router())
    for log in access_logs:
        write_access_log(config.access_log.add(), log)
    return extension("envoy.filters.network.http_connection_manager", config)


def _http_filters() -> tuple[tuple[str, Message, bool], ...]:
    """Name, configuration and whether it is disabled, of all filters before the router."""
    on_demand = _http.on_demand.v3.OnDemand()
    _write_ads(on_demand.odcds.source)
    on_demand.odcds.timeout.seconds = CLUSTER_TIMEOUT
    return (
        ("envoy.filters.http.cors", _http.cors.v3.Cors(), True),
        ("envoy.filters.http.rbac", _http.rbac.v3.RBAC(), True),
        ("envoy.filters.http.header_mutation", _http.header_mutation.v3.HeaderMutation(), True),
        ("envoy.filters.http.on_demand", on_demand, False),
    )


def _scope_headers(scope_class: str) -> Extension:
    mutation = _ext.http.early_header_mutation.header_mutation.v3.HeaderMutation()
    for key, value in ((CLASS_HEADER, scope_class), (HOST_HEADER, "%REQ(:authority)%")):
        append = mutation.mutations.add().append
        append.header.key, append.header.value = key, value
        append.append_action = protos.envoy.config.core.v3.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return extension("envoy.http.early_header_mutation.header_mutation", mutation)


def _write_ads(source: protos.envoy.config.core.v3.ConfigSource) -> None:
    source.ads.SetInParent()
    source.resource_api_version = protos.envoy.config.core.v3.V3
