"""Clusters of ingress gateways: how a backend is spoken to. Its endpoints are made in `ingress_endpoints`.

In: backends (traffic.backends). Out: bytes.
"""

from __future__ import annotations

from typing import Final

from aggregator.traffic.backends import Backend
from xds.encoded import Encoded
from xds.messages.cluster import Cluster, Discovered, InternalListener, encode_cluster
from xds.messages.fallback import AGAIN
from xds.messages.hbone import CONNECT_TIMEOUT, INTO_TUNNEL, downstream_options, internal_upstream, pooled_options

_HTTP2 = ("HTTP2", "GRPC")
_HTTP1_OPTIONS: Final = pooled_options()
_HTTP2_OPTIONS: Final = pooled_options(http2=True)

CLUSTER_AGAIN: Final = Cluster(
    AGAIN, InternalListener(AGAIN), transport_socket=internal_upstream(), http_options=downstream_options()
)
"""The way of requests that go through the gateway once more (xds.messages.fallback)."""


def cluster(backend: Backend) -> Encoded:
    """The cluster of a backend, as bytes."""
    return encode_cluster(
        Cluster(
            backend.key,
            Discovered(),
            transport_socket=INTO_TUNNEL,
            http_options=_HTTP2_OPTIONS if backend.protocol in _HTTP2 else _HTTP1_OPTIONS,
            connect_timeout=CONNECT_TIMEOUT,
        )
    )
