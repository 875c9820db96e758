"""What objects say of themselves in their status, as far as this product writes it: conditions, addresses, by whom.

In: ``status`` and ``metadata.managedFields`` as they stand on the wire. Out: parts of facts, so that what is to be
written can be compared with what is there, and only the difference is written, whoever wrote it and however often the
process starts. Statuses are written by whoever serves the object, so nothing here is trusted further than that.
"""

from __future__ import annotations

from sys import intern

import msgspec

from watchers.facts.keys import Shared
from watchers.facts.metadata import Owned

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


Conditions = tuple[Condition, ...]
Written = tuple[str, ...]
"""What of a status we wrote, sorted: names of its fields, and of conditions that have owners one by one their types."""


class ListenerStatus(msgspec.Struct, frozen=True, gc=False):
    """What is said of one listener of a Gateway."""

    name: str
    conditions: Conditions


# On the wire


class ManagedFields(msgspec.Struct, gc=False):
    """One entry of ``metadata.managedFields``, where all that counts is whose it is."""

    manager: str | None = None
    subresource: str | None = None


_OwnedStatus = dict[str, Owned] | str | float | bool | None


class OwnedFields(msgspec.Struct, gc=False):
    """``fieldsV1``, of which the status is read: names after ``f:``, entries of lists by their keys after ``k:``."""

    status: dict[str, _OwnedStatus] | None = msgspec.field(default=None, name="f:status")


class ManagedStatus(ManagedFields, gc=False):
    """One entry of ``metadata.managedFields``, and which fields of the status they are."""

    fields: OwnedFields | None = msgspec.field(default=None, name="fieldsV1")


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
    """One entry of ``conditions``. Istio writes generations as text."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    generation: int | str | None = msgspec.field(default=None, name="observedGeneration")
    since: str | None = msgspec.field(default=None, name="lastTransitionTime")


class ListenerStatusObject(msgspec.Struct, gc=False):
    """One entry of ``status.listeners`` of a Gateway."""

    name: str | None = None
    conditions: list[ConditionObject] | None = None


_addresses: Shared[Addresses, Addresses] = Shared(4_096)
_written: Shared[Written, Written] = Shared(64)
_KEY = msgspec.json.Decoder(ConditionObject)


def is_told(managed: list[ManagedFields] | None) -> bool:
    """Whether this product has written anything of the status that still stands."""
    return any(entry.manager == MANAGER and entry.subresource == "status" for entry in managed or ())


def read_written(managed: list[ManagedStatus] | None) -> Written:
    """What this product has written of the status that still stands."""
    found: set[str] = set()
    for entry in managed or ():
        if entry.manager == MANAGER and entry.subresource == "status" and entry.fields is not None:
            for field, inner in (entry.fields.status or {}).items():
                if inner is not None:
                    found.add(field.removeprefix("f:"))
                if field == "f:conditions" and isinstance(inner, dict):
                    found.update([_type_in(key) for key, one in inner.items() if one is not None])
    found.discard("")
    given = tuple(sorted(found))
    return _written.get(given) or _written.add(given, given)


def _type_in(key: str) -> str:
    """The type of a condition out of the key of its entry: ``k:{"type":"Ready"}``."""
    try:
        return _KEY.decode(key.removeprefix("k:")).type or ""
    except msgspec.DecodeError:
        return ""


def read_addresses(status: LoadBalancedStatus | None) -> Addresses:
    """The addresses of a load balancer; equal ones are mostly one object."""
    balancer = status.load_balancer if status else None
    if balancer is None or not balancer.ingress:
        return ()
    given = tuple(sorted({address for one in balancer.ingress if (address := one.ip or one.hostname)}))
    return _addresses.get(given) or _addresses.add(given, given)


def read_conditions(given: list[ConditionObject] | None, *prefixes: str) -> Conditions:
    """Conditions in their order; with prefixes only those whose type begins with one."""
    return tuple(
        [
            Condition(
                intern(one.type or ""),
                intern(one.status or ""),
                intern(one.reason or ""),
                one.message or "",
                _generation(one.generation),
                one.since or "",
            )
            for one in given or ()
            if not prefixes or (one.type or "").startswith(prefixes)
        ]
    )


def _generation(given: int | str | None) -> int:
    if isinstance(given, str):
        return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else 0
    return given or 0


def read_listeners(given: list[ListenerStatusObject] | None) -> tuple[ListenerStatus, ...]:
    """What is said of each listener, in order."""
    return tuple([ListenerStatus(one.name or "", read_conditions(one.conditions)) for one in given or ()])
