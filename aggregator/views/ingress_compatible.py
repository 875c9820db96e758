"""What ingress gateways in compatibility mode are told: all hosts in two listeners and one table of routes.

For proxies that speak the state-of-the-world variant, or are built without what `ingress_gateway` needs. Whatever is of
one host is encoded for that host alone, where it changes: its virtual host, its line in the matcher that picks a chain.
Of 256 parts of each table the one it is in is joined anew, and the table of its parts, so that one more host costs the
control plane a copy. It costs the wire and the proxy the whole table all the same, which is why there is another
mode.

Chains stand for certificates and not for hosts (`ingress_chains`), and the matcher is outside of them: a host that
comes or goes leaves the chains of all others as they are, and no connection is drained. Clusters and endpoints are
those of the other mode, all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec

from aggregator.cache.merkle import bucket_of
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.networks import Networks, network_of
from aggregator.security.certificates import Certificate
from aggregator.traffic.annotations.tls import NO_TLS_SETTINGS
from aggregator.traffic.hosts import Host, Hosts
from aggregator.traffic.tls_classes import COMMON, REFUSED
from aggregator.views import ingress_backend_secrets, ingress_chains, ingress_gateway
from aggregator.views.ingress_backend_secrets import BackendSecrets
from aggregator.views.ingress_chains import ALL
from aggregator.views.ingress_filters import ALL_ABLE, NO_USERS, Able
from aggregator.views.ingress_listeners import HANDSHAKE_TIMEOUT
from aggregator.views.ingress_routes import guard_routes, routes
from aggregator.views.ingress_scopes import Served
from aggregator.views.secrets import pair_secret
from aggregator.views.view import ResourceKey, View, ViewKey
from watchers.facts.keys import ObjectKey
from xds.encoded import Encoded, Resource, wrap
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.downstream_tls import NO_NAME
from xds.messages.extension import Extension
from xds.messages.filters import access_logs, tls_inspector
from xds.messages.hbone import Profile, originating_listeners
from xds.messages.http_connection_manager import LOGGED, named_tls, table_manager
from xds.messages.http_filters import ON_DEMAND
from xds.messages.listener import (
    LISTENER_TYPE,
    FilterChain,
    Listener,
    ListenerFilter,
    SocketAddress,
    compose_listener,
    encode_chains,
    encode_listener,
)
from xds.messages.route_table import ROUTE_TYPE, compose_table, encode_virtual_hosts, within_one_label
from xds.messages.scope import encode_virtual_host
from xds.messages.secret import SECRET_TYPE
from xds.messages.server_names import compose_names, encode_names, encode_wildcards

ROLE: Final = "ingress-compatible"
ROUTES: Final = View(ROLE, ROUTE_TYPE)
"""The view with the routes for gateways that lack nothing and have proven who they are."""
TABLE: Final = COMMON
"""The name of the table of routes."""

_NOBODY: Final = encode_names(((NO_NAME, REFUSED),))
"""A matcher must not be empty, nor a listener without a chain."""

Part: TypeAlias = tuple[str, int]
"""("all" or the view, number): one of the 256 parts of a table."""
P = TypeVar("P")


class Sources(msgspec.Struct, frozen=True):
    """What the messages are made from, beside what gateways in the other mode are told."""

    mesh: Callable[[At], Mesh]
    networks: Networks
    hosts: Hosts
    scopes: Collection[str, Host | Served]
    certificates: Collection[ObjectKey, Certificate]
    for_backends: BackendSecrets


class Names(msgspec.Struct, frozen=True, gc=False):
    """A part of the matcher: exact names, and wildcards."""

    exact: Encoded
    wildcards: Encoded


def view_of(
    type_url: str,
    claimed: Callable[[str], str],
    *,
    profile: Profile,
    lacking: Iterable[str] = (),
    proven: bool = True,
) -> View | None:
    """The view that a gateway's subscription reads; None for types it is not served.

    `claimed` and `proven` are as in `ingress_gateway.view_of`; `lacking` are the HTTP filters the gateway is built
    without. Scopes are served too: a gateway that was served on demand before reads them until its listeners are
    replaced.
    """
    if type_url == LISTENER_TYPE:
        features = (*ingress_gateway.places(claimed), ("profile", profile.value), *_without(lacking))
        return View(ROLE, type_url, features)
    if type_url == CLUSTER_TYPE and profile is not Profile.STOCK:
        return View(ingress_gateway.ROLE, type_url, (("profile", profile.value),))
    if type_url == SECRET_TYPE:
        return View(ROLE, type_url)
    if type_url == ROUTE_TYPE:
        return routes_view(lacking, proven=proven)
    return ingress_gateway.view_of(type_url, claimed, proven=proven)


def routes_view(lacking: Iterable[str] = (), *, proven: bool = True) -> View:
    """The view with the table of routes. What would need a filter that is not there is closed or left out in it
    (ingress_filters), and so is what is for users if the gateway has not proven who it is.
    """
    users = () if proven else (("users", "none"),)
    return View(ROLE, ROUTE_TYPE, (*users, *_without(lacking)))


def _without(lacking: Iterable[str]) -> tuple[tuple[str, str], ...]:
    # The one that fetches clusters is not installed anyhow.
    names = ",".join(sorted(one for one in lacking if one != ON_DEMAND))
    return (("without", names),) if names else ()


def _lacking(view: View) -> frozenset[str]:
    return frozenset(view.feature("without").split(",")) - {""}


def declare(
    graph: Graph, home: Home, views: Source[ViewKey, View], model: Sources
) -> list[Collection[ResourceKey, Resource]]:
    """Declare the resources of gateways in this mode; the result is what there is to publish."""
    named = graph.expand(
        "compatible views", views, lambda _, __, view: ((view.name, view),) if view.role == ROLE else ()
    )
    by_type = graph.index("compatible views by type", named, lambda _, view: (view.type_url,))
    # While nobody is told them, virtual hosts and chains are not made either.
    present = graph.fold("number of compatible views", named, lambda _, __: ((ALL, ALL, 1),))
    anybody = graph.derive("presence of compatible views", present, lambda _, __, ___: True)
    asked = graph.index("compatible views at all", anybody, lambda _, __: (ALL,))
    chains = ingress_chains.declare(graph, asked, model.hosts, model.certificates)

    # Routes.
    virtual_hosts = graph.pair(
        "virtual hosts",
        by_type,
        graph.index("hosts to route", model.scopes, lambda _, one: (ROUTE_TYPE,) if _of_common_class(one) else ()),
        lambda _, view, __, one: _virtual_host(view, one),
    )
    parts_of_routes = graph.derive(
        "parts of routes",
        graph.index("virtual hosts by part", virtual_hosts, _part),
        lambda _, __, members: encode_virtual_hosts(members[key] for key in sorted(members)),
    )
    all_routes = graph.index("parts of routes by table", parts_of_routes, lambda key, _: (key[0],))

    def table(at: At, _name: str, view: View) -> Iterable[tuple[ResourceKey, Resource]]:
        if view.type_url == ROUTE_TYPE:
            composed = compose_table(TABLE, _in_order(at.group(all_routes, view.name)))
            yield (view.name, TABLE), wrap(ROUTE_TYPE, TABLE, composed)

    # Listeners.
    parts_of_names = graph.derive(
        "parts of server names", graph.index("server names by part", chains.of_hosts, _part), _names
    )
    all_names = graph.index("parts of server names by table", parts_of_names, lambda key, _: (key[0],))

    def manager(at: At, _name: str, view: View) -> Outcome[Extension]:
        if view.type_url != LISTENER_TYPE:
            return Withheld("ViewOfOtherType")
        return _manager("https", view, model.mesh(at))

    managers = graph.derive("managers of compatible listeners", named, manager)
    told_chains = graph.pair(
        "chains of compatible listeners",
        by_type,
        graph.index("chains to tell", chains.certificates, lambda _, __: (LISTENER_TYPE,)),
        lambda _, __, name, ___: name,
    )

    def part_of_chains(at: At, key: Part, members: Mapping[tuple[str, str], str]) -> Outcome[Encoded]:
        serving = at.get(managers, key[0])
        if serving is None:
            return Withheld("ViewOfOtherType")
        return encode_chains(
            FilterChain((serving,), name, named_tls(name), HANDSHAKE_TIMEOUT) for name in sorted(members.values())
        )

    parts_of_chains = graph.derive(
        "parts of chains", graph.index("chains by part", told_chains, _part), part_of_chains
    )
    all_chains = graph.index("parts of chains by listener", parts_of_chains, lambda key, _: (key[0],))

    def listeners(at: At, name: str, view: View) -> Iterable[tuple[ResourceKey, Resource]]:
        if view.type_url != LISTENER_TYPE:
            return
        mesh = model.mesh(at)
        bind = view.feature("bind")
        plain = FilterChain((_manager("http", view, mesh),), name=COMMON)
        http = Listener("http", (plain,), address=SocketAddress(bind, int(view.feature("http-port"))))
        network = network_of(at, model.networks.of_cluster, home.cluster)
        for one in (http, *originating_listeners(Profile(view.feature("profile")), network, "gateway")):
            yield (name, one.name), wrap(LISTENER_TYPE, one.name, encode_listener(one))
        names = _in_order(at.group(all_names, ALL))
        matcher = compose_names((_NOBODY, *(part.exact for part in names)), (part.wildcards for part in names))
        https = Listener(
            "https",
            (FilterChain((), name=REFUSED),),
            address=SocketAddress(bind, int(view.feature("https-port"))),
            listener_filters=(ListenerFilter(tls_inspector()),),
        )
        composed = compose_listener(https, _in_order(at.group(all_chains, name)), matcher)
        yield (name, https.name), wrap(LISTENER_TYPE, https.name, composed)

    return [
        graph.expand("tables of compatible gateways", named, table),
        graph.expand("listeners of compatible gateways", named, listeners),
        graph.pair(
            "certificates of compatible gateways",
            by_type,
            graph.index("certificates of chains to tell", chains.certificates, lambda _, __: (SECRET_TYPE,)),
            lambda _, __, name, one: pair_secret(name, one),
        ),
        *ingress_backend_secrets.told(graph, "compatible gateways", by_type, model.for_backends),
    ]


def _of_common_class(one: Host | Served) -> bool:
    return isinstance(one, Host) or one.scope_class == COMMON


def _virtual_host(view: View, one: Host | Served) -> Encoded:
    """That of a host as gateways of the view are told it."""
    host, users = (one, NO_USERS) if isinstance(one, Host) else (one.host, one.users_by_name)
    return virtual_host(host, Able(NO_USERS if view.feature("users") == "none" else users, _lacking(view)))


def virtual_host(host: Host, able: Able = ALL_ABLE) -> Encoded:
    """The virtual host of a host, as bytes: the routes of its scope, for its name."""
    found = routes(host, COMMON, able) if host.speaks == NO_TLS_SETTINGS else guard_routes(host, able)
    name = host.host or "*"
    if name.startswith("*."):
        found = tuple(within_one_label(route, name[2:]) for route in found)
    return encode_virtual_host(name, (name or "*",), found)


def _part(key: tuple[str, str], _: object) -> Iterable[Part]:
    """The part in which a host or a chain is, which is the same in every process."""
    return ((key[0], bucket_of((key[1],))),)


def _in_order(parts: Mapping[Part, P]) -> list[P]:
    return [parts[key] for key in sorted(parts)]


def _names(_at: At, _key: Part, chains: Mapping[tuple[str, str], str]) -> Names:
    cases = [(key[1], chains[key]) for key in sorted(chains)]
    return Names(
        encode_names(case for case in cases if not case[0].startswith("*.")),
        encode_wildcards(case for case in cases if case[0].startswith("*.")),
    )


def _manager(name: str, view: View, mesh: Mesh) -> Extension:
    return table_manager(
        name,
        TABLE,
        secure=name == "https",
        access_logs=access_logs(mesh.access_log_file, LOGGED),
        without=_lacking(view),
    )
