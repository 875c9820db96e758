"""What ingress gateways are told: two listeners that never change, and per host a scope, a cluster and a certificate.

For stock Envoys with certificates on demand (spec of the wire: xds.messages.http_connection_manager). Scopes are told
all at once; clusters, endpoints and certificates exist for every host but are sent when a gateway asks for their name.
All ingress gateways of a home are told the same, but for the addresses they listen on, so one more host costs its own
resources whoever listens. Their endpoints are made in `ingress_endpoints`.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from aggregator.graph import At, Collection, Graph, Source
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.networks import Networks, network_of
from aggregator.mesh.trust_domains import TrustDomains, accepted
from aggregator.security.certificates import Certificate
from aggregator.traffic.backends import Backend
from aggregator.traffic.hosts import Host, Hosts, Rule
from aggregator.traffic.ingresses import EXACT
from aggregator.views.view import ResourceKey, View, ViewKey, listen_address
from xds.encoded import Encoded, Resource, wrap
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE, Cluster, Discovered, encode_cluster
from xds.messages.filters import access_logs, tls_inspector
from xds.messages.hbone import (
    CONNECT_ORIGINATE,
    CONNECT_TIMEOUT,
    INNER_CONNECT_ORIGINATE,
    INTO_TUNNEL,
    OUTER_CONNECT_ORIGINATE,
    Profile,
    originating_clusters,
    originating_listeners,
    pooled_options,
)
from xds.messages.http_connection_manager import LOGGED, SCOPE_HEADERS, on_demand_tls, scoped_manager
from xds.messages.listener import (
    LISTENER_TYPE,
    FilterChain,
    Listener,
    ListenerFilter,
    SocketAddress,
    encode_listener,
)
from xds.messages.matcher import SERVER_NAME, ExactMatch, encode_matcher
from xds.messages.route import (
    NOT_FOUND,
    SCOPED_ROUTE_TYPE,
    TO_HTTPS,
    Answer,
    PathMatch,
    Route,
    Scope,
    ToCluster,
    encode_route,
    encode_scope,
)
from xds.messages.secret import ROOTS, SECRET_TYPE, WORKLOAD_CERTIFICATE, KeyPair, encode_key_pair

ROLE: Final = "ingress"
DEFAULT_CLASS: Final = "default"
"""The class of TLS settings of all hosts: a certificate of their own, no demands on clients."""
STANDING_CLUSTERS: Final = frozenset({CONNECT_ORIGINATE, INNER_CONNECT_ORIGINATE, OUTER_CONNECT_ORIGINATE})
"""The clusters a gateway is told without asking for their names; all others come on demand."""

HTTP_PORT: Final = 8080
HTTPS_PORT: Final = 8443
HANDSHAKE_TIMEOUT: Final = 10
"""Seconds a client has for its handshake, in which its host's certificate may have to be fetched."""

LONGEST_NAME: Final = 22
"""Characters of a text that Envoy keeps without memory of its own."""

_SHARED: Final = (CLUSTER_TYPE, ASSIGNMENT_TYPE, SCOPED_ROUTE_TYPE, SECRET_TYPE)
_HTTP2 = ("HTTP2", "GRPC")


class Sources(msgspec.Struct, frozen=True):
    """What the messages are made from."""

    mesh: Callable[[At], Mesh]
    trust_domains: TrustDomains
    networks: Networks
    hosts: Hosts
    backends: Collection[str, Backend]
    assignments: Collection[str, Resource]


def view_of(type_url: str, claimed: Callable[[str], str]) -> View | None:
    """The view an ingress gateway's subscription to `type_url` reads; None for types it is not served.

    `claimed` looks up what the gateway says of itself (`isthmus bootstrap`): where it listens. What is no address or
    port there is as if it were not said.
    """
    if type_url == LISTENER_TYPE:
        features = {
            "bind": listen_address(claimed("ISTHMUS_BIND")),
            "http-port": str(_port(claimed("ISTHMUS_HTTP_PORT")) or HTTP_PORT),
            "https-port": str(_port(claimed("ISTHMUS_HTTPS_PORT")) or HTTPS_PORT),
        }
        return View(ROLE, LISTENER_TYPE, tuple(features.items()))
    return View(ROLE, type_url) if type_url in _SHARED else None


def _port(text: str) -> int:
    """The port a text names; 0 if it names none."""
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16 else 0


def declare(
    graph: Graph, home: Home, views: Source[ViewKey, View], model: Sources
) -> list[Collection[ResourceKey, Resource]]:
    """Declare ingress gateways' resources; the result is what there is to publish."""
    named = graph.expand("ingress views", views, lambda _, __, view: ((view.name, view),) if view.role == ROLE else ())
    by_type = graph.index("ingress views by type", named, lambda _, view: (view.type_url,))

    def listeners(at: At, _name: str, view: View) -> Iterable[tuple[ResourceKey, Resource]]:
        if view.type_url == LISTENER_TYPE:
            network = network_of(at, model.networks.of_cluster, home.cluster)
            for listener in _listeners(dict(view.features), network, model.mesh(at).access_log_file):
                yield (view.name, listener.name), wrap(LISTENER_TYPE, listener.name, encode_listener(listener))

    def standing_clusters(at: At, _name: str, view: View) -> Iterable[tuple[ResourceKey, Resource]]:
        if view.type_url == CLUSTER_TYPE:
            trusted = accepted(model.mesh(at).trust_domain, model.trust_domains.others(at))
            for cluster in originating_clusters(Profile.STOCK, trusted):
                yield (view.name, cluster.name), wrap(CLUSTER_TYPE, cluster.name, encode_cluster(cluster))

    scopes = graph.expand("scopes of hosts", model.hosts.hosts, lambda _, host, one: ((scope_name(host), one),))
    return [
        graph.expand("listeners of ingress gateways", named, listeners),
        graph.expand("standing clusters of ingress gateways", named, standing_clusters),
        graph.pair(
            "scopes of ingress gateways",
            by_type,
            graph.index("scopes", scopes, lambda _, __: (SCOPED_ROUTE_TYPE,)),
            lambda _, __, name, host: wrap(SCOPED_ROUTE_TYPE, name, _scope(name, host)),
        ),
        graph.pair(
            "clusters of ingress gateways",
            by_type,
            graph.index("clusters of backends", model.backends, lambda _, __: (CLUSTER_TYPE,)),
            lambda _, __, name, backend: wrap(CLUSTER_TYPE, name, _cluster(backend)),
        ),
        graph.pair(
            "assignments of ingress gateways",
            by_type,
            graph.index("assignments", model.assignments, lambda _, __: (ASSIGNMENT_TYPE,)),
            lambda _, __, ___, assignment: assignment,
        ),
        graph.pair(
            "certificates of ingress gateways",
            by_type,
            graph.index("certificates to tell", model.hosts.certificates, lambda _, __: (SECRET_TYPE,)),
            lambda _, __, host, certificate: wrap(SECRET_TYPE, host, _secret(host, certificate)),
        ),
    ]


def scope_name(host: str) -> str:
    """The name of a host's routes: `<class>|<host>` where that is short, else a digest of it.

    Envoy copies the names of all scopes with every change of one. Up to LONGEST_NAME characters that costs it 50 ns a
    scope, beyond three times as much.
    """
    name = f"{DEFAULT_CLASS}|{host}"
    if len(name) <= LONGEST_NAME:
        return name
    # No digest that could be steered to another's, as hosts are chosen by many. "#" is in no host.
    digest = urlsafe_b64encode(blake2b(name.encode(), digest_size=18).digest()).decode()
    return f"#{digest[: LONGEST_NAME - 1]}"


# What is the same for all hosts.

_REFUSED: Final = "refused"
"""The name of no chain: who is sent there is hung up on."""
_CHAINS: Final = encode_matcher(
    # A client gets the certificate of the name it asks for: the gateway's own are no host's.
    ExactMatch(SERVER_NAME, tuple((name.lower(), _REFUSED) for name in (WORKLOAD_CERTIFICATE, ROOTS)), DEFAULT_CLASS)
)


def _listeners(features: Mapping[str, str], network: str, log_file: str) -> Iterable[Listener]:
    bind, http_port, https_port = features["bind"], int(features["http-port"]), int(features["https-port"])
    logs = access_logs(log_file, LOGGED)
    plain = scoped_manager("http", DEFAULT_CLASS, secure=False, access_logs=logs)
    secure = scoped_manager("https", DEFAULT_CLASS, secure=True, access_logs=logs)
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
    yield from originating_listeners(Profile.STOCK, network, "gateway")


# What there is of each host.


def _scope(name: str, host: Host) -> Encoded:
    routes = [_route(rule) for rule in host.rules]
    if host.tls is not None:
        routes.insert(0, TO_HTTPS)
    if not host.rules or (host.rules[-1].kind, host.rules[-1].path) != ("Prefix", "/"):
        routes.append(NOT_FOUND)
    return encode_scope(Scope(name, (DEFAULT_CLASS, host.host), host.host, tuple(routes), SCOPE_HEADERS))


def _route(rule: Rule) -> Encoded:
    if rule.kind == EXACT:
        match = PathMatch("exact", rule.path)
    else:
        match = PathMatch("everything") if rule.path == "/" else PathMatch("elements", rule.path)
    action = ToCluster(rule.backend) if rule.backend else Answer(503)
    return encode_route(Route(f"{rule.kind} {rule.path}", match, action))


def _secret(host: str, certificate: Certificate) -> Encoded:
    return encode_key_pair(KeyPair(host, certificate.chain, certificate.key))


_HTTP1_OPTIONS: Final = pooled_options()
_HTTP2_OPTIONS: Final = pooled_options(http2=True)


def _cluster(backend: Backend) -> Encoded:
    return encode_cluster(
        Cluster(
            backend.key,
            Discovered(),
            transport_socket=INTO_TUNNEL,
            http_options=_HTTP2_OPTIONS if backend.protocol in _HTTP2 else _HTTP1_OPTIONS,
            connect_timeout=CONNECT_TIMEOUT,
        )
    )
