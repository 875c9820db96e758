"""Listeners of ingress gateways: the same bytes however many hosts there are, as a change of them costs connections.

In: the classes of TLS settings (traffic.tls_classes), and where a gateway listens. Out: records of listeners. A chain
for each class, and a matcher that picks it by the name a client asks for; of that the exceptions alone are listed. A
gateway takes a change of the matcher, and a chain that comes or goes, without touching what is open in other chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from aggregator.traffic.annotations.tls import TlsSettings
from aggregator.traffic.tls_classes import COMMON, REFUSED, Chain, Chains, roots_name
from xds.messages.downstream_tls import Clients, DownstreamTls, downstream_tls
from xds.messages.fallback import AGAIN
from xds.messages.filters import AccessLog, access_logs, tcp_proxy, tls_inspector
from xds.messages.hbone import Profile, internal_listener, originating_listeners
from xds.messages.http_connection_manager import LOGGED, ClientDetails, manager_again, scoped_manager
from xds.messages.http_filters import CLUSTER_TIMEOUT
from xds.messages.listener import FilterChain, Listener, ListenerFilter, SocketAddress
from xds.messages.matcher import SERVER_NAME, ServerNameMatch, Unlike, encode_matcher
from xds.messages.secret import ROOTS, WORKLOAD_CERTIFICATE

HANDSHAKE_TIMEOUT: Final = 10
"""Seconds a client has for its handshake, in which its host's certificate may have to be fetched."""

_OWN_NAMES: Final = (WORKLOAD_CERTIFICATE, ROOTS.lower())
"""A client gets the certificate of the name it asks for: the gateway's own are no host's."""
_NO_HOST: Final = "[^a-z0-9.-]"
"""What is in no host's name, but in names of credentials; upper case is lower case by then."""


def listeners(features: Mapping[str, str], network: str, log_file: str, chains: Chains) -> Iterable[Listener]:
    """The listeners of a gateway in `network` that binds to what `features` say, and writes its log to `log_file`."""
    bind, http_port, https_port = features["bind"], int(features["http-port"]), int(features["https-port"])
    logs = access_logs(log_file, LOGGED)
    plain = scoped_manager("http", COMMON, secure=False, wildcards=True, access_logs=logs)
    yield Listener("http", (FilterChain((plain,), name=COMMON),), address=SocketAddress(bind, http_port))
    yield Listener(
        "https",
        tuple(_filter_chain(chain, logs) for chain in (Chain(COMMON), *chains.chains)),
        address=SocketAddress(bind, https_port),
        listener_filters=(ListenerFilter(tls_inspector()),),
        matcher=_matcher(chains.names),
    )
    yield internal_listener(AGAIN, manager_again(logs), restore_destination=False)
    yield from originating_listeners(Profile.STOCK, network, "gateway")


def _matcher(names: tuple[tuple[str, tuple[str, ...]], ...]) -> bytes:
    listed = dict(names)
    listed[REFUSED] = (*_OWN_NAMES, *(name for name in listed.get(REFUSED, ()) if name not in _OWN_NAMES))
    matches = tuple(
        (tuple(name for name in hosts if chain == REFUSED or name not in _OWN_NAMES), chain)
        for chain, hosts in sorted(listed.items())
    )
    by_name = ServerNameMatch(tuple(one for one in matches if one[0]), COMMON)
    return encode_matcher(Unlike(SERVER_NAME, _NO_HOST, REFUSED, by_name))


@lru_cache(maxsize=512)
def _filter_chain(chain: Chain, logs: tuple[AccessLog, ...]) -> FilterChain:
    if chain.backend:
        passed = tcp_proxy(chain.backend, "passthrough", access_logs=logs, cluster_timeout=CLUSTER_TIMEOUT)
        return FilterChain((passed,), name=chain.name)
    settings = chain.settings
    clients = _details(settings)
    manager = scoped_manager(
        "https", chain.scope_class, secure=True, wildcards=True, access_logs=logs, clients=clients
    )
    return FilterChain(
        (manager,),
        name=chain.name,
        transport_socket=downstream_tls(
            DownstreamTls(chain.certificate, _clients(settings), settings.ciphers, settings.least, settings.most)
        ),
        handshake_timeout=HANDSHAKE_TIMEOUT,
    )


def _clients(settings: TlsSettings) -> Clients | None:
    if not settings.roots:
        return None
    required, unverified = settings.verify == "on", settings.verify == "optional_no_ca"
    return Clients(roots_name(settings.roots), settings.depth, required, unverified)


def _details(settings: TlsSettings) -> ClientDetails | None:
    if not settings.roots:
        return None
    return ClientDetails(settings.verify == "on", settings.passed_on, settings.names)
