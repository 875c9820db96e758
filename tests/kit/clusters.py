"""Clusters as a control plane tells of them, for tests of whatever shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from aggregator.operate.cluster_list import Cluster, Kind

NOW = datetime(2026, 11, 2, 9, 14, 4, tzinfo=UTC)


def before(**length: float) -> datetime:
    """A moment so long before NOW, as timedelta takes it."""
    return NOW - timedelta(**length)


def after(**length: float) -> datetime:
    """A moment so long after NOW."""
    return NOW + timedelta(**length)


def kind(name: str, state: str = "synced", reason: str = "", **fields: Any) -> Kind:
    """A kind that was read, unless it is said otherwise."""
    read = Kind(name, state, reason, objects=12, heard=before(seconds=3), confirmed=before(seconds=0.2))
    return msgspec.structs.replace(read, **fields)


def cluster(name: str = "west", **fields: Any) -> Cluster:
    """A cluster that is well, unless it is said otherwise."""
    well = Cluster(
        cluster=name,
        network=f"net-{name[0]}",
        home=False,
        state="Synced",
        reason="",
        since=before(hours=3),
        lag=0.2,
        services=300,
        endpoints=4000,
        server=f"{name}.example.org:6443",
        registered_by=f"Secret istio-system/{name}",
        uid=f"uid-of-{name}",
        token_expires=after(days=27),
        certificate_expires=None,
        server_certificate_expires=after(days=340),
        withdrawn=None,
        replica="isthmus-0",
        observed=NOW,
        kinds=(kind("Service"), kind("Pod"), kind("EndpointSlice")),
    )
    return msgspec.structs.replace(well, **fields)


def unread(name: str, state: str = "connecting", reason: str = "") -> Kind:
    """A kind that was never read."""
    return kind(name, state, reason, objects=0, heard=None, confirmed=None)
