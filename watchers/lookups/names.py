"""One DNS name over time: which addresses stand after every answer, and when to ask again.

In: answers, one per address family, and the moment they came. Out: the fact about the name and the seconds until it is
to be asked again. Pure: asks nothing, knows no clock and no chance. Answers are hostile: addresses nobody should be
sent to are left out, and no answer is so large or so short-lived that it costs more than others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from watchers.facts.names import ResolvedName
from watchers.kubernetes.destinations import embedded, may_dial

Family: TypeAlias = Literal["A", "AAAA"]
FAMILIES: tuple[Family, ...] = ("A", "AAAA")
Outcome: TypeAlias = Literal["found", "empty", "absent", "failed"]

SOONEST = 5.0
"""Seconds between two lookups of a name at least, whatever its TTL."""
LATEST = 300.0
"""Seconds between two lookups of a name at most, whatever its TTL."""
LONGEST_RETRY = 30.0
"""Seconds between two lookups of a name that fails, at most."""
SPREAD = 0.1
"""By how much of itself a pause may be longer, so that names do not stay in step..."""
MOST_SPREAD = 2.0
"""...but by no more seconds than this: an address that moves is to be followed within its TTL and five seconds."""
MOST_ADDRESSES = 16
"""Addresses of a name that are used, the lowest ones. Load balancers have one per zone."""


class Answer(msgspec.Struct, frozen=True):
    """What the name servers said of one family of a name.

    ``found`` with addresses and the seconds they may be kept; ``empty``: the name is there, without such addresses;
    ``absent``: it is not there; ``failed``: nothing was learned. ``cause`` explains the last two.
    """

    outcome: Outcome
    addresses: tuple[str, ...] = ()
    ttl: float = 0.0
    cause: str = ""


class WatchedName:
    """A name that is looked up again and again.

    ``stands`` are the addresses known before the first answer. Until ``patience`` (a moment, on the same clock as
    ``now`` below) a name without any answer counts as pending.
    """

    def __init__(self, stands: Iterable[str], patience: float) -> None:
        known = _sorted(stands)
        self._stand: dict[Family, tuple[str, ...]] = {
            "A": tuple(address for address in known if ":" not in address),
            "AAAA": tuple(address for address in known if ":" in address),
        }
        self._patience = patience
        self._failures = 0
        self.outcome: Outcome = "failed"
        """Of the last answer: of the two families, the one that says most."""
        self.pause = 0.0
        """Seconds until the name is to be asked again."""

    def answered(self, answers: Mapping[Family, Answer], now: float, chance: float) -> ResolvedName:
        """What is known of the name after both families were asked; ``chance`` (0 to 1) spreads the next lookup."""
        read = {family: _usable(family, answers[family]) for family in FAMILIES}
        outcomes = {answer.outcome for answer, _ in read.values()}
        self.outcome = next(one for one in _TELLING if one in outcomes)
        if self.outcome == "found":
            for family, (answer, _) in read.items():
                if answer.outcome in ("found", "empty"):
                    self._stand[family] = answer.addresses
        addresses = (*self._stand["A"], *self._stand["AAAA"])
        reason = self._reason(read)
        if self.outcome == "found":
            self._failures = 0
            ttl = min(answer.ttl for answer, _ in read.values() if answer.outcome == "found")
            pause = min(max(ttl, SOONEST), LONGEST_RETRY if "failed" in outcomes else LATEST)
        else:
            self._failures += 1
            pause = min(SOONEST * 2 ** min(self._failures - 1, 8), LONGEST_RETRY)
        pending = not addresses and self.outcome == "failed" and now < self._patience
        if pending:
            # Somebody may be waiting for the end of it.
            pause = min(pause, self._patience - now)
        self.pause = pause + min(pause * SPREAD, MOST_SPREAD) * chance
        return ResolvedName(addresses[:MOST_ADDRESSES], reason, pending)

    def _reason(self, read: Mapping[Family, tuple[Answer, str]]) -> str:
        """What is wrong, in the same words as long as it is the same."""
        if self.outcome == "empty":
            return "it has no addresses"
        causes: dict[str, None] = {}
        for family, (answer, left_out) in read.items():
            # One family that fails is nothing to speak of where the other answers and nothing is lost.
            if answer.cause and (self.outcome != "found" or self._stand[family]):
                causes[answer.cause] = None
            if left_out:
                causes[left_out] = None
        count = sum(map(len, self._stand.values()))
        if count > MOST_ADDRESSES:
            causes[f"of its {count} addresses the first {MOST_ADDRESSES} are used"] = None
        return "; ".join(causes)


_TELLING: tuple[Outcome, ...] = ("found", "absent", "failed", "empty")
"""Which outcome of a family tells of the name: where the one question fails, the other may say that it is not there."""


def _usable(family: Family, answer: Answer) -> tuple[Answer, str]:
    """An answer without the addresses that nobody is to be sent to, and which those are."""
    if answer.outcome != "found":
        return answer, ""
    good = [address for address in answer.addresses if (":" in address) == (family == "AAAA") and may_be_told(address)]
    refused = sorted(set(answer.addresses) - set(good))
    if not refused:
        return msgspec.structs.replace(answer, addresses=_sorted(good)), ""
    left_out = f"{', '.join(refused[:3])} {'is' if len(refused) == 1 else 'are'} no address of a gateway"
    if not good:
        return Answer("failed", cause=left_out), ""
    return msgspec.structs.replace(answer, addresses=_sorted(good)), left_out


def may_be_told(address: str) -> bool:
    """Whether proxies may be sent to an address that a name resolved to.

    Not to themselves or their node, by whatever spelling, nor to what no single host has.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = embedded(parsed)
        # An IPv4 address has a record of its own: in the place of an IPv6 address it only gets round some filter.
        if parsed.is_loopback or parsed.scope_id or parsed.ipv4_mapped or (inner is not None and not _is_a_host(inner)):
            return False
    elif not _is_a_host(parsed):
        return False
    return may_dial(parsed)


def _is_a_host(address: ipaddress.IPv4Address) -> bool:
    return not (address.is_loopback or address in _THIS_NETWORK or address == _BROADCAST)


_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
_BROADCAST = ipaddress.IPv4Address("255.255.255.255")


def _sorted(addresses: Iterable[str]) -> tuple[str, ...]:
    """Each once, in the one spelling there is, by value."""
    parsed = {ipaddress.ip_address(address) for address in addresses}
    return tuple([str(one) for one in sorted(parsed, key=lambda one: (one.version, one.packed))])
