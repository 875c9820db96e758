"""Services that annotations name as further backends: those that get copies of requests, and those that share them.

They are of the Ingress's own namespace, as its backends are: what another namespace serves is not an Ingress's to use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from aggregator.mesh.addresses import is_dns_name
from aggregator.traffic.annotations.given import Given, Problem, Refused, key_of, number
from watchers.facts.keys import Labels

ANNOTATIONS: Final[Mapping[str, str]] = {
    "mirror-target-service": "A Service that is sent a copy of each request: [namespace/]name[:port].",
    "mirror-percentage": "The share of requests that are copied.",
    "destination": "Services in place of the Ingress's backends: a line `[share%] name.namespace.svc[:port]` each.",
}

MOST: Final = 16
"""Services that share requests."""
PORT: Final = 80
"""The port of a Service that is named without one."""


class Named(msgspec.Struct, frozen=True, gc=False):
    """A Service and its port. `namespace` is "" where none is named."""

    name: str
    namespace: str
    port: int


class Services(msgspec.Struct, frozen=True, gc=False):
    """`mirror` gets copies of `percent` of all requests. `destination` are services with their shares in 100, in place
    of the backends of the Ingress; none: those are meant. See `at_home`.
    """

    mirror: Named | None = None
    percent: int = 100
    destination: tuple[tuple[Named, int], ...] = ()


NONE: Final = Services()
_MIRROR: Final = "mirror-target-service"
_DESTINATION: Final = "destination"


def services(given: Given) -> Services:
    """What an Ingress says of them."""
    mirror = given.value(_MIRROR, _mirror, None)
    percent = given.value("mirror-percentage", number(0, 100), 100)
    found = Services(mirror, percent if mirror is not None else 100, given.value(_DESTINATION, _destination, ()))
    return found if found != NONE else NONE


def at_home(named: Services, namespace: str) -> Services:
    """Without those of other namespaces than the Ingress's; a destination that names one is none."""
    if named is NONE or not (named.mirror is not None or named.destination):
        return NONE
    mirror = named.mirror if named.mirror is not None and named.mirror.namespace in ("", namespace) else None
    strange = any(one.namespace not in ("", namespace) for one, _ in named.destination)
    return Services(mirror, named.percent, () if strange else named.destination)


def elsewhere(named: Services, namespace: str, annotations: Labels) -> Iterator[Problem]:
    """What is wrong with an Ingress of this namespace that has these annotations: they name Services of others."""
    if named is NONE:
        return
    here = at_home(named, namespace)
    for name, left_out in (
        (_MIRROR, named.mirror != here.mirror),
        (_DESTINATION, named.destination != here.destination),
    ):
        if left_out:
            detail = f"names a Service that is not of the Ingress's namespace, {namespace}"
            yield Problem("AnnotationUnsupported", key_of(annotations, name), detail)


def _mirror(text: str) -> Named:
    place, colon, port = text.partition(":")
    namespace, slash, name = place.rpartition("/")
    if slash and not namespace:
        raise Refused("must name a Service of Kubernetes")
    return _named(name, namespace, port if colon else str(PORT))


def _destination(text: str) -> tuple[tuple[Named, int], ...]:
    lines = [words for words in (line.split() for line in text.splitlines()) if words]
    if not 0 < len(lines) <= MOST:
        raise Refused(f"must name from 1 to {MOST} Services")
    found = tuple(_share(words, alone=len(lines) == 1) for words in lines)
    if sum(share for _, share in found) != 100:
        raise Refused("must have shares that are 100% in sum")
    return found


def _share(words: list[str], *, alone: bool) -> tuple[Named, int]:
    share = 100
    if words[0].endswith("%"):
        share = number(0, 100)(words[0][:-1])
    elif not alone:
        raise Refused("must begin each line with a share, such as 20%")
    rest = words[1:] if words[0].endswith("%") else words
    if len(rest) != 1:
        raise Refused("must name one Service in each line, and no subset of one")
    host, colon, port = rest[0].partition(":")
    name, _, place = host.partition(".")
    namespace, _, domain = place.partition(".")
    if domain and domain.split(".")[0] != "svc":
        raise Refused("must name Services as name.namespace.svc, with a port if need be")
    return _named(name, namespace, port if colon else str(PORT)), share


def _named(name: str, namespace: str, port: str) -> Named:
    if not all(is_dns_name(part) and "." not in part for part in (name, namespace or "x")):
        raise Refused("must name a Service of Kubernetes")
    return Named(name, namespace, number(1, 65535)(port))
