"""The HTTP connection manager of an ingress gateway: constant, however many hosts there are.

There are two forms. In the one, what is known of single hosts comes by name: routes as scopes (SRDS), certificates
(SDS) and clusters (CDS) when they are first asked for. The manager makes the key of the scope itself, of the class of
its chain and the request's host, so that a client that uses a connection for another host than it was made for never
gets past that host's TLS settings. In the other, for proxies that cannot do that, a table of all hosts is found by its
name (RDS), and a certificate is that of the chain.

A change of these bytes drains connections and throws certificates away, so filters that some route may need one day are
there, disabled.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from xds import protos
from xds.messages.client_certificates import CLIENT_HEADERS, allowed_names, told_headers
from xds.messages.extension import Extension, extension, write_ads, write_extension
from xds.messages.fallback import AGAIN, AGAIN_CLIENT, AGAIN_HEADERS, fallback
from xds.messages.filters import STARTED, AccessLog, http_router, write_access_log
from xds.messages.http_filters import ON_DEMAND, Filters, http_filters

if TYPE_CHECKING:
    from xds.protos import envoy

    Manager = envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager

CLASS_HEADER: Final = "x-isthmus-class"
HOST_HEADER: Final = "x-isthmus-host"
SCOPE_HEADERS: Final = (CLASS_HEADER, HOST_HEADER)
"""The headers a scope is found by, which the manager sets whatever a client has sent."""

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
_hcm = _ext.filters.network.http_connection_manager.v3.HttpConnectionManager


class ClientDetails(Struct, frozen=True, gc=False):
    """What becomes of clients' certificates in HTTP (see xds.messages.client_certificates); no `names`: all get in."""

    required: bool
    passed_on: bool
    names: tuple[str, ...] = ()


def named_tls(secret: str) -> Extension:
    """The transport socket of a chain whose certificate has a name (SDS)."""
    context = _ext.transport_sockets.tls.v3.DownstreamTlsContext()
    context.common_tls_context.alpn_protocols.extend(("h2", "http/1.1"))
    certificate = context.common_tls_context.tls_certificate_sds_secret_configs.add(name=secret)
    write_ads(certificate.sds_config)
    return extension("envoy.transport_sockets.tls", context)


def table_manager(
    stat_prefix: str,
    table: str,
    *,
    secure: bool,
    access_logs: tuple[AccessLog, ...] = (),
    without: Container[str] = (),
) -> Extension:
    """The network filter that serves HTTP with the routes of the table of that name (RDS).

    Unknown hosts are answered as by `scoped_manager`. `without` are filters that a proxy is not built with.
    """
    config = _manager(stat_prefix)
    config.rds.route_config_name = table
    write_ads(config.rds.config_source)
    config.rds.config_source.initial_fetch_timeout.SetInParent()  # 0: no routes are no answer
    # Who is told a table is told all clusters too.
    installed = tuple(one for one in http_filters() if one[0] != ON_DEMAND and one[0] not in without)
    return _finish(config, secure, access_logs, installed)


def scoped_manager(
    stat_prefix: str,
    scope_class: str,
    *,
    secure: bool,
    wildcards: bool = False,
    access_logs: tuple[AccessLog, ...] = (),
    clients: ClientDetails | None = None,
) -> Extension:
    """The network filter that serves HTTP with the routes of class `scope_class`.

    A host without a scope is answered 404, or with `secure` 421: the client has used a connection for a host that it
    was not made for, and should make another. With `wildcards` it is that of the wildcard over it first, or of all
    hosts; those that have a scope of their own pay nothing for it (xds.messages.fallback). `clients` is for chains that
    ask for certificates.
    """
    config = _manager(stat_prefix)
    write_extension(config.early_header_mutation_extensions.add(), _scope_headers(scope_class))
    if clients is not None:
        write_extension(config.early_header_mutation_extensions.add(), _client_headers(clients))
    scoped = config.scoped_routes
    scoped.name = "hosts"
    for header in SCOPE_HEADERS:
        fragment = scoped.scope_key_builder.fragments.add()
        fragment.header_value_extractor.name = header
        fragment.header_value_extractor.index = 0
    write_ads(scoped.rds_config_source)
    write_ads(scoped.scoped_rds.scoped_rds_config_source)
    scoped.scoped_rds.scoped_rds_config_source.initial_fetch_timeout.SetInParent()  # 0: no routes are no answer
    if clients is not None and clients.names:
        write_extension(config.http_filters.add(), allowed_names(clients.names))
    for script in fallback(CLASS_HEADER, HOST_HEADER) if wildcards else ():
        write_extension(config.http_filters.add(), script)
    return _finish(config, secure, access_logs, http_filters(), wildcards=wildcards)


def _manager(stat_prefix: str) -> Manager:
    """What both forms have in common, before their routes."""
    config = _hcm(stat_prefix=stat_prefix)
    config.use_remote_address.value = True
    config.normalize_path.value = True
    config.merge_slashes = True
    config.strip_any_host_port = True
    config.strip_trailing_host_dot = True
    config.request_headers_timeout.seconds = HEADERS_TIMEOUT
    config.http2_protocol_options.max_concurrent_streams.value = 100
    config.upgrade_configs.add(upgrade_type="websocket")
    return config


def _finish(
    config: Manager, secure: bool, access_logs: tuple[AccessLog, ...], filters: Filters, *, wildcards: bool = False
) -> Extension:
    """The same behind them."""
    if secure:
        mapper = config.local_reply_config.mappers.add()
        mapper.filter.response_flag_filter.flags.append("NR")
        mapper.status_code.value = 421
    for name, message, disabled in filters:
        added = config.http_filters.add(disabled=disabled)
        write_extension(added, extension(name, message))
    write_extension(config.http_filters.add(), http_router())
    for log in access_logs:
        line = config.access_log.add()
        write_access_log(line, log)
        if wildcards:
            # What is sent to the listener AGAIN is written down there, where one sees what became of it. The header is
            # ours: it was set when the request came, and is gone once a host's routes were found.
            gone, other = (line.filter.or_filter.filters.add().header_filter.header for _ in range(2))
            gone.name, gone.present_match, gone.invert_match = CLASS_HEADER, True, True
            other.name, other.string_match.exact, other.invert_match = CLASS_HEADER, AGAIN, True
    return extension("envoy.filters.network.http_connection_manager", config)


def manager_again(access_logs: tuple[AccessLog, ...] = ()) -> Extension:
    """The network filter of the listener AGAIN (xds.messages.fallback), which finds scopes by the keys it is told.

    Requests come from another manager of the same Envoy, which knew the client, and has written of each what is to be.
    """
    config = _hcm.FromString(scoped_manager(AGAIN, AGAIN, secure=False, access_logs=access_logs).data)
    config.use_remote_address.value = False
    told_client = _ext.http.original_ip_detection.custom_header.v3.CustomHeaderConfig(header_name=AGAIN_CLIENT)
    told_client.allow_extension_to_set_address_as_trusted = True
    write_extension(
        config.original_ip_detection_extensions.add(),
        extension("envoy.http.original_ip_detection.custom_header", told_client),
    )
    filters = [*config.http_filters]
    del config.http_filters[:]
    write_extension(config.http_filters.add(), _without_client())
    config.http_filters.extend(filters)
    config.forward_client_cert_details = _hcm.ALWAYS_FORWARD_ONLY
    del config.early_header_mutation_extensions[:]
    mutation = _ext.http.early_header_mutation.header_mutation.v3.HeaderMutation()
    for key, told in zip(SCOPE_HEADERS, AGAIN_HEADERS, strict=True):
        append = mutation.mutations.add().append
        append.header.key, append.header.value = key, f"%REQ({told})%"
        append.append_action = protos.envoy.config.core.v3.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    for told in AGAIN_HEADERS:
        mutation.mutations.add(remove=told)
    write_extension(
        config.early_header_mutation_extensions.add(),
        extension("envoy.http.early_header_mutation.header_mutation", mutation),
    )
    return extension("envoy.filters.network.http_connection_manager", config)


def _without_client() -> Extension:
    """Takes the header with the client's address away, of which nobody behind is to know."""
    config = _ext.filters.http.header_mutation.v3.HeaderMutation()
    config.mutations.request_mutations.add(remove=AGAIN_CLIENT)
    return extension("without_client", config)


def _scope_headers(scope_class: str) -> Extension:
    mutation = _ext.http.early_header_mutation.header_mutation.v3.HeaderMutation()
    for key, value in ((CLASS_HEADER, scope_class), (HOST_HEADER, "%REQ(:authority)%")):
        append = mutation.mutations.add().append
        append.header.key, append.header.value = key, value
        append.append_action = protos.envoy.config.core.v3.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return extension("envoy.http.early_header_mutation.header_mutation", mutation)


def _client_headers(clients: ClientDetails) -> Extension:
    mutation = _ext.http.early_header_mutation.header_mutation.v3.HeaderMutation()
    for header in CLIENT_HEADERS:
        mutation.mutations.add(remove=header)
    for key, value in told_headers(required=clients.required, passed_on=clients.passed_on):
        append = mutation.mutations.add().append
        append.header.key, append.header.value = key, value
    return extension("envoy.http.early_header_mutation.header_mutation", mutation)
