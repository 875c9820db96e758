"""The clusters as operators are told of them: what /clusters answers and `isthmus clusters` prints as JSON.

In: nothing. Out: Cluster and ClusterList, from which the JSON Schema in docs/reference is made, and whether a cluster
needs attention. Moments are RFC 3339 in UTC and durations seconds; what is unknown is null. Loads nothing heavy, since
the command line needs it too.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from aggregator.operate.documents import API_VERSION, ApiVersion, Moment, Observed, Reason, Replica, schema_of
from watchers.status import State


class Kind(msgspec.Struct, frozen=True, rename="camel"):
    """One kind of objects that is read of a cluster."""

    kind: Annotated[str, Meta(description="Such as Pod or EndpointSlice.")]
    state: Annotated[
        str,
        Meta(
            description="connecting, syncing, synced, stale, denied, or absent where the API server has no such kind."
        ),
    ]
    reason: Annotated[str, Meta(description="Why it is not synced; empty where there is nothing to say.")]
    objects: Annotated[int, Meta(description="How many are held.")]
    heard: Annotated[Moment, Meta(description="When its watch last said something.")]
    confirmed: Annotated[Moment, Meta(description="When it was last known to be as the API server has it.")]


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="Cluster"):
    """A registered cluster, as one replica of the control plane sees it."""

    api_version: ApiVersion = API_VERSION
    cluster: Annotated[str, Meta(description="The id it is registered under.")]
    network: Annotated[str, Meta(description="Its network; empty where it has none.")]
    home: Annotated[bool, Meta(description="Whether its proxies are served by this control plane.")]
    state: Annotated[
        State,
        Meta(
            description=(
                "Connecting: not reached yet. Syncing: being read for the first time. Synced: held as its API server "
                "has it. Stale: held as it was, while it cannot be read. Denied: the credential is refused. "
                "UpdatePending: read by the old credential, while the new one does not work. Removed: registered no "
                "more."
            )
        ),
    ]
    reason: Reason
    since: Annotated[Moment, Meta(description="When the state began.")]
    lag: Annotated[
        float | None,
        Meta(
            description="For how many seconds what is held has not been known to be current; null before it was read."
        ),
    ]
    services: Annotated[int, Meta(description="Its services that take part in the mesh.")]
    endpoints: Annotated[int, Meta(description="Its ready endpoints of services of the mesh.")]
    server: Annotated[str, Meta(description="Host and port of its API server; empty for a directory.")]
    registered_by: Annotated[str, Meta(description="The Secret, file or setting that registers it.")]
    uid: Annotated[str, Meta(description="The uid of its namespace kube-system; empty while unknown.")]
    token_expires: Annotated[Moment, Meta(description="When the token in use expires.")]
    certificate_expires: Annotated[Moment, Meta(description="When the client certificate in use expires.")]
    server_certificate_expires: Annotated[
        Moment, Meta(description="When the certificate its API server showed expires.")
    ]
    withdrawn: Annotated[
        Moment, Meta(description="When its endpoints are withdrawn, if it cannot be read until then.")
    ]
    replica: Replica
    observed: Observed
    kinds: Annotated[tuple[Kind, ...], Meta(description="The kinds of objects that are read of it.")]


class ClusterList(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="ClusterList"):
    """All registered clusters, and those removed in the last minutes; of each replica that was asked an item."""

    api_version: ApiVersion = API_VERSION
    items: Annotated[tuple[Cluster, ...], Meta(description="Home first, then by name and replica.")]


def needs_attention(cluster: Cluster) -> bool:
    """Whether somebody has to do something about it: it cannot be read, or not for long any more.

    One that is being read for the first time needs none, unless that meets with something.
    """
    if cluster.state in ("Connecting", "Syncing"):
        return bool(cluster.reason)
    return cluster.state in ("Stale", "Denied", "UpdatePending")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a ClusterList or a Cluster."""
    return schema_of(ClusterList | Cluster, "clusters")
