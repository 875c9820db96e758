"""Clusters of ingress gateways: how a backend is spoken to. Its endpoints are made in `ingress_endpoints`.

In: backends (traffic.backends). Out: bytes. What Ingresses want of connections applies inside of tunnels as outside:
TLS to a pod in the mesh is TLS within the mesh's own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from aggregator.traffic.backends import Backend
from xds.encoded import Encoded
from xds.messages.backend_tls import BackendTLS, backend_tls, secret_name
from xds.messages.cluster import Balancing, Cluster, Discovered, InternalListener, encode_cluster
from xds.messages.extension import Extension
from xds.messages.fallback import AGAIN
from xds.messages.hbone import (
    CONNECT_TIMEOUT,
    DESTINATION,
    INTO_TUNNEL,
    TUNNEL,
    downstream_options,
    internal_upstream,
    pooled_options,
)

_HTTP2 = ("HTTP2", "GRPC")
_HTTP1_OPTIONS: Final = pooled_options()
_HTTP2_OPTIONS: Final = pooled_options(http2=True)
_BALANCING: Final = {
    "": Balancing.LEAST_REQUEST,
    "round": Balancing.ROUND_ROBIN,
    "ring": Balancing.RING_HASH,
}

CLUSTER_AGAIN: Final = Cluster(
    AGAIN, InternalListener(AGAIN), transport_socket=internal_upstream(), http_options=downstream_options()
)
"""The way of requests that go through the gateway once more (xds.messages.fallback)."""


def cluster(backend: Backend) -> Encoded:
    """The cluster of a backend, as bytes."""
    asked = backend.connections
    http2 = asked.protocol in ("grpc", "grpcs") or (not asked.protocol and backend.protocol in _HTTP2)
    return encode_cluster(
        Cluster(
            backend.key,
            Discovered(),
            transport_socket=_within_tls(_tls(backend, http2)) if asked.tls else INTO_TUNNEL,
            http_options=_HTTP2_OPTIONS if http2 else _HTTP1_OPTIONS,
            connect_timeout=asked.timeout or CONNECT_TIMEOUT,
            balancing=_BALANCING[asked.balancing],
        )
    )


@lru_cache(256)
def _within_tls(tls: BackendTLS) -> Extension:
    return internal_upstream(DESTINATION, TUNNEL, inside=backend_tls(tls))


def _tls(backend: Backend, http2: bool) -> BackendTLS:
    asked = backend.connections
    namespace, _, hostname = backend.service.partition("/")
    # As clients in the cluster call it; the name in full comes first.
    names = (asked.name,) if asked.name else (hostname, hostname[: hostname.index(".svc") + 4])
    return BackendTLS(
        http2=http2,
        server_name=names[0] if asked.sni else "",
        pair=secret_name("pair", namespace, asked.secret) if backend.shown else "",
        roots=secret_name("roots", namespace, asked.secret) if asked.verify else "",
        names=names if asked.verify else (),
        depth=asked.depth,
        versions=(int(asked.versions[0]), int(asked.versions[1])) if asked.versions else None,
    )
