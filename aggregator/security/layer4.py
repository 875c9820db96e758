"""What of an AuthorizationPolicy's rules can be enforced without reading HTTP, and how to err where something cannot.

From rules as they are written to groups of alternatives that compare identities, addresses and ports alone. A condition
that cannot be checked there, or whose values cannot be read, is taken as met where the policy denies, and as not met
where it allows: so a policy never lets through what it would refuse if it were checked in full. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import ip_network
from typing import TypeAlias, TypeVar

import msgspec

from watchers.facts.istio_security import Condition, Operation, Rule, Source, Values

Range: TypeAlias = tuple[bytes, int]
"""A prefix of addresses: 4 or 16 raw bytes, and a length in bits."""


class Match(msgspec.Struct, frozen=True, gc=False):
    """Conditions that must all hold; of each any value will do. Strings are patterns: ``*``, ``*end``, ``start*``, or
    the whole value. ``accounts`` are (namespace, service account).
    """

    namespaces: Values = ()
    not_namespaces: Values = ()
    principals: Values = ()
    not_principals: Values = ()
    accounts: tuple[tuple[str, str], ...] = ()
    not_accounts: tuple[tuple[str, str], ...] = ()
    source_ranges: tuple[Range, ...] = ()
    not_source_ranges: tuple[Range, ...] = ()
    destination_ranges: tuple[Range, ...] = ()
    not_destination_ranges: tuple[Range, ...] = ()
    ports: tuple[int, ...] = ()
    not_ports: tuple[int, ...] = ()


Group: TypeAlias = tuple[tuple[Match, ...], ...]
"""Rows of alternatives: of each row one must match. Without rows everything matches."""


class Flaw(msgspec.Struct, frozen=True):
    """Something in the rules that is not enforced as it is written: a code of the catalogue, where, and what."""

    code: str
    field: str
    detail: str


EVERYTHING = Match()
"""No conditions at all. As an alternative it would mean "nothing" to a ztunnel, so no group ever holds it."""

V = TypeVar("V")

_ATTRIBUTES = {
    "source.ip": "source_ranges",
    "destination.ip": "destination_ranges",
    "source.namespace": "namespaces",
    "source.principal": "principals",
    "destination.port": "ports",
}


def groups_of(rules: Iterable[Rule], namespace: str, *, deny: bool) -> tuple[tuple[Group, ...], tuple[Flaw, ...]]:
    """The groups, any of which must match, and what is not enforced as it is written.

    ``namespace`` is the policy's, which service accounts without one are of.
    """
    groups = []
    flaws: list[Flaw] = []
    for number, rule in enumerate(rules):
        group = _Reading(f"spec.rules[{number}]", namespace, flaws, deny=deny).group(rule)
        if group is not None:
            groups.append(group)
    return tuple(groups), tuple(flaws)


class _Reading:
    """The reading of one rule."""

    def __init__(self, place: str, namespace: str, flaws: list[Flaw], *, deny: bool) -> None:
        self._place = place
        self._namespace = namespace
        self._flaws = flaws
        self._deny = deny

    def group(self, rule: Rule) -> Group | None:
        """The group of a rule; None where it allows nothing that could be checked."""
        rows = [
            self._row([self._operation(one, f"to[{number}].operation") for number, one in enumerate(rule.operations)]),
            self._row([self._source(one, f"from[{number}].source") for number, one in enumerate(rule.sources)]),
            *(self._row([self._condition(one, f"when[{number}]")]) for number, one in enumerate(rule.conditions)),
        ]
        if any(row is None for row in rows):
            return None
        return tuple([row for row in rows if row])

    def _row(self, alternatives: list[Match | None]) -> tuple[Match, ...] | None:
        """The alternatives one of which must match: none if anything does, None if nothing can."""
        if not alternatives:
            return ()
        possible = [one for one in alternatives if one is not None]
        if EVERYTHING in possible:
            return ()
        return tuple(dict.fromkeys(possible)) or None

    def _operation(self, given: Operation, place: str) -> Match | None:
        fields = _Fields(self, place)
        fields.http(given.http)
        return fields.match(
            ports=fields.values(given.ports, "ports", _port),
            not_ports=fields.excluded(given.not_ports, "notPorts", _port),
        )

    def _source(self, given: Source, place: str) -> Match | None:
        def account(value: str) -> tuple[str, str] | None:
            namespace, _, name = value.rpartition("/")
            return (namespace or self._namespace, name) if name and "/" not in namespace else None

        fields = _Fields(self, place)
        fields.http(given.http)
        return fields.match(
            principals=fields.values(given.principals, "principals", _principal),
            not_principals=fields.excluded(given.not_principals, "notPrincipals", _principal),
            namespaces=fields.values(given.namespaces, "namespaces", _pattern),
            not_namespaces=fields.excluded(given.not_namespaces, "notNamespaces", _pattern),
            accounts=fields.values(given.service_accounts, "serviceAccounts", account),
            not_accounts=fields.excluded(given.not_service_accounts, "notServiceAccounts", account),
            source_ranges=fields.values(given.ip_blocks, "ipBlocks", _range),
            not_source_ranges=fields.excluded(given.not_ip_blocks, "notIpBlocks", _range),
        )

    def _condition(self, given: Condition, place: str) -> Match | None:
        fields = _Fields(self, place)
        attribute = _ATTRIBUTES.get(given.key)
        if attribute is None:
            fields.http((given.key,))
            return fields.match()
        reads: Callable[[str], object] = _READERS[attribute]
        return fields.match(
            **{
                attribute: fields.values(given.values, "values", reads),
                f"not_{attribute}": fields.excluded(given.not_values, "notValues", reads),
            }
        )

    def flaw(self, code: str, place: str, detail: str) -> None:
        """Notes what is not enforced as it is written."""
        self._flaws.append(Flaw(code, f"{self._place}.{place}", detail))

    @property
    def deny(self) -> bool:
        """Whether what cannot be checked is taken as met."""
        return self._deny


class _Fields:
    """The fields of one alternative, and whether it can be met at all."""

    def __init__(self, reading: _Reading, place: str) -> None:
        self._reading = reading
        self._place = place
        self._never = False

    def http(self, names: Iterable[str]) -> None:
        """These are given, and cannot be checked."""
        for name in names:
            self._reading.flaw("PolicyNeedsWaypoint", self._place, name)
            self._never = True

    def values(self, given: Values, name: str, read: Callable[[str], V | None]) -> tuple[V, ...]:
        """What any may be. Of values that cannot be read the others stand; if none is left the field is unsure."""
        values, _ = self._read(given, name, read)
        if given and not values:
            self._never = True
        return values

    def excluded(self, given: Values, name: str, read: Callable[[str], V | None]) -> tuple[V, ...]:
        """What none may be. One that cannot be read might be anything."""
        values, complete = self._read(given, name, read)
        self._never = self._never or not complete
        return values

    def match(self, **fields: tuple[object, ...]) -> Match | None:
        """The alternative; None if it is never met."""
        match = msgspec.structs.replace(EVERYTHING, **fields)
        if not self._reading.deny and (self._never or match == EVERYTHING):
            return None
        return match

    def _read(self, given: Values, name: str, read: Callable[[str], V | None]) -> tuple[tuple[V, ...], bool]:
        """The values without repeats, and whether all could be read."""
        values: dict[V, None] = {}
        complete = True
        for number, text in enumerate(given):
            value = read(text)
            if value is None:
                self._reading.flaw("PolicyValueInvalid", f"{self._place}.{name}[{number}]", repr(text[:80]))
                complete = False
            else:
                values[value] = None
        return tuple(values), complete


def _pattern(text: str) -> str | None:
    return text or None


def _principal(text: str) -> str | None:
    """A principal is a SPIFFE id without its scheme; with it, it would be equal to none."""
    return text.removeprefix("spiffe://") or None


def _port(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536 else None


def _range(text: str) -> Range | None:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return None
    return network.network_address.packed, network.prefixlen


_READERS: dict[str, Callable[[str], object]] = {
    "source_ranges": _range,
    "destination_ranges": _range,
    "namespaces": _pattern,
    "principals": _principal,
    "ports": _port,
}
