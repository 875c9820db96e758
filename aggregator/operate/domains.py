"""Answers how the domains are: what the graph makes of them, and which gateways have been told.

In: the graph, the findings, the sessions of gateways, the activations, the time. Out: Domains (see domain_list), made
when they are asked for, a page at a time and in slices of a few milliseconds, so that twenty thousand of them hold up
nobody. Nothing is kept between two questions: a page begins behind the host that the one before it ended with. What is
read of the graph is read between its passes. What is for all hosts that nobody names is called `*`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from aggregator.cache.table import Table
from aggregator.findings import Finding
from aggregator.operate import domain_details
from aggregator.operate.domain_list import MOST_INGRESSES, Activation, Domain, DomainList, DomainState, Told
from aggregator.operate.moments import at, moment
from aggregator.order import rank
from aggregator.pipeline import Pipeline
from aggregator.traffic.hosts import Host
from aggregator.traffic.ingresses import Claim
from aggregator.views.ingress_gateway import scope_keys
from watchers.facts.keys import ObjectKey

MOST_AT_A_TIME: Final = 1000
"""Domains on a page."""
MOST_EXAMINED: Final = 5000
"""Domains that one question looks at: where few are as asked for, a page may hold less than there is room for."""

EVERY_OTHER: Final = "*"
"""What stands for all hosts that no Ingress names, which the graph keeps under an empty text."""

_CHUNK = 500
_SCANNED = 5000
_SLICE = 0.005
_NO_REASON = "it gives no reason"
_BEYOND = "\U0010ffff"


class Gateway(Protocol):
    """A connected ingress gateway, as far as its session knows it."""

    @property
    def id(self) -> str:
        """What it calls itself."""

    def held(self, scopes: Collection[str]) -> frozenset[str]:
        """Those of these scopes that it has accepted as they are now."""

    def refused(self, scopes: Collection[str]) -> Mapping[str, str]:
        """Those of which it refuses what there is now, with the reason it gives."""


class Asked(msgspec.Struct, frozen=True):
    """Which domains are asked for: `names` are hosts, or, with a dot before them, all below a domain; `states` those
    they may be in; empty is any. At most `limit` of those that come behind `after`, in the order of their hosts.
    """

    names: tuple[str, ...] = ()
    states: frozenset[str] = frozenset()
    limit: int = MOST_AT_A_TIME
    after: str = ""


class DomainQuestions:
    """What may be asked of the domains. ``replica`` is what this process is called, ``now`` seconds of Unix time."""

    def __init__(
        self,
        pipeline: Pipeline,
        findings: Table[ObjectKey, tuple[Finding, ...]],
        gateways: Callable[[], Sequence[Gateway]],
        activation: Callable[[str], Activation],
        *,
        replica: str,
        now: Callable[[], float],
    ) -> None:
        self._pipeline = pipeline
        self._findings = findings
        self._gateways = gateways
        self._activation = activation
        self._replica = replica
        self._now = now

    async def page(self, asked: Asked) -> DomainList:
        """The next domains that are as asked for."""
        found: list[Domain] = []
        after, examined, more = asked.after, 0, True
        while more and len(found) < asked.limit and examined < MOST_EXAMINED:
            hosts = await self._hosts(asked.names, after, _CHUNK)
            more = len(hosts) == _CHUNK
            for host, one in await self._described(hosts):
                after, examined = host, examined + 1
                if one is not None and (not asked.states or one.state in asked.states):
                    found.append(one)
                    if len(found) == asked.limit:
                        more = more or host != hosts[-1]
                        break
        groups = self._groups()
        return DomainList(
            items=tuple(found),
            total=len(groups),
            unknown=tuple(name for name in asked.names if not name.startswith(".") and _host(name) not in groups),
            after=after if more else "",
        )

    async def one(self, host: str) -> Domain | Sequence[str]:
        """All about one domain; some that are called alike, if there is none of that name."""
        ((_, found),) = await self._described([host], detailed=True)
        if found is not None:
            return found
        _, dot, parent = host.rpartition(".") if host.count(".") < 2 else host.partition(".")
        return await self._hosts((f".{parent}",) if dot else (), "", 10)

    def _groups(self) -> Mapping[str, Any]:
        """The claims of every host."""
        return self._pipeline.graph.values(self._pipeline.hosts.claims)

    async def _turn(self) -> None:
        """Let others run, and the graph come to rest."""
        await asyncio.sleep(0)
        while self._pipeline.graph.under_way:  # noqa: ASYNC110 - the pass goes on in the same loop
            await asyncio.sleep(0)

    async def _hosts(self, names: Collection[str], after: str, count: int) -> list[str]:
        """The first hosts behind `after`, in order. Where not all are named, all there are have to be looked at."""
        groups = self._groups()
        below = tuple(name for name in names if name.startswith("."))
        named = {name for name in names if _host(name) in groups and name > after}
        first = sorted(named)[:count]
        if names and not below:
            return first
        hosts = list(groups)
        for start in range(0, len(hosts), _SCANNED):
            last = first[-1] if len(first) == count else _BEYOND
            some = [name for host in hosts[start : start + _SCANNED] if after < (name := host or EVERY_OTHER) < last]
            if below:
                some = [name for name in some if name.endswith(below) and name not in named]
            if some:
                first = sorted(first + some)[:count]
            await asyncio.sleep(0)
        return first

    async def _described(
        self, hosts: Sequence[str], *, detailed: bool = False
    ) -> list[tuple[str, Domain | None]]:
        """Each of the hosts as a domain; None for one that is gone."""
        domains = self._pipeline.graph.values(self._pipeline.hosts.hosts)
        keys = {name: scope_keys(host := _host(name), domains.get(host)) for name in hosts}
        scopes = {name: [scope for _, scope in found] for name, found in keys.items()}
        wanted = frozenset(scope for found in scopes.values() for scope in found)
        held: Counter[str] = Counter()
        refused: dict[str, tuple[str, str]] = {}
        told: list[Told] = []
        gateways = self._gateways()
        for gateway in gateways:
            await asyncio.sleep(0)
            has, refuses = gateway.held(wanted), gateway.refused(wanted)
            for name, parts in scopes.items():
                whole = has.issuperset(parts)
                held[name] += whole
                reason = next((refuses[part] or _NO_REASON for part in parts if part in refuses), "") if refuses else ""
                if reason:
                    refused.setdefault(name, (gateway.id, reason))
                if detailed:
                    told.append(Told(gateway.id, whole, reason))
        await self._turn()
        described: list[tuple[str, Domain | None]] = []
        began = time.perf_counter()
        for name in hosts:
            if time.perf_counter() - began > _SLICE:
                await self._turn()
                began = time.perf_counter()
            host = _host(name)
            one = self._describe(host, refused.get(name), len(gateways), held[name])
            if detailed and one is not None:
                details = domain_details.details(self._pipeline, self._findings, host, self._objects(host), told)
                one = msgspec.structs.replace(one, details=details)
            described.append((name, one))
        return described

    def _describe(
        self, host: str, refused: tuple[str, str] | None, gateways: int, acknowledged: int
    ) -> Domain | None:
        pipeline, now = self._pipeline, self._now()
        if host not in self._groups():
            return None
        domain = pipeline.graph.values(pipeline.hosts.hosts).get(host)
        certificate = pipeline.graph.values(pipeline.hosts.certificates).get(host)
        state, reason = self._state(host, domain, refused, now)
        objects = self._objects(host)
        secret = next((key for key in objects if key[1] == "TLSSecret"), None)
        activation = self._activation(host)
        return Domain(
            host=host or EVERY_OTHER,
            state=state,
            reason=reason,
            ingresses=tuple(_name(key) for key in objects[:MOST_INGRESSES] if key[1] == "Ingress"),
            secret=_name(secret) if secret is not None else "",
            certificate_expires=moment(certificate.not_after) if certificate is not None else None,
            changed=moment(activation.taken),
            activation=round(activation.seconds, 4) if activation.seconds is not None else None,
            gateways=gateways,
            acknowledged=acknowledged,
            findings=sum(len(self._findings.get(key) or ()) for key in objects),
            replica=self._replica,
            observed=at(now),
        )

    def _objects(self, host: str) -> list[ObjectKey]:
        """The Ingresses that name a host, first in order first, and the Secret with its certificate."""
        claims: Iterable[Claim] = self._groups()[host].values()
        home = self._pipeline.home.cluster
        in_order = sorted(
            claims, key=lambda one: rank(home, one.origin[0], one.created, one.origin[2], one.origin[3])
        )
        domain = self._pipeline.graph.values(self._pipeline.hosts.hosts).get(host)
        secrets = [domain.tls] if domain is not None else [one.secret for one in in_order]
        secret = next((one for one in secrets if one is not None), None)
        return [*dict.fromkeys(one.origin for one in in_order), *([secret] if secret is not None else [])]

    def _state(
        self, host: str, domain: Host | None, refused: tuple[str, str] | None, now: float
    ) -> tuple[DomainState, str]:
        """The first state that is true of a domain, and why."""
        pipeline = self._pipeline
        if domain is None:
            code, detail = domain_details.withheld(pipeline.graph, pipeline.hosts.hosts, host)
            return ("WithoutRule" if code == "HostWithoutRule" else "NotServed"), detail
        if refused is not None:
            return "Refused", f"{refused[0]}: {refused[1]}"
        if domain.tls is not None:
            certificate = pipeline.graph.values(pipeline.hosts.certificates).get(host)
            if certificate is None:
                return "NoCertificate", f"Secret {_name(domain.tls)} {self._lacking(domain.tls)}"
            if certificate.not_after <= now:
                return "CertificateExpired", f"renew the certificate in Secret {_name(domain.tls)}"
        missing = domain_details.missing(pipeline, domain)
        if missing:
            shown = f"{len(missing)} of {len(domain.rules)} paths answer 503, the first: {missing[0]}"
            return "BackendMissing", shown
        return "Served", ""


    def _lacking(self, secret: ObjectKey) -> str:
        """Why nothing in a Secret is good for a host."""
        found = self._pipeline.graph.values(self._pipeline.certificates).get(secret)
        if found is None:
            return "is not there, or holds no pair that can be served"
        names = ", ".join(found.names[:3]) + (", ..." if len(found.names) > 3 else "")
        return f"has a certificate for {names or 'no name'}"


def _host(name: str) -> str:
    """The host as it is kept by its name here."""
    return "" if name == EVERY_OTHER else name


def _name(key: ObjectKey) -> str:
    return f"{key[2]}/{key[3]}"
