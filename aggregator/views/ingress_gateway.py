"""What ingress gateways are told: two listeners that never change, and per host a scope, a cluster and a certificate.

For stock Envoys with certificates on demand (spec of the wire: xds.messages.http_connection_manager). Scopes are told
all at once; clusters, endpoints and certificates exist for every host but are sent when a gateway asks for their name.
All ingress gateways of a home are told the same, but for the addresses they listen on, so one more host costs its own
resources whoever listens. Their endpoints are made in `ingress_endpoints`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.networks import Networks, network_of
from aggregator.mesh.trust_domains import TrustDomains, accepted
from aggregator.security.certificates import Certificate
from aggregator.traffic.backends import Backend
from aggregator.traffic.hosts import Host, Hosts
from aggregator.traffic.ingress_references import AUTHORIZERS
from aggregator.traffic.ingress_secrets import IngressSecrets
from aggregator.views.ingress_clusters import cluster
from aggregator.views.ingress_filters import NO_USERS
from aggregator.views.ingress_listeners import listeners as listeners_of
from aggregator.views.ingress_routes import scope, scope_name
from aggregator.views.view import ResourceKey, View, ViewKey, listen_address
from xds.encoded import Encoded, Resource, wrap
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.backend_tls import secret_name
from xds.messages.cluster import CLUSTER_TYPE, encode_cluster
from xds.messages.hbone import (
    CONNECT_ORIGINATE,
    INNER_CONNECT_ORIGINATE,
    OUTER_CONNECT_ORIGINATE,
    Profile,
    originating_clusters,
)
from xds.messages.listener import (
    LISTENER_TYPE,
    encode_listener,
)
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE, KeyPair, TrustedRoots, encode_key_pair, encode_roots

ROLE: Final = "ingress"
_TUNNELS: Final = frozenset({CONNECT_ORIGINATE, INNER_CONNECT_ORIGINATE, OUTER_CONNECT_ORIGINATE})

HTTP_PORT: Final = 8080
HTTPS_PORT: Final = 8443
_SHARED: Final = (CLUSTER_TYPE, ASSIGNMENT_TYPE, SCOPED_ROUTE_TYPE, SECRET_TYPE)


class Sources(msgspec.Struct, frozen=True):
    """What the messages are made from."""

    mesh: Callable[[At], Mesh]
    trust_domains: TrustDomains
    networks: Networks
    hosts: Hosts
    backends: Collection[str, Backend]
    assignments: Collection[str, Resource]
    secrets: IngressSecrets


class Served(msgspec.Struct, frozen=True, gc=False):
    """A host, and the users of the Secrets that its rules name: (namespace, name) and lines, without those that hold
    none.
    """

    host: Host
    users: tuple[tuple[tuple[str, str], str], ...] = ()

    def __repr__(self) -> str:
        return f"Served({self.host.host!r})"


def view_of(type_url: str, claimed: Callable[[str], str], *, proven: bool = True) -> View | None:
    """The view an ingress gateway's subscription to `type_url` reads; None for types it is not served.

    `claimed` looks up what the gateway says of itself (`isthmus bootstrap`): where it listens. What is no address or
    port there is as if it were not said. One whose identity is not `proven` is told no users: their paths are closed.
    """
    if type_url == SCOPED_ROUTE_TYPE and not proven:
        return View(ROLE, SCOPED_ROUTE_TYPE, (("users", "none"),))
    if type_url == LISTENER_TYPE:
        features = {
            "bind": listen_address(claimed("ISTHMUS_BIND")),
            "http-port": str(_port(claimed("ISTHMUS_HTTP_PORT")) or HTTP_PORT),
            "https-port": str(_port(claimed("ISTHMUS_HTTPS_PORT")) or HTTPS_PORT),
        }
        return View(ROLE, LISTENER_TYPE, tuple(features.items()))
    return View(ROLE, type_url) if type_url in _SHARED else None


def is_standing(cluster_name: str) -> bool:
    """Whether a gateway is told a cluster without asking for its name; all others come on demand, with requests that
    are sent there. Those that are asked about requests no request is sent to.
    """
    return cluster_name in _TUNNELS or cluster_name.startswith(AUTHORIZERS)


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
            for listener in listeners_of(dict(view.features), network, model.mesh(at).access_log_file):
                yield (view.name, listener.name), wrap(LISTENER_TYPE, listener.name, encode_listener(listener))

    def standing_clusters(at: At, _name: str, view: View) -> Iterable[tuple[ResourceKey, Resource]]:
        if view.type_url == CLUSTER_TYPE:
            trusted = accepted(model.mesh(at).trust_domain, model.trust_domains.others(at))
            for cluster in originating_clusters(Profile.STOCK, trusted):
                yield (view.name, cluster.name), wrap(CLUSTER_TYPE, cluster.name, encode_cluster(cluster))

    def served(at: At, name: str, host: Host) -> Iterable[tuple[str, Outcome[Served]]]:
        users: dict[tuple[str, str], str] = {}
        for rule in host.rules:
            named = rule.settings.policies.authentication.users
            if named is None:
                continue
            place = at.get(model.secrets.places, ("users", named.namespace, named.name))
            if place is None or place.pending:
                yield scope_name(name), Withheld("UsersPending")
                return
            found = at.get(model.secrets.users, ("users", named.namespace, named.name))
            if found is not None:
                users[named.namespace, named.name] = found.lines
        yield scope_name(name), Served(host, tuple(sorted(users.items())))

    def told(_: str, view: View, name: str, one: Served) -> Resource:
        users = NO_USERS if view.feature("users") == "none" else dict(one.users)
        return wrap(SCOPED_ROUTE_TYPE, name, scope(name, one.host, users))

    scopes = graph.expand("scopes of hosts", model.hosts.hosts, served)
    backend_pairs = graph.expand(
        "pairs for backends by name",
        model.secrets.pairs,
        lambda _, key, one: ((secret_name("pair", *key[1:]), one),),
    )
    backend_roots = graph.expand(
        "roots of backends by name",
        model.secrets.roots,
        lambda _, key, one: ((secret_name("roots", *key[1:]), one),),
    )
    return [
        graph.expand("listeners of ingress gateways", named, listeners),
        graph.expand("standing clusters of ingress gateways", named, standing_clusters),
        graph.pair(
            "scopes of ingress gateways",
            by_type,
            graph.index("scopes", scopes, lambda _, __: (SCOPED_ROUTE_TYPE,)),
            told,
        ),
        graph.pair(
            "clusters of ingress gateways",
            by_type,
            graph.index("clusters of backends", model.backends, lambda _, __: (CLUSTER_TYPE,)),
            lambda _, __, name, backend: wrap(CLUSTER_TYPE, name, cluster(backend)),
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
        graph.pair(
            "pairs of ingress gateways for backends",
            by_type,
            graph.index("pairs to tell", backend_pairs, lambda _, __: (SECRET_TYPE,)),
            lambda _, __, name, pair: wrap(SECRET_TYPE, name, _secret(name, pair)),
        ),
        graph.pair(
            "roots of ingress gateways for backends",
            by_type,
            graph.index("roots to tell", backend_roots, lambda _, __: (SECRET_TYPE,)),
            lambda _, __, name, one: wrap(SECRET_TYPE, name, encode_roots(TrustedRoots(name, one.roots, one.crl))),
        ),
    ]


def _secret(host: str, certificate: Certificate) -> Encoded:
    return encode_key_pair(KeyPair(host, certificate.chain, certificate.key))
