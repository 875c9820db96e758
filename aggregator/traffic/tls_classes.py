"""Filter chains: one for each class of TLS settings, and which hosts are sent to which. Never one for each host.

In: hosts with what their Ingresses say of TLS, certificates, roots of clients. Out: the chains a gateway has beside the
common one, and the names that go there. A host that asks for nothing does not appear here and nothing is read for it,
so that what a listener is made of grows with the exceptions alone. Equal settings are one class, whoever asks for them.

Apart from classes there are chains that have a certificate from the start (wildcard hosts, and hosts that ask for it),
and those where a backend ends TLS. Whoever demands something of clients that cannot be had is in no chain: refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Final, TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Withheld
from aggregator.mesh.home import Home
from aggregator.order import Rank, rank
from aggregator.security.certificates import Certificate
from aggregator.security.credential_names import CredentialName
from aggregator.security.credentials import Question
from aggregator.security.trust_bundles import Bundle
from aggregator.traffic.annotations.tls import NO_DEMANDS, NO_TLS_SETTINGS, TlsSettings
from aggregator.traffic.hosts import Host, Hosts
from watchers.facts.keys import ObjectKey
from watchers.facts.networking import Ingress

COMMON: Final = "default"
"""The class of all hosts that ask for nothing, and the name of its chain."""
REFUSED: Final = "refused"
"""The name of no chain: who is sent there is hung up on."""
MOST_CHAINS: Final = 64
"""Chains beside the common one. Each has the routes of all hosts, 1 KB of Envoy's memory for each."""
MOST_EXCEPTIONS: Final = 1_000
"""Hosts under a wildcard that have another certificate; where there are more, the wildcard's is fetched by name."""
_ALL: Final = "all"


class Chain(msgspec.Struct, frozen=True, gc=False):
    """A filter chain. Requests in it get the routes of `scope_class`.

    `certificate` is the host whose certificate it has from the start, "" if certificates are fetched by name. With a
    `backend` (its key) it does not end TLS at all.
    """

    name: str
    scope_class: str = COMMON
    settings: TlsSettings = NO_DEMANDS
    certificate: str = ""
    backend: str = ""


class Wish(msgspec.Struct, frozen=True, gc=False):
    """The chain a host is to be sent to, and the Ingress that says so, with its place in the total order."""

    chain: Chain
    origin: ObjectKey
    order: Rank


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A chain with the hosts that are sent there, and those of the names under them that are not (`others`)."""

    first: Wish
    hosts: tuple[str, ...]
    others: tuple[str, ...] = ()


class Chains(msgspec.Struct, frozen=True, gc=False):
    """All chains beside the common one, and names by chain: hosts, and wildcards as `*.<parent>`. Both sorted."""

    chains: tuple[Chain, ...] = ()
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()


NO_CHAINS: Final = Chains()
RootsOf: TypeAlias = Callable[[At, str], Bundle | None]
"""The roots that clients of a host must have certificates of, by the name gateways ask for them (`roots_name`)."""


class TlsClasses(msgspec.Struct, frozen=True):
    """The part of the graph this module declares: what hosts wish, and all chains, read inside a derivation."""

    wishes: Collection[str, Wish]
    chains: Callable[[At], Chains]


def class_name(settings: TlsSettings) -> str:
    """The name of a class: the same for equal settings, in every process."""
    if settings == NO_DEMANDS:
        return COMMON
    # What stands in annotations is chosen by many, so no digest that could be steered to another's.
    return f"tls|{blake2b(msgspec.json.encode(settings), digest_size=8).hexdigest()}"


def roots_name(roots: str) -> str:
    """The name under which gateways ask for the roots in a Secret (`<namespace>/<name>`); no host can have it."""
    return f"roots/{roots}"


def demanded_roots(graph: Graph, hosts: Hosts) -> Collection[str, Question]:
    """Declare the roots that hosts demand certificates of, by `roots_name`, as questions for credentials."""

    def question(_at: At, name: str, _hosts: Mapping[str, Host]) -> Question:
        _, namespace, secret = name.split("/")
        return Question(namespace, "", "", CredentialName("kubernetes", namespace, (secret,), roots=True))

    by_roots = graph.index(
        "hosts by the roots of clients",
        hosts.hosts,
        lambda _, one: (roots_name(one.speaks.settings.roots),),
        unless=lambda _, one: not one.speaks.settings.roots,
    )
    return graph.derive("roots of clients", by_roots, question)


def declare(
    graph: Graph, home: Home, hosts: Hosts, ingresses: Source[ObjectKey, Ingress], roots_of: RootsOf
) -> TlsClasses:
    """Declare which hosts are sent to which chain."""

    def wished(at: At, host: str, one: Host) -> Iterable[tuple[str, Outcome[Wish]]]:
        origin = one.speaks_origin or one.tls_origin
        if not host and origin is not None:
            detail = "TLS settings are for hosts that are named: no client asks for all others"
            at.note(origin, Finding(origin, "AnnotationUnsupported", "metadata.annotations", detail))
        chain = _chain(at, host, one, hosts.certificates, roots_of) if host else None
        if chain is None or origin is None:
            yield host, Withheld("CommonChain")
            return
        ingress = at.get(ingresses, origin)
        created = ingress.created if ingress is not None else ""
        yield host, Wish(chain, origin, rank(home.cluster, origin[0], created, origin[2], origin[3]))

    def apart(at: At, host: str, own: Certificate) -> Iterable[tuple[str, Outcome[bool]]]:
        over = f"*.{host.partition('.')[2]}"
        wish = at.get(wishes, over)
        if wish is None or not wish.chain.certificate:
            yield host, Withheld("CommonChain")
            return
        theirs = at.get(hosts.certificates, over)
        # Copies of a wildcard's Secret in many namespaces are no exceptions.
        same = theirs is not None and (theirs.chain, theirs.key) == (own.chain, own.key)
        yield host, Withheld("CommonChain") if same else True

    def wanted(at: At, _chain: str, members: Mapping[str, Wish]) -> Outcome[Wanted]:
        first = min(members.values(), key=lambda one: one.order)
        over = first.chain.certificate
        others: Iterable[str] = at.group(exceptions, over) if over.startswith("*.") else ()
        others = tuple(sorted(others))
        if len(others) > MOST_EXCEPTIONS:
            return Withheld("TooManyExceptions", f"{len(others):,} hosts under {over} have other certificates")
        return Wanted(first, tuple(sorted(members)), others)

    def settled(at: At, _all: str, members: Mapping[str, Wanted]) -> Chains:
        return _settled(at, members)

    wishes = graph.expand(
        "hosts with a chain apart",
        hosts.hosts,
        wished,
        unless=lambda host, one: one.speaks == NO_TLS_SETTINGS and not host.startswith("*."),
    )
    under = graph.expand(
        "certificates under wildcards", hosts.certificates, apart, unless=lambda host, _: host.startswith("*.")
    )
    exceptions: Index[str, str, bool] = graph.index(
        "exceptions by wildcard", under, lambda host, _: (f"*.{host.partition('.')[2]}",)
    )
    by_chain = graph.index("hosts by chain", wishes, lambda _, one: (one.chain.name,))
    by_name = graph.derive("chains wanted", by_chain, wanted)
    together = graph.index("all chains wanted", by_name, lambda _, __: (_ALL,))
    everything = graph.derive("chains", together, settled)
    return TlsClasses(wishes, lambda at: at.get(everything, _ALL) or NO_CHAINS)


def _chain(
    at: At, host: str, one: Host, certificates: Collection[str, Certificate], roots_of: RootsOf
) -> Chain | None:
    """Where a host is sent; None: to the common chain."""
    speaks, settings = one.speaks, one.speaks.settings
    if speaks.closed:
        return Chain(REFUSED)
    if speaks.passthrough:
        backend = _backend(one)
        if not backend and one.speaks_origin is not None:
            finding = Finding(one.speaks_origin, "PassthroughNotServed", "spec.rules", f"{host} has no backend")
            at.note(one.speaks_origin, finding)
        return Chain(f"pass|{backend}", backend=backend) if backend else Chain(REFUSED)
    if settings.roots and roots_of(at, roots_name(settings.roots)) is None:
        if one.speaks_origin is not None:
            detail = f"{host} wants certificates of the roots in the Secret {settings.roots}"
            finding = Finding(one.speaks_origin, "ClientRootsNotFound", "metadata.annotations", detail)
            at.note(one.speaks_origin, finding)
        return Chain(REFUSED)
    scope_class = class_name(settings)
    own = speaks.chain == "static" or (not speaks.chain and host.startswith("*."))
    if own and at.get(certificates, host) is not None:
        return Chain(f"own|{host}", scope_class, settings, certificate=host)
    return Chain(scope_class, scope_class, settings) if settings != NO_DEMANDS else None


def _backend(one: Host) -> str:
    """The backend that ends TLS of a host: the one behind all paths, else the first. None that an Ingress protects:
    nobody would be asked there.
    """
    rules = [rule for rule in one.rules if not rule.settings.policies.protected]
    everything = [rule.backend for rule in rules if (rule.kind, rule.path) == ("Prefix", "/")]
    return next((backend for backend in (*everything, *(rule.backend for rule in rules)) if backend), "")


def _settled(at: At, members: Mapping[str, Wanted]) -> Chains:
    """The first MOST_CHAINS chains; who is sent to another that demands something is refused."""
    order = sorted(members.values(), key=lambda one: (one.first.order, one.first.chain.name))
    chosen = [one for one in order if one.first.chain.name != REFUSED][:MOST_CHAINS]
    names: dict[str, list[str]] = {}
    others: list[str] = []
    for one in order:
        chain = one.first.chain
        if one in chosen or chain.name == REFUSED:
            names.setdefault(chain.name, []).extend(one.hosts)
            others += one.others
            continue
        origin = one.first.origin
        detail = f"{MOST_CHAINS} chains are older than {chain.name}"
        at.note(origin, Finding(origin, "TlsChainsExceeded", "metadata.annotations", detail))
        if chain.backend or chain.settings != NO_DEMANDS:
            names.setdefault(REFUSED, []).extend(one.hosts)
    apart = {host for hosts in names.values() for host in hosts} if others else set()
    names[COMMON] = [host for host in others if host not in apart]
    return Chains(
        tuple(sorted((one.first.chain for one in chosen), key=lambda one: one.name)),
        tuple((name, tuple(sorted(hosts))) for name, hosts in sorted(names.items()) if hosts),
    )
