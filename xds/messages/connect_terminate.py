"""connect_terminate: the listener at which tunnels from elsewhere end, in gateways and waypoints.

Mutual TLS with peers of the trust domain, HTTP/2 CONNECT, and what was in the tunnel goes to the cluster
`main_internal`, with the CONNECT's authority and what the client says of its kind in filter state. The two profiles
differ in what istio-proxy's telemetry needs, and where istiod's form has a flaw that a stock Envoy is spared: its route
has the default time limit of 15 s, which runs from the moment a client has closed its side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xds import protos
from xds.messages.extension import Extension, extension, write_extension
from xds.messages.filters import (
    STARTED,
    FilterState,
    Sharing,
    access_logs,
    http_router,
    set_request_filter_state,
    write_access_log,
)
from xds.messages.hbone import Profile, downstream_tls
from xds.messages.listener import FilterChain, Listener, SocketAddress

CONNECT_TERMINATE: Final = "connect_terminate"
MAIN_INTERNAL: Final = "main_internal"
AUTHORITY: Final = "io.istio.connect_authority"
"""Filter state: the authority of the CONNECT request."""
SOURCE: Final = "io.istio.source"
"""Filter state: what kind of proxy made the tunnel, as its header x-istio-source says; ztunnels say nothing."""
FROM_WAYPOINT: Final = "waypoint"
FROM_GATEWAY: Final = "gateway"
"""What waypoints and ingress gateways say there."""

STREAMS: Final = 100
"""Tunnels in one connection at a time. ztunnel's own limit is the same."""

_manager = protos.envoy.extensions.filters.network.http_connection_manager.v3

LOGGED: Final = {
    "listener": CONNECT_TERMINATE,
    "event": "%ACCESS_LOG_TYPE%",
    "start": STARTED,
    "authority": "%REQ(:AUTHORITY)%",
    "source": "%REQ(X-ISTIO-SOURCE)%",
    "peer": "%DOWNSTREAM_PEER_URI_SAN%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS%",
    "upstream": "%UPSTREAM_HOST%",
    "code": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "received": "%BYTES_RECEIVED%",
    "sent": "%BYTES_SENT%",
    "duration_ms": "%DURATION%",
}
"""Who asked, for what, and what came of it: a line when a tunnel is open, since it may stay so for days, and one when
it has ended. `event` tells them apart."""


def connect_terminate(
    address: SocketAddress, profile: Profile, trust_domains: Sequence[str], log_file: str = ""
) -> Listener:
    """The listener at `address`; a stock Envoy writes its tunnels down in `log_file`, if one is given."""
    return Listener(
        CONNECT_TERMINATE,
        (
            FilterChain(
                (_connection_manager(profile, log_file),),
                name="default",
                transport_socket=downstream_tls(profile, trust_domains),
            ),
        ),
        address=address,
        balanced=True,
    )


def _connection_manager(profile: Profile, log_file: str) -> Extension:
    config = _manager.HttpConnectionManager(stat_prefix=CONNECT_TERMINATE)
    http2 = config.http2_protocol_options
    http2.allow_connect = True
    http2.max_concurrent_streams.value = STREAMS
    http2.connection_keepalive.interval.seconds = 10
    http2.connection_keepalive.timeout.seconds = 20
    config.stream_idle_timeout.SetInParent()  # 0: a tunnel may be silent for as long as it likes
    config.upgrade_configs.add(upgrade_type="CONNECT")
    config.use_remote_address.value = profile is Profile.STOCK  # else a client could say who it is in a header
    config.route_config.name = "default"
    host = config.route_config.virtual_hosts.add(name="default", domains=["*"])
    route = host.routes.add()
    route.match.connect_matcher.SetInParent()
    route.route.cluster = MAIN_INTERNAL
    upgrade = route.route.upgrade_configs.add(upgrade_type="CONNECT")
    upgrade.connect_config.SetInParent()
    if profile is Profile.STOCK:
        route.route.timeout.SetInParent()
        for log in access_logs(log_file, LOGGED):
            write_access_log(config.access_log.add(), log)
        config.access_log_options.flush_log_on_tunnel_successfully_established = True
    else:
        config.server_name = "istio-envoy"
        config.forward_client_cert_details = _manager.HttpConnectionManager.APPEND_FORWARD
        details = config.set_current_client_cert_details
        details.subject.value = details.dns = details.uri = True
        write_extension(config.http_filters.add(), _peer_metadata())
    write_extension(config.http_filters.add(), _request_state(profile))
    write_extension(config.http_filters.add(), _source_state(profile))
    write_extension(config.http_filters.add(), http_router())
    return extension("envoy.filters.network.http_connection_manager", config)


def _request_state(profile: Profile) -> Extension:
    """What the listeners behind have to know of the request; for istio-proxy also what its policies look at."""
    hashable = profile.hashable_string
    authority = FilterState(AUTHORITY, "%REQ(:AUTHORITY)%", hashable, Sharing.ONCE)
    if profile is Profile.STOCK:
        return set_request_filter_state("connect_authority", [authority])
    destination = "envoy.filters.listener.original_dst"
    states = [
        FilterState(f"{destination}.local_ip", "%REQ(:AUTHORITY)%", shared=Sharing.ONCE),
        authority,
        FilterState(f"{destination}.remote_ip", "%DOWNSTREAM_REMOTE_ADDRESS%", shared=Sharing.ONCE),
        FilterState("io.istio.peer_principal", "%DOWNSTREAM_PEER_URI_SAN%", hashable, Sharing.ONCE),
        FilterState("io.istio.local_principal", "%DOWNSTREAM_LOCAL_URI_SAN%", hashable, Sharing.ONCE),
    ]
    return set_request_filter_state("connect_authority", states)


def _source_state(profile: Profile) -> Extension:
    state = FilterState(SOURCE, "%REQ(x-istio-source)%", profile.hashable_string, Sharing.ONCE)
    return set_request_filter_state("request_source", [state])


def _peer_metadata() -> Extension:
    config = protos.udpa.type.v1.TypedStruct(type_url="type.googleapis.com/io.istio.http.peer_metadata.Config")
    config.value.update({"downstream_discovery": [{"workload_discovery": {}}], "shared_with_upstream": True})
    return extension("waypoint_downstream_peer_metadata", config)
