"""Whether workloads of home accept connections without mutual TLS: PeerAuthentications, as policies that refuse them.

A node proxy knows no modes: it is told of policies that deny whoever has no identity, and which workload each is for.
Of several PeerAuthentications at one level (the mesh, a namespace, a selector in a namespace) the oldest counts, and
UNSET is whatever the level above says; at the top that is PERMISSIVE. Names are Istio's, so a fleet can move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Sums, Withheld
from aggregator.mesh.home import Home, Mesh
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.order import rank
from aggregator.security.authorization_policies import Policy
from aggregator.security.layer4 import Group, Match
from watchers.facts.istio_security import Mode, PeerAuthentication
from watchers.facts.keys import Labels, ObjectKey

STATIC_STRICT = "istio_converted_static_strict"
CONVERTED = "converted_peer_authentication_"

_ANY = "any"
_NO_IDENTITY = Match(not_principals=("*",))


class PeerAuthentications(msgspec.Struct, frozen=True):
    """The part of the graph this module declares: policies for selectors' ports, by the object they are made of, and
    the one that refuses everything without identity, under "any" while there is any PeerAuthentication.
    """

    converted: Collection[ObjectKey, Policy]
    static_strict: Collection[str, Policy]
    of_namespaces: Index[str, ObjectKey, PeerAuthentication]
    by_selector: Index[tuple[str, tuple[str, str]], ObjectKey, PeerAuthentication]


def declare(
    graph: Graph,
    home: Home,
    mesh: Callable[[At], Mesh],
    includes: Includes,
    given: Source[ObjectKey, PeerAuthentication],
) -> PeerAuthentications:
    """Declare what PeerAuthentications come to."""

    def selected(at: At, key: ObjectKey, one: PeerAuthentication) -> Outcome[PeerAuthentication]:
        return one if includes(at, key[0], key[2]) else UNSELECTED

    objects = graph.derive("selected peer authentications", given, selected)

    def counts(key: ObjectKey, one: PeerAuthentication) -> bool:
        return key[0] == home.cluster and home.serves(one.revision)

    def of_namespace(key: ObjectKey, one: PeerAuthentication) -> Iterable[str]:
        return (key[2],) if counts(key, one) and not one.selector else ()

    def selector_group(key: ObjectKey, one: PeerAuthentication) -> Iterable[tuple[str, tuple[str, str]]]:
        return ((key[2], one.selector[0]),) if counts(key, one) and one.selector else ()

    of_namespaces = graph.index("peer authentications of namespaces", objects, of_namespace)
    by_selector = graph.index("peer authentications by selector", objects, selector_group)
    existing = graph.fold(
        "peer authentications", objects, lambda key, one: (((_ANY, "any", 1),) if counts(key, one) else ())
    )

    def converted(at: At, key: ObjectKey, one: PeerAuthentication) -> Outcome[Policy]:
        namespace, name = key[2:]
        if not counts(key, one) or not one.selector or namespace == mesh(at).root_namespace:
            return Withheld("PeerAuthenticationHasNoPolicy")
        groups = _groups(one, _inherited(at, of_namespaces, mesh(at), namespace))
        if not groups:
            return Withheld("PeerAuthenticationHasNoPolicy")
        return Policy(namespace, f"{CONVERTED}{name}", "workload", True, groups)

    def static_strict(at: At, _key: str, _count: Sums) -> Policy:
        return Policy(mesh(at).root_namespace, STATIC_STRICT, "workload", True, (((_NO_IDENTITY,),),))

    return PeerAuthentications(
        graph.derive("policies of peer authentications", objects, converted),
        graph.derive("static strict policy", existing, static_strict),
        of_namespaces,
        by_selector,
    )


def enforcing(at: At, settings: Mesh, declared: PeerAuthentications, namespace: str, labels: Labels) -> list[str]:
    """The key of the policy that enforces the modes of a workload of these labels; none where none is needed."""
    present = set(labels)
    selecting = {
        key: one
        for pair in labels
        for key, one in at.group(declared.by_selector, (namespace, pair)).items()
        if present.issuperset(one.selector)
    }
    mode = _inherited(at, declared.of_namespaces, settings, namespace)
    # Those with a selector in the root namespace are for nobody: not even for its own workloads.
    if selecting and namespace != settings.root_namespace:
        key = _oldest(selecting)
        policy = at.get(declared.converted, key)
        if policy is not None:
            return [policy.key]
        mode = _or(selecting[key].mode, mode)
    return [f"{settings.root_namespace}/{STATIC_STRICT}"] if mode == "STRICT" else []


def _inherited(
    at: At, of_namespaces: Index[str, ObjectKey, PeerAuthentication], settings: Mesh, namespace: str
) -> Mode:
    """The mode of a namespace: its own, or else the mesh's."""
    mode: Mode = "UNSET"
    for place in dict.fromkeys((namespace, settings.root_namespace)):
        members = at.group(of_namespaces, place)
        if members and mode == "UNSET":
            mode = members[_oldest(members)].mode
    return _or(mode, "PERMISSIVE")


def _groups(one: PeerAuthentication, inherited: Mode) -> tuple[Group, ...]:
    """What is refused, where that is neither nothing nor everything without identity."""
    strict = [port for port, mode in one.ports if mode == "STRICT"]
    others = [port for port, mode in one.ports if mode != "STRICT"]
    if _or(one.mode, inherited) != "STRICT":
        return tuple([((msgspec.structs.replace(_NO_IDENTITY, ports=(port,)),),) for port in strict])
    if not others:
        return ()
    # As Istio orders them.
    ports = [(Match(not_ports=(port,)),) for port in others]
    return (tuple([(_NO_IDENTITY,), *ports] if one.mode == "STRICT" else [*ports, (_NO_IDENTITY,)]),)


def _or(mode: Mode, otherwise: Mode) -> Mode:
    return otherwise if mode == "UNSET" else mode


def _oldest(members: Mapping[ObjectKey, PeerAuthentication]) -> ObjectKey:
    return min(members, key=lambda key: rank(key[0], key[0], members[key].created, key[2], key[3]))
