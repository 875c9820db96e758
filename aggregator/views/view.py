"""View: what one class of proxies is told of one type.

Only the proxy features that the type depends on are part of it, so proxies that differ in nothing that matters share
one view, its resources and their bytes. A view somebody subscribes to is an item of the interest Table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from aggregator.mesh.addresses import pack
from xds.encoded import Resource

ViewKey: TypeAlias = tuple[str]
ResourceKey: TypeAlias = tuple[str, str]
"""(view name, resource name): the key of a resource in the resources Table, whose partitions are views."""

Completeness: TypeAlias = Literal["partial", "settled"]
"""Whether every registered cluster has answered (or passed its limit), or only home for certain."""


ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - where a gateway listens unless it says otherwise


def listen_address(claimed: str) -> str:
    """Where a gateway listens that says `claimed` of it: there, if that is an IP address."""
    return claimed if pack(claimed) is not None else ANY_ADDRESS


class View(msgspec.Struct, frozen=True):
    """What proxies of `role` are told of `type_url`; `features` are (name, value) pairs, sorted."""

    role: str
    type_url: str
    features: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The view's name: key of the interest Table and partition of the resources Table."""
        short = self.type_url.rpartition("/")[2]
        return "|".join((self.role, short, *(f"{name}={value}" for name, value in self.features)))

    def feature(self, name: str) -> str:
        """The value of a feature; "" if the view has none of that name."""
        return next((value for key, value in self.features if key == name), "")

    @property
    def key(self) -> ViewKey:
        """Key in the interest and settled Tables."""
        return (self.name,)


def joining_again(
    rows: Mapping[ResourceKey, Resource], changes: Sequence[tuple[ResourceKey, Resource | None]]
) -> Sequence[ResourceKey]:
    """The resources of a view that count as changed though they are equal: they join one that comes to be, or that
    admits more than before (see xds.encoded.Ties).

    Reads the whole view, 0.1 us a resource, where a service comes to be; nothing but the changes otherwise.
    """
    admitting = {
        key[1] for key, new in changes if new is not None and new.ties.admits and new.admits_more(rows.get(key))
    }
    if not admitting:
        return ()
    changed = {key for key, _ in changes}
    return [
        key for key, one in rows.items() if not admitting.isdisjoint(one.ties.joins) and key not in changed
    ]
