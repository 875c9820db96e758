"""Allocated addresses: what home's proxies may ask for a service by where its objects name nothing of use to them.

That are hosts of ServiceEntries without an address, exported services under their name of the cluster set, unless they
are headless (this is their clusterset IP, KEP-1645), and global services that exist in other networks alone, whose
addresses mean nothing at home: without one of their own neither could be asked for. They get one of each IP family out
of the pools that Istio gives them from (addresses that are routed nowhere), at a place that depends on the name alone
unless somebody was there before; what the status of a ServiceEntry or a ServiceImport says already is kept.

A headless service of another network gets one as well, since its pods cannot be reached one by one from home. One that
home has itself stays as it is, and so does one whose pods are in home's network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, TypeAlias

import msgspec
import xxhash

from aggregator.findings import Finding
from aggregator.graph import At, Claim, Collection, Graph, Outcome
from aggregator.mesh.answers import Answers
from aggregator.mesh.home import Home
from aggregator.mesh.networks import network_of
from aggregator.mesh.services import Declared, Services, merged_from
from aggregator.order import rank
from watchers.facts.keys import ObjectKey

ALLOCATIONS = "allocated addresses"
"""Name under which they are published: (service key, family) -> IP address."""

POOLS: dict[str, IPv4Network | IPv6Network] = {
    "IPv4": IPv4Network("240.240.0.0/16"),
    "IPv6": IPv6Network("2001:2::/48"),
}
"""Where Istio allocates from (PILOT_ENABLE_IP_AUTOALLOCATE), by family."""

_PLACES = 0xFFFE
"""How many places both pools have, without the first and the last address of the smaller one."""
_TRIES = 128
"""How many places are tried for one service: enough until a pool is all but full."""

Key: TypeAlias = tuple[str, str]
"""(service key, family)."""


class AllocatedAddresses(msgspec.Struct, frozen=True):
    """The part of the graph this module declares.

    `of` reads, inside a derivation, the addresses of the service that an object is the base of, which gets a finding
    if there is none left for it.
    """

    addresses: Collection[Key, str]
    of: Callable[[At, Declared], list[str]]


def declare(
    graph: Graph, home: Home, networks: Collection[ObjectKey, str], answers: Answers, services: Services
) -> AllocatedAddresses:
    """Declare the addresses of services that need one."""

    def claims(
        at: At, key: str, candidates: Mapping[tuple[str, ...], Declared]
    ) -> Iterable[tuple[Key, Outcome[Claim]]]:
        objects = merged_from(home, candidates.values())
        base = objects[0]
        at_home = base.cluster == home.cluster
        if at_home and not base.allocates:
            return
        if not at_home and not _needs_one(objects, network_of(at, networks, home.cluster)):
            return
        # What home has itself is known with home; that it has nothing, and who else has, is known at last.
        waits = not (answers.home(at) if at_home else answers.all(at))
        place = rank(home.cluster, base.cluster, base.created, base.namespace, base.name)
        named = [address for one in objects for address in one.allocated]
        for family in [one for one in POOLS if not base.ip_families or one in base.ip_families]:
            wanted = next((found for address in named if (found := _in_pool(family, address))), None)
            yield (key, family), Claim((*place, key), wanted, waits)

    standing = graph.expand("claims to addresses", services.candidates, claims)
    addresses: Collection[Key, str] = graph.allocate(ALLOCATIONS, standing, _choices)

    def allocated(at: At, base: Declared) -> list[str]:
        found: list[str] = []
        if base.cluster == home.cluster and not base.allocates:
            return found  # most are such, and what is not read need not be remembered
        for family in POOLS:
            claim = at.get(standing, (base.key, family))
            if claim is None:
                continue
            address = at.get(addresses, (base.key, family))
            if address is not None:
                found.append(address)
            elif not claim.waits:
                field = "spec.hosts" if base.kind == "ServiceEntry" else "metadata.name"
                detail = f"no address of {POOLS[family]} was found free for {base.hostname!r}"
                at.note(base.object, Finding(base.object, "AddressPoolExhausted", field, detail))
        return found

    return AllocatedAddresses(addresses, allocated)


def _needs_one(objects: list[Declared], own_network: str) -> bool:
    """Whether a service that home does not have cannot be asked for without an address of home's network."""
    base = objects[0]
    if base.kind == "ServiceExport" and base.allocates:
        return True
    if base.kind == "ServiceEntry":
        return base.allocates and not any(one.addresses for one in objects if one.network == own_network)
    return all(one.network != own_network for one in objects)


def _choices(key: Key) -> Iterable[str]:
    """The addresses of a family that a service may have, in the order they are tried; both families' at one place."""
    service, family = key
    pool = POOLS[family]
    for number in range(_TRIES):
        yield str(pool[1 + xxhash.xxh3_64_intdigest(f"{service} {number}".encode()) % _PLACES])


def _in_pool(family: str, text: str) -> str | None:
    """An address in the form in which it is given, if it is of the family's pool."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    pool: Any = POOLS[family]
    return str(address) if address in pool else None
