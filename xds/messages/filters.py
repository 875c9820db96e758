"""Filters of listeners that more than one role uses, and their access logs: records in, extensions out.

Filter state is how one listener of an Envoy tells the next what it knows of a connection: a value is put under a key by
a format string and shared with what is upstream, once or all the way. A value that decides where a connection goes must
be made by a factory whose objects enter the keys of connection pools (`hashable string`), or connections of different
peers could be taken for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from xds import protos
from xds.messages.cluster import BALANCING_METADATA, SOURCE_METADATA
from xds.messages.extension import Extension, extension, write_ads, write_extension

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

_filters = protos.envoy.extensions.filters

STARTED: Final = "%START_TIME(%s.%6f)%"
"""When a request or connection began, in seconds since the epoch, to the microsecond."""
FILTER_STATE_CLUSTER: Final = "envoy.tcp_proxy.cluster"
"""Filter state that decides the cluster of a `tcp_proxy`, before its own."""


class Sharing(IntEnum):
    """How far a value goes: not at all, to the next listener, or to all that follow."""

    NONE = 0
    ONCE = 1
    TRANSITIVE = 2


class FilterState(Struct, frozen=True, gc=False):
    """A value to keep with a connection or request: its key, the format string that yields it, who else sees it.

    `factory` makes the object; empty, it is the one registered under the key.
    """

    key: str
    value: str
    factory: str = ""
    shared: Sharing = Sharing.NONE


class AccessLog(Struct, frozen=True, gc=False):
    """Where a line goes when a connection or request ends; with `failures`, only where no connection came about."""

    extension: Extension
    failures: bool = False


def set_filter_state(name: str, states: Iterable[FilterState]) -> Extension:
    """A network filter that sets filter state when a connection begins."""
    config = _filters.network.set_filter_state.v3.Config()
    _write_states(config.on_new_connection, states)
    return extension(name, config)


def set_request_filter_state(name: str, states: Iterable[FilterState]) -> Extension:
    """An HTTP filter that sets filter state when the headers of a request are there."""
    config = _filters.http.set_filter_state.v3.Config()
    _write_states(config.on_request_headers, states)
    return extension(name, config)


def tcp_proxy(
    cluster: str,
    stat_prefix: str,
    *,
    tunnel_to: str = "",
    headers: Iterable[tuple[str, str]] = (),
    access_logs: Iterable[AccessLog] = (),
    source: str = "",
    cluster_timeout: int = 0,
) -> Extension:
    """A network filter that passes bytes on to a cluster, in a CONNECT request to `tunnel_to` with `headers` if given.

    `tunnel_to` and the values of headers are format strings. Access logs get a line when there is a connection to an
    endpoint, and one when it has ended. Of a cluster that is parted `by_source`, the endpoints for `source` count.
    With a `cluster_timeout` (seconds) the cluster is asked for by name, and a connection waits so long for it.
    """
    config = _filters.network.tcp_proxy.v3.TcpProxy(cluster=cluster, stat_prefix=stat_prefix)
    if cluster_timeout:
        write_ads(config.on_demand.odcds_config)
        config.on_demand.timeout.seconds = cluster_timeout
    if source:
        config.metadata_match.filter_metadata[BALANCING_METADATA].update({SOURCE_METADATA: source})
    if tunnel_to:
        config.tunneling_config.hostname = tunnel_to
        for key, value in headers:
            added = config.tunneling_config.headers_to_add.add(
                append_action=protos.envoy.config.core.v3.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
            )
            added.header.key, added.header.value = key, value
    for log in access_logs:
        write_access_log(config.access_log.add(), log)
        if not log.failures:
            config.access_log_options.flush_access_log_on_connected = True
    return extension("envoy.filters.network.tcp_proxy", config)


def original_destination() -> Extension:
    """A listener filter that restores where a connection was to go, from what came with it."""
    return extension("envoy.filters.listener.original_dst", _filters.listener.original_dst.v3.OriginalDst())


def tls_inspector() -> Extension:
    """A listener filter that reads which host a client asks for, and what it speaks, before TLS begins."""
    return extension("envoy.filters.listener.tls_inspector", _filters.listener.tls_inspector.v3.TlsInspector())


def http_inspector() -> Extension:
    """A listener filter that finds out whether a connection speaks HTTP."""
    return extension("envoy.filters.listener.http_inspector", _filters.listener.http_inspector.v3.HttpInspector())


def http_router() -> Extension:
    """The HTTP filter that ends every chain: it sends the request to its route."""
    return extension("envoy.filters.http.router", _filters.http.router.v3.Router())


def metadata_exchange() -> Extension:
    """istio-proxy's own network filter by which two of them tell each other who they are."""
    config = protos.udpa.type.v1.TypedStruct(
        type_url="type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange"
    )
    config.value.update({"enable_discovery": True, "protocol": "istio-peer-exchange"})
    return extension("istio.metadata_exchange", config)


def stdout_log(fields: Mapping[str, str]) -> Extension:
    """An access log on standard output: one line a connection or request, a JSON object of `fields` (format strings).

    A field of one command that yields a number is a number; one without a value is null.
    """
    config = protos.envoy.extensions.access_loggers.stream.v3.StdoutAccessLog()
    config.log_format.json_format.update(dict(fields))
    return extension("envoy.access_loggers.stdout", config)


def access_logs(file: str, fields: Mapping[str, str]) -> tuple[AccessLog, ...]:
    """The access logs of what is not only written down when it fails: one in `file`, none if that is "".

    Lines are as those of `stdout_log`.
    """
    if not file:
        return ()
    if file == "/dev/stdout":  # by its own logger, since what is a socket cannot be opened by its name
        return (AccessLog(stdout_log(fields)),)
    config = protos.envoy.extensions.access_loggers.file.v3.FileAccessLog(path=file)
    config.log_format.json_format.update(dict(fields))
    return (AccessLog(extension("envoy.access_loggers.file", config)),)


def write_access_log(place: protos.envoy.config.accesslog.v3.AccessLog, log: AccessLog) -> None:
    """Fill an empty message."""
    write_extension(place, log.extension)
    if log.failures:
        place.filter.response_flag_filter.flags.append("UF")


def _write_states(
    place: RepeatedCompositeFieldContainer[protos.envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue],
    states: Iterable[FilterState],
) -> None:
    for state in states:
        value = place.add(object_key=state.key, factory_key=state.factory)
        value.format_string.text_format_source.inline_string = state.value
        value.shared_with_upstream = state.shared
