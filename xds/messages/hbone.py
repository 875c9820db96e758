"""HBONE, the mesh's tunnels, as listeners and clusters of an Envoy: mutual TLS, HTTP/2 CONNECT, and the steps between.

Building blocks shared by all roles. A connection passes from one internal listener of an Envoy to the next. A cluster
hands the metadata of the endpoint it chose to the listener behind it, which puts into filter state where the tunnel
goes and who may answer it. So one constant set of listeners and clusters makes the tunnels to every destination:

  single tunnel   connect_originate: CONNECT to the destination, dialled where its metadata says
  double tunnel   inner_connect_originate: CONNECT to `<hostname>:<port>`, whose bytes go into
                  outer_connect_originate: CONNECT to the same, dialled at a gateway of the other network
  at a gateway    connect_terminate (a module of its own) takes the outer tunnel's end

Identities are exact for every tunnel (`envoy.network.upstream_subject_alt_names`), on top of the trust domain that the
TLS context asks for. Ports are those of the metadata, never a constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from xds import protos
from xds.messages.cluster import DESTINATION_METADATA, Cluster, InternalListener, OriginalDestination
from xds.messages.extension import Extension, extension, write_extension
from xds.messages.filters import (
    AccessLog,
    FilterState,
    Sharing,
    original_destination,
    set_filter_state,
    stdout_log,
    tcp_proxy,
)
from xds.messages.listener import FilterChain, Listener, ListenerFilter
from xds.messages.secret import ROOTS, WORKLOAD_CERTIFICATE

if TYPE_CHECKING:
    from google.protobuf.message import Message

CONNECT_ORIGINATE: Final = "connect_originate"
INNER_CONNECT_ORIGINATE: Final = "inner_connect_originate"
OUTER_CONNECT_ORIGINATE: Final = "outer_connect_originate"
FORWARD_INNER_CONNECT: Final = "forward_inner_connect"

CONNECT_TIMEOUT: Final = 10
"""Seconds until an attempt to connect is given up, as Istio has it."""
_IDLE_TIMEOUT: Final = 3600
LONGEST_CONNECTION: Final = 10
"""Seconds until a connection in a pool takes no further request: pods that are told to end usually stay that long."""

SUBJECT_ALT_NAMES: Final = "envoy.network.upstream_subject_alt_names"
_AUTHORITY: Final = "istio.double_hbone.hbone_target_address"
_GATEWAY_IDENTITIES: Final = "isthmus.gateway_identities"

_tls = protos.envoy.extensions.transport_sockets.tls.v3
_upstreams = protos.envoy.extensions.upstreams.http.v3


class Profile(StrEnum):
    """What an Envoy is built with, which decides how things are written, never what is told."""

    STOCK = "stock"
    """The project's own binary: everything comes over the one stream."""
    ISTIO = "istio"
    """istio-proxy: its agent serves secrets on a socket of its own, and filter state has a factory of its own."""

    @property
    def hashable_string(self) -> str:
        """The factory of texts that enter the keys of connection pools."""
        return "envoy.hashable_string" if self is Profile.STOCK else "istio.hashable_string"


def upstream_tls(profile: Profile, trust_domains: Sequence[str]) -> Extension:
    """The transport socket of a tunnel to be made: the own workload certificate, and peers of trust domains only."""
    context = _tls.UpstreamTlsContext()
    _write_context(context.common_tls_context, profile, trust_domains)
    return extension("tls", context)


def downstream_tls(profile: Profile, trust_domains: Sequence[str]) -> Extension:
    """The transport socket of tunnels that come in; clients have to show a certificate of one of the trust domains."""
    context = _tls.DownstreamTlsContext()
    _write_context(context.common_tls_context, profile, trust_domains)
    context.require_client_certificate.value = True
    return extension("tls", context)


def _write_context(
    context: protos.envoy.extensions.transport_sockets.tls.v3.CommonTlsContext,
    profile: Profile,
    trust_domains: Sequence[str],
) -> None:
    context.alpn_protocols.append("h2")
    context.tls_params.tls_minimum_protocol_version = _tls.TlsParameters.TLSv1_3
    context.tls_params.tls_maximum_protocol_version = _tls.TlsParameters.TLSv1_3
    _write_secret(context.tls_certificate_sds_secret_configs.add(), WORKLOAD_CERTIFICATE, profile)
    validation = context.combined_validation_context
    for trust_domain in trust_domains:
        peers = validation.default_validation_context.match_typed_subject_alt_names.add()
        peers.san_type = _tls.SubjectAltNameMatcher.URI
        peers.matcher.prefix = f"spiffe://{trust_domain}/"
    _write_secret(validation.validation_context_sds_secret_config, ROOTS, profile)


def _write_secret(
    place: protos.envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig, name: str, profile: Profile
) -> None:
    place.name = name
    source = place.sds_config
    source.resource_api_version = protos.envoy.config.core.v3.V3
    source.initial_fetch_timeout.SetInParent()  # 0: it waits, since without a certificate it is of no use
    if profile is Profile.STOCK:
        source.ads.SetInParent()
        return
    agent = source.api_config_source
    agent.api_type = protos.envoy.config.core.v3.ApiConfigSource.GRPC
    agent.transport_api_version = protos.envoy.config.core.v3.V3
    agent.set_node_on_first_message_only = True
    agent.grpc_services.add().envoy_grpc.cluster_name = "sds-grpc"


# Transport sockets into internal listeners.

RAW: Final = extension("raw_buffer", protos.envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer())
HOST: Final = "host"
CLUSTER: Final = "cluster"
DESTINATION: Final = (HOST, DESTINATION_METADATA)
TUNNEL: Final = (HOST, "istio")


def internal_upstream(
    *passed_on: tuple[str, str], inside: Extension = RAW, name: str = "internal_upstream"
) -> Extension:
    """The transport socket into an internal listener of the same Envoy.

    `passed_on` is metadata that the listener is to see: (HOST or CLUSTER, namespace) of the endpoint or cluster.
    """
    config = protos.envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport()
    for kind, namespace in passed_on:
        source = config.passthrough_metadata.add(name=namespace)
        getattr(source.kind, kind).SetInParent()
    write_extension(config.transport_socket, inside)
    return extension(name, config)


INTO_TUNNEL: Final = internal_upstream(DESTINATION, TUNNEL)
"""For clusters whose endpoints are behind the listeners that originate tunnels."""


# HTTP of clusters. The names are those under which Envoy looks for them.

_HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def _http_options(options: Message) -> Extension:
    return extension(_HTTP_OPTIONS, options)


def connect_options(*, requests: int = 0) -> Extension:
    """HTTP/2 that may CONNECT; with `requests`, a connection is used for that many only."""
    options = _upstreams.HttpProtocolOptions()
    options.explicit_http_config.http2_protocol_options.allow_connect = True
    options.common_http_protocol_options.idle_timeout.seconds = _IDLE_TIMEOUT
    if requests:
        options.common_http_protocol_options.max_requests_per_connection.value = requests
    return _http_options(options)


def pooled_options(*, http2: bool = False) -> Extension:
    """HTTP of requests that share connections: HTTP/1.1 or HTTP/2, whatever is spoken downstream.

    A connection that goes through a gateway of another network stays with the one endpoint that the gateway chose for
    it, also when that is no longer ready and others are. So no connection is used for long.
    """
    options = _upstreams.HttpProtocolOptions()
    config = options.explicit_http_config
    (config.http2_protocol_options if http2 else config.http_protocol_options).SetInParent()
    options.common_http_protocol_options.max_connection_duration.seconds = LONGEST_CONNECTION
    return _http_options(options)


def downstream_options() -> Extension:
    """The HTTP that was spoken downstream."""
    options = _upstreams.HttpProtocolOptions()
    options.common_http_protocol_options.idle_timeout.seconds = 300
    options.use_downstream_protocol_config.http_protocol_options.SetInParent()
    options.use_downstream_protocol_config.http2_protocol_options.SetInParent()
    return _http_options(options)


# The steps of tunnels.


def internal_listener(
    name: str, *filters: Extension, restore_destination: bool = True, access_logs: tuple[AccessLog, ...] = ()
) -> Listener:
    """An internal listener of one chain; it restores where a connection is to go unless told not to."""
    restoring = (ListenerFilter(original_destination()),) if restore_destination else ()
    return Listener(
        name,
        (FilterChain(filters),),
        listener_filters=restoring,
        access_logs=access_logs,
        use_original_dst=False,
    )


def originating_listeners(profile: Profile, network: str, source: str) -> tuple[Listener, Listener, Listener]:
    """The internal listeners that make tunnels, single and double, for endpoints of xds.messages.assignment.

    `network` is the proxy's own, which a destination elsewhere is told; `source` (`gateway`, `waypoint`) tells a
    gateway elsewhere what kind of proxy asks, as it passes over waypoints for some.
    """
    hashable = profile.hashable_string
    single = internal_listener(
        CONNECT_ORIGINATE,
        set_filter_state("peer_identities", [FilterState(SUBJECT_ALT_NAMES, "%DYNAMIC_METADATA(istio:identities)%")]),
        tcp_proxy(
            CONNECT_ORIGINATE,
            CONNECT_ORIGINATE,
            tunnel_to="%DOWNSTREAM_LOCAL_ADDRESS%",
            access_logs=_failures("%DOWNSTREAM_LOCAL_ADDRESS%"),
        ),
    )
    authority = f"%FILTER_STATE({_AUTHORITY}:PLAIN)%"
    inner = internal_listener(
        INNER_CONNECT_ORIGINATE,
        set_filter_state(
            "propagate_endpoint_metadata",
            [
                # The address the outer listener is to restore as the destination: that of the gateway.
                FilterState(
                    "envoy.filters.listener.original_dst.local_ip",
                    f"%DYNAMIC_METADATA({DESTINATION_METADATA}:local)%",
                    shared=Sharing.TRANSITIVE,
                ),
                FilterState(
                    _AUTHORITY,
                    "%DYNAMIC_METADATA(istio:double_hbone:hbone_target_address)%",
                    hashable,
                    Sharing.TRANSITIVE,
                ),
                FilterState(
                    _GATEWAY_IDENTITIES, "%DYNAMIC_METADATA(istio:double_hbone:outer)%", hashable, Sharing.TRANSITIVE
                ),
                FilterState(SUBJECT_ALT_NAMES, "%DYNAMIC_METADATA(istio:double_hbone:inner)%"),
            ],
        ),
        tcp_proxy(
            INNER_CONNECT_ORIGINATE,
            INNER_CONNECT_ORIGINATE,
            tunnel_to=authority,
            headers=[("x-forwarded-network", network)],
            access_logs=_failures(authority),
        ),
        restore_destination=False,
    )
    outer = internal_listener(
        OUTER_CONNECT_ORIGINATE,
        set_filter_state(
            "gateway_identities", [FilterState(SUBJECT_ALT_NAMES, f"%FILTER_STATE({_GATEWAY_IDENTITIES}:PLAIN)%")]
        ),
        tcp_proxy(
            OUTER_CONNECT_ORIGINATE,
            OUTER_CONNECT_ORIGINATE,
            tunnel_to=authority,
            headers=[("x-istio-source", source)],
            access_logs=_failures(authority),
        ),
    )
    return single, inner, outer


def originating_clusters(profile: Profile, trust_domains: Sequence[str]) -> tuple[Cluster, Cluster, Cluster]:
    """The clusters behind `originating_listeners`.

    Each double tunnel has connections of its own: two requests in one would pin all of a client's traffic to one
    destination.
    """
    tls = upstream_tls(profile, trust_domains)
    return (
        Cluster(
            CONNECT_ORIGINATE,
            OriginalDestination(dialled=True),
            transport_socket=tls,
            http_options=connect_options(),
            connect_timeout=CONNECT_TIMEOUT,
        ),
        Cluster(
            INNER_CONNECT_ORIGINATE,
            InternalListener(OUTER_CONNECT_ORIGINATE),
            transport_socket=internal_upstream(inside=tls, name="internal_upstream_with_tls"),
            http_options=connect_options(requests=1),
        ),
        Cluster(
            OUTER_CONNECT_ORIGINATE,
            OriginalDestination(),
            transport_socket=tls,
            http_options=connect_options(requests=1),
            connect_timeout=CONNECT_TIMEOUT,
        ),
    )


def _failures(destination: str) -> Iterable[AccessLog]:
    """A line for each tunnel that could not be made, which is where a wrong identity shows."""
    log = stdout_log(
        {
            "tunnel": destination,
            "upstream": "%UPSTREAM_HOST%",
            "cluster": "%UPSTREAM_CLUSTER%",
            "flags": "%RESPONSE_FLAGS%",
            "reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
            "duration_ms": "%DURATION%",
        }
    )
    return (AccessLog(log, failures=True),)
