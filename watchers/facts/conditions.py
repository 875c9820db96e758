"""What objects say of themselves in their status, as far as this product writes it: conditions, addresses, by whom.

In: ``status`` and ``metadata.managedFields`` as they stand on the wire. Out: parts of facts, so that what is to be
written can be compared with what is there, and only the difference is written, whoever wrote it and however often the
process starts. Statuses are written by whoever serves the object, so nothing here is trusted further than that.
"""

from __future__ import annotations

from sys import intern

import msgspec

from watchers.facts.keys import Shared

MANAGER = "isthmus"
"""Under this name the API server remembers which fields are ours."""

Addresses = tuple[str, ...]
"""IP addresses and host names, sorted, so that another order is no change."""


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A condition: ``status`` is True, False or Unknown, ``since`` (RFC 3339) when it became that, "" if that is now.

    ``generation`` is the generation of the object that was judged.
    """

    type: str
    status: str
    reason: str
    message: str
    generation: int
    since: str = ""


class ListenerStatus(msgspec.Struct, frozen=True, gc=False):
    """What is said of one listener of a Gateway."""

    name: str
    conditions: tuple[Condition, ...]


# On the wire


class ManagedFields(msgspec.Struct, gc=False):
    """One entry of ``metadata.managedFields``; which fields they are goes unread."""

    manager: str | None = None
    subresource: str | None = None


class LoadBalancerIngress(msgspec.Struct, gc=False):
    """One entry of ``status.loadBalancer.ingress`` of a Service or an Ingress."""

    ip: str | None = None
    hostname: str | None = None


class LoadBalancer(msgspec.Struct, gc=False):
    """``status.loadBalancer``."""

    ingress: list[LoadBalancerIngress] | None = None


class LoadBalancedStatus(msgspec.Struct, gc=False):
    """``status`` of a Service or an Ingress."""

    load_balancer: LoadBalancer | None = msgspec.field(default=None, name="loadBalancer")


class ConditionObject(msgspec.Struct, gc=False):
    """One entry of ``conditions``."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    generation: int | None = msgspec.field(default=None, name="observedGeneration")
    since: str | None = msgspec.field(default=None, name="lastTransitionTime")


class ListenerStatusObject(msgspec.Struct, gc=False):
    """One entry of ``status.listeners`` of a Gateway."""

    name: str | None = None
    conditions: list[ConditionObject] | None = None


_addresses: Shared[Addresses, Addresses] = Shared(4_096)


def is_told(managed: list[ManagedFields] | None) -> bool:
    """Whether this product has written anything of the status that still stands."""
    return any(entry.manager == MANAGER and entry.subresource == "status" for entry in managed or ())


def read_addresses(status: LoadBalancedStatus | None) -> Addresses:
    """The addresses of a load balancer; equal ones are mostly one object."""
    balancer = status.load_balancer if status else None
    if balancer is None or not balancer.ingress:
        return ()
    given = tuple(sorted({address for one in balancer.ingress if (address := one.ip or one.hostname)}))
    return _addresses.get(given) or _addresses.add(given, given)


def read_conditions(given: list[ConditionObject] | None) -> tuple[Condition, ...]:
    """Conditions in their order."""
    return tuple(
        [
            Condition(
                intern(one.type or ""),
                intern(one.status or ""),
                intern(one.reason or ""),
                one.message or "",
                one.generation or 0,
                one.since or "",
            )
            for one in given or ()
        ]
    )


def read_listeners(given: list[ListenerStatusObject] | None) -> tuple[ListenerStatus, ...]:
    """What is said of each listener, in order."""
    return tuple([ListenerStatus(one.name or "", read_conditions(one.conditions)) for one in given or ()])
