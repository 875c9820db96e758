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

from aggregator.graph import At, Collection, Graph, Source
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.networks import Networks, network_of
from aggregator.mesh.trust_domains import TrustDomains, accepted
from aggregator.security.certificates import Certificate
from aggregator.security.trust_bundles import Bundle
from aggregator.traffic.backend_keys import MIRRORED
from aggregator.traffic.backends import Backend
from aggregator.traffic.hosts import Host, Hosts
from aggregator.traffic.ingress_references import AUTHORIZERS
from aggregator.traffic.tls_classes import COMMON, TlsClasses, class_name
from aggregator.views import ingress_backend_secrets
from aggregator.views.ingress_backend_secrets import BackendSecrets
from aggregator.views.ingress_clusters import CLUSTER_AGAIN, cluster
from aggregator.views.ingress_filters import NO_USERS, Able
from aggregator.views.ingress_listeners import listeners as listeners_of
from aggregator.views.ingress_routes import guard, scope, scope_again, scope_name
from aggregator.views.ingress_scopes import Served
from aggregator.views.secrets import pair_secret, roots_secret
from aggregator.views.view import ResourceKey, View, ViewKey, listen_address
from xds.encoded import Encoded, Resource, wrap
from xds.messages.assignment import ASSIGNMENT_TYPE
from xds.messages.cluster import CLUSTER_TYPE, encode_cluster
from xds.messages.fallback import AGAIN
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
from xds.messages.secret import SECRET_TYPE

ROLE: Final = "ingress"
STANDING_CLUSTERS: Final = frozenset(
    {CONNECT_ORIGINATE, INNER_CONNECT_ORIGINATE, OUTER_CONNECT_ORIGINATE, AGAIN}
)
"""Clusters of the gateway itself, which it is told without asking for their names (see `is_standing`)."""
STANDING_PREFIXES: Final = (f"{MIRRORED}|", AUTHORIZERS)
"""So do names of clusters begin that are told without being asked for, too: nobody asks for what copies are sent to, or
for who is asked about requests.
"""

HTTP_PORT: Final = 8080
HTTPS_PORT: Final = 8443
SCOPES: Final = View(ROLE, SCOPED_ROUTE_TYPE)
"""The view with the routes of all hosts, by scope."""
SCOPES_WITHOUT_USERS: Final = View(ROLE, SCOPED_ROUTE_TYPE, (("users", "none"),))
"""The same for gateways that have proven no identity: who has to be a user is let in nowhere."""
SCOPE_VIEWS: Final = (SCOPES, SCOPES_WITHOUT_USERS)
_SHARED: Final = (CLUSTER_TYPE, ASSIGNMENT_TYPE, SCOPED_ROUTE_TYPE, SECRET_TYPE)


class Sources(msgspec.Struct, frozen=True):
    """What the messages are made from."""

    mesh: Callable[[At], Mesh]
    trust_domains: TrustDomains
    networks: Networks
    hosts: Hosts
    scopes: Collection[str, Host | Served]
    classes: TlsClasses
    client_roots: Collection[str, Bundle]
    default_certificate: Collection[str, Certificate]
    backends: Collection[str, Backend]
    assignments: Collection[str, Resource]
    for_backends: BackendSecrets


def scope_keys(host: str, domain: Host | None) -> tuple[ResourceKey, ...]:
    """Where the resources Table holds the routes that gateways are told of a host, in each of the views that some
    gateway asks for.
    """
    scope_class = class_name(domain.speaks.settings) if domain is not None else COMMON
    names = dict.fromkeys((scope_name(host), scope_name(host, scope_class)))
    return tuple((view.name, name) for view in SCOPE_VIEWS for name in names)


def view_of(type_url: str, claimed: Callable[[str], str], *, proven: bool = True) -> View | None:
    """The view an ingress gateway's subscription to `type_url` reads; None for types it is not served.

    `claimed` looks up what the gateway says of itself (`isthmus bootstrap`): where it listens. What is no address or
    port there is as if it were not said. One whose identity is not `proven` is told no users: their paths are closed.
    """
    if type_url == SCOPED_ROUTE_TYPE and not proven:
        return SCOPES_WITHOUT_USERS
    if type_url == LISTENER_TYPE:
        return View(ROLE, LISTENER_TYPE, places(claimed))
    return View(ROLE, type_url) if type_url in _SHARED else None


def places(claimed: Callable[[str], str]) -> tuple[tuple[str, str], ...]:
    """Where a gateway listens, as features of a view."""
    features = {
        "bind": listen_address(claimed("ISTHMUS_BIND")),
        "http-port": str(_port(claimed("ISTHMUS_HTTP_PORT")) or HTTP_PORT),
        "https-port": str(_port(claimed("ISTHMUS_HTTPS_PORT")) or HTTPS_PORT),
    }
    return tuple(features.items())


def is_standing(cluster_name: str) -> bool:
    """Whether a gateway is told a cluster without asking for its name; all others come on demand, with requests that
    are sent there.
    """
    return cluster_name in STANDING_CLUSTERS or cluster_name.startswith(STANDING_PREFIXES)


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
            log_file, chains = model.mesh(at).access_log_file, model.classes.chains(at)
            for listener in listeners_of(dict(view.features), network, log_file, chains):
                yield (view.name, listener.name), wrap(LISTENER_TYPE, listener.name, encode_listener(listener))

    def standing_clusters(at: At, _name: str, view: View) -> Iterable[tuple[ResourceKey, Resource]]:
        if view.type_url == CLUSTER_TYPE:
            trusted = accepted(model.mesh(at).trust_domain, model.trust_domains.others(at))
            profile = Profile(view.feature("profile") or Profile.STOCK)
            for cluster in (*originating_clusters(profile, trusted), CLUSTER_AGAIN):
                yield (view.name, cluster.name), wrap(CLUSTER_TYPE, cluster.name, encode_cluster(cluster))

    def standing_scopes(_at: At, _name: str, view: View) -> Iterable[tuple[ResourceKey, Resource]]:
        if view.type_url == SCOPED_ROUTE_TYPE:
            yield (view.name, AGAIN), wrap(SCOPED_ROUTE_TYPE, AGAIN, scope_again(AGAIN))

    return [
        graph.expand("listeners of ingress gateways", named, listeners),
        graph.expand("standing clusters of ingress gateways", named, standing_clusters),
        graph.expand("standing scopes of ingress gateways", named, standing_scopes),
        graph.pair(
            "scopes of ingress gateways",
            by_type,
            graph.index("scopes", model.scopes, lambda _, __: (SCOPED_ROUTE_TYPE,)),
            lambda _, view, name, one: wrap(SCOPED_ROUTE_TYPE, name, _scope(name, one, view)),
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
            graph.index(
                "certificates to tell",
                (model.hosts.certificates, model.default_certificate),
                lambda _, __: (SECRET_TYPE,),
            ),
            lambda _, __, host, one: pair_secret(host, one),
        ),
        graph.pair(
            "client roots of ingress gateways",
            by_type,
            graph.index("client roots to tell", model.client_roots, lambda _, __: (SECRET_TYPE,)),
            lambda _, __, name, one: roots_secret(name, one),
        ),
        *ingress_backend_secrets.told(graph, "ingress gateways", by_type, model.for_backends),
    ]


def _scope(name: str, one: Host | Served, view: View) -> Encoded:
    if isinstance(one, Host):
        return scope(name, one)
    able = Able(NO_USERS if view == SCOPES_WITHOUT_USERS else one.users_by_name)
    return guard(name, one.host, able) if one.guarded else scope(name, one.host, one.scope_class, able)
