"""Listeners of ingress gateways: the same bytes however many hosts there are, as a change of them costs connections.

A chain for each class of TLS settings, and a matcher that picks it by the name a client asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aggregator.views.ingress_routes import DEFAULT_CLASS
from xds.messages.fallback import AGAIN
from xds.messages.filters import access_logs, tls_inspector
from xds.messages.hbone import Profile, internal_listener, originating_listeners
from xds.messages.http_connection_manager import LOGGED, manager_again, on_demand_tls, scoped_manager
from xds.messages.listener import FilterChain, Listener, ListenerFilter, SocketAddress
from xds.messages.matcher import SERVER_NAME, ExactMatch, encode_matcher
from xds.messages.secret import ROOTS, WORKLOAD_CERTIFICATE

HANDSHAKE_TIMEOUT: Final = 10
"""Seconds a client has for its handshake, in which its host's certificate may have to be fetched."""

_REFUSED: Final = "refused"
"""The name of no chain: who is sent there is hung up on."""
_CHAINS: Final = encode_matcher(
    # A client gets the certificate of the name it asks for: the gateway's own are no host's.
    ExactMatch(SERVER_NAME, tuple((name.lower(), _REFUSED) for name in (WORKLOAD_CERTIFICATE, ROOTS)), DEFAULT_CLASS)
)


def listeners(features: Mapping[str, str], network: str, log_file: str) -> Iterable[Listener]:
    """The listeners of a gateway in `network` that binds to what `features` say, and writes its log to `log_file`."""
    bind, http_port, https_port = features["bind"], int(features["http-port"]), int(features["https-port"])
    logs = access_logs(log_file, LOGGED)
    plain = scoped_manager("http", DEFAULT_CLASS, secure=False, wildcards=True, access_logs=logs)
    secure = scoped_manager("https", DEFAULT_CLASS, secure=True, wildcards=True, access_logs=logs)
    yield Listener("http", (FilterChain((plain,), name=DEFAULT_CLASS),), address=SocketAddress(bind, http_port))
    yield Listener(
        "https",
        (
            FilterChain(
                (secure,),
                name=DEFAULT_CLASS,
                transport_socket=on_demand_tls(),
                handshake_timeout=HANDSHAKE_TIMEOUT,
            ),
        ),
        address=SocketAddress(bind, https_port),
        listener_filters=(ListenerFilter(tls_inspector()),),
        matcher=_CHAINS,
    )
    yield internal_listener(AGAIN, manager_again(logs), restore_destination=False)
    yield from originating_listeners(Profile.STOCK, network, "gateway")
