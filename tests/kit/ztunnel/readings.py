"""What reading a resource yields: an update for the state, and what is odd about the resource.

`validation` makes readings of single resources, `state` applies their updates, the `machine` collects the oddities. An
oddity is something ztunnel takes without a word although no control plane should send it: tests of a control plane
assert that there are none.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from tests.kit.ztunnel.records import Endpoint, NamespacedHostname, Policy, Service, Workload


class Trait(StrEnum):
    """Something ztunnel accepts in silence and a control plane should never send."""

    NAME_IS_NOT_KEY = "name-is-not-key"
    """The resource's name differs from the key inside it: it can never be removed."""
    NAME_TWICE = "name-twice"
    """One response holds a name twice: the last counts, endpoints of both may stay."""
    UPSERT_AND_REMOVAL = "upsert-and-removal"
    """One response sends and removes a name: it is gone, yet its version is claimed on reconnect."""
    OTHER_TYPE_INSIDE = "other-type-inside"
    """The type URL of the resource differs from that of the response."""
    UNKNOWN_FIELD = "unknown-field"
    EMPTY_UID = "empty-uid"
    """All workloads without uid overwrite each other."""
    UNREACHABLE = "unreachable"
    """A workload with neither address nor hostname nor gateway."""
    UNKNOWN_ENUM = "unknown-enum"
    """An enumeration value that is read as the default."""
    PORT_OUT_OF_RANGE = "port-out-of-range"
    """A port above 65535, truncated to 16 bits, or a gateway's port 0."""
    EMPTY_HOSTNAME = "empty-hostname"
    INVALID_SAN = "invalid-san"
    """A subject alternative name that is no SPIFFE identity: ignored when connecting."""
    UNSORTED_SANS = "unsorted-sans"
    """The order of names is part of the key of pooled connections."""
    CONDITION_DROPPED = "condition-dropped"
    """An IP range or string match that cannot be read is left out of its match."""
    EMPTY_MATCH = "empty-match"
    """A match without conditions never matches: a DENY made of it never fires."""
    SHARED_VIP = "shared-vip"
    """Two services of one namespace on one virtual address: the last written counts, removing either removes both."""
    SHARED_ADDRESS = "shared-address"
    """Two workloads on one address of one network."""


class Oddity(Struct, frozen=True, gc=False):
    """A trait of the resource called `name`; `detail` says where."""

    name: str
    trait: Trait
    detail: str = ""


class WorkloadUpdate(Struct, frozen=True):
    """A workload and what it is an endpoint of."""

    workload: Workload
    endpoints: tuple[tuple[NamespacedHostname, Endpoint], ...]

    @property
    def key(self) -> str:
        """The only resource name by which the workload can be removed."""
        return self.workload.uid


class ServiceUpdate(Struct, frozen=True):
    """A service, as yet without endpoints."""

    service: Service

    @property
    def key(self) -> str:
        """The only resource name by which the service can be removed."""
        return str(self.service.key)


class PolicyUpdate(Struct, frozen=True):
    """A policy; it is kept under its resource name, whatever that is."""

    policy: Policy

    @property
    def key(self) -> str:
        """The resource name that workloads are expected to refer to."""
        return str(self.policy)


class Reading(Struct, frozen=True):
    """What one resource says."""

    update: WorkloadUpdate | ServiceUpdate | PolicyUpdate
    traits: tuple[tuple[Trait, str], ...]
