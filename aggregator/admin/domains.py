"""The pages /domains and /domains/HOST.

In: what may be asked of the domains, and a query. Out: a DomainList or a Domain; for a host that no Ingress names, 404
and some that are called alike; for a query that means nothing, 400 and what may be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aggregator.admin.pages import NoSuchPage, Pages, WrongQuery
from aggregator.operate.domain_list import STATES, Domain, DomainList
from aggregator.operate.domains import MOST_AT_A_TIME, Asked

if TYPE_CHECKING:
    from aggregator.operate.domains import DomainQuestions

_KNOWN = ("name", "state", "limit", "after")


def add_domain_pages(pages: Pages, questions: DomainQuestions) -> None:
    """Adds both pages."""

    async def domains(query: Mapping[str, str]) -> DomainList:
        return await questions.page(asked(query))

    async def domain(query: Mapping[str, str]) -> Domain:
        host = query["name"].lower()
        found = await questions.one(host)
        if not isinstance(found, Domain):
            raise NoSuchPage({"error": f"no domain {host!r}", "domains": found})
        return found

    says = "domains, a page at a time: state, certificate, activation, gateways; ?name= ?state= ?limit= ?after="
    pages.add("/domains", says, domains)
    pages.add("/domains/{name}", "one domain, with its paths, gateways and findings", domain)


def asked(query: Mapping[str, str]) -> Asked:
    """What a query asks for; raises WrongQuery. Names and states may be several, with commas between."""
    for key in query:
        if key not in _KNOWN:
            raise WrongQuery(f"?{key}= means nothing here; there are ?{'=, ?'.join(_KNOWN)}=")
    limit = query.get("limit", str(MOST_AT_A_TIME))
    if not (limit.isascii() and limit.isdigit() and 0 < int(limit[:9]) <= MOST_AT_A_TIME):
        raise WrongQuery(f"?limit= is a number from 1 to {MOST_AT_A_TIME}")
    states = frozenset(_texts(query.get("state", "")))
    if not states <= set(STATES):
        raise WrongQuery(f"?state= is one of {', '.join(STATES)}, or several with commas between")
    names = tuple(dict.fromkeys(name.lower().removesuffix(".") for name in _texts(query.get("name", ""))))
    return Asked(names, states, int(limit), query.get("after", ""))


def _texts(several: str) -> list[str]:
    return [text for one in several.split(",") if (text := one.strip())]
