"""Other names of an Ingress's hosts, as annotations want them (from-to-www-redirect is read in `redirects`).

What becomes of a name that several want, or that is a host itself, is decided in `aggregator.traffic.other_names`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from aggregator.mesh.addresses import is_dns_name
from aggregator.traffic.annotations.given import Given, Refused, listed

ANNOTATIONS: Final[Mapping[str, str]] = {
    "server-alias": "Further names of the Ingress's (first) host, between commas, that are served as it is.",
}

MOST: Final = 64
_WWW: Final = "www."


class OtherName(msgspec.Struct, frozen=True, gc=False):
    """What another name is for: the `host` that is served under it too, or that those who come by it are `sent` to."""

    host: str
    sent: bool = False


def names(given: Given) -> tuple[str, ...]:
    """The further names, in lower case."""
    return given.value("server-alias", _names, ())


def wanted(hosts: Iterable[str], names: Iterable[str], *, www: bool) -> dict[str, OtherName]:
    """The other names an Ingress wants for the hosts it has rules for, by name: further `names`, and `www.` or none."""
    ruled = [host for host in hosts if host and not host.startswith("*")]
    found: dict[str, OtherName] = {}
    for host in ruled if www else ():
        sibling = host.removeprefix(_WWW) if host.startswith(_WWW) else _WWW + host
        if is_dns_name(sibling) and "." in sibling:
            found.setdefault(sibling, OtherName(host, sent=True))
    for name in names if ruled else ():
        found.setdefault(name, OtherName(ruled[0]))
    return {name: other for name, other in found.items() if name not in ruled}


def _names(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(one.lower().removesuffix(".") for one in listed(text)))
    if not 0 < len(found) <= MOST or not all(is_dns_name(name) for name in found):
        raise Refused(f"must list from 1 to {MOST} DNS names, between commas")
    return found
