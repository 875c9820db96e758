"""A proxy: what a stream's first request claims, and what the server believes after access.py has compared the two.

In: the `node` of the first request. Out: Claims, of bounded size. Claims are never taken
for truth where something is proven: role, network and node of a Proxy come from its identity and admission.
"""

from __future__ import annotations

from typing import Final

import msgspec

from xds.server import refusals
from xds.server.authentication import Identity
from xds.session.requests import KNOWN_METADATA, Node

LONGEST_NODE_ID: Final = 1024
# Generous against Kubernetes' names of at most 253 characters, mean against a node that is meant to fill memory.
LONGEST_METADATA_VALUE: Final = 512


class Claims(msgspec.Struct, frozen=True):
    """What a proxy says of itself. Empty strings are no claim: a ztunnel outside Kubernetes leaves most of it empty.

    `kind` is the first part of a node id `<kind>~<address>~<pod>.<namespace>~<domain>`, "" for ids of another form.
    `extensions` are those it is built with, as far as they matter (xds.session.requests.KNOWN_EXTENSIONS).
    `incremental` is False where it speaks the state-of-the-world variant.
    """

    id: str
    kind: str = ""
    pod: str = ""
    namespace: str = ""
    service_account: str = ""
    node: str = ""
    cluster: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    extensions: frozenset[str] = frozenset()
    incremental: bool = True


class Proxy(msgspec.Struct, frozen=True):
    """A proxy whose stream is open. `identity` is None on the plaintext port only, where role and node are mere claims.

    `namespace` is its own; `network`, `role` and `gateway` (the Gateway in its namespace that it belongs to) are those
    its admission gives; `node` is the Kubernetes node it runs on ("": not known), `cluster` the cluster that vouched
    for it; `metadata` and `extensions` are the few claims that views may look at. `mode` is how its pod says it is to
    be served ("": it does not say); `incremental` is False where it speaks the state-of-the-world variant.
    """

    id: str
    peer: str
    identity: Identity | None
    role: str
    namespace: str
    network: str
    cluster: str
    node: str
    metadata: tuple[tuple[str, str], ...] = ()
    gateway: str = ""
    extensions: frozenset[str] = frozenset()
    mode: str = ""
    incremental: bool = True

    def claimed(self, key: str, default: str = "") -> str:
        """The value of one of the claims in `metadata`."""
        return next((value for name, value in self.metadata if name == key), default)


def claims_of(node: Node | None, *, incremental: bool = True) -> Claims:
    """The claims of a node; raises Refusal (INVALID_ARGUMENT) if it has no id or is too large.

    The id is taken apart at "~"; pod and namespace at the last dot, since a pod's name may hold dots and a namespace's
    may not.
    """
    if node is None or not node.id:
        raise refusals.invalid("the first request names no node: set node.id in the proxy's bootstrap")
    if len(node.id) > LONGEST_NODE_ID:
        raise refusals.invalid(f"node.id is longer than {LONGEST_NODE_ID} characters")
    metadata = {key: _text(key, node.metadata[key]) for key in KNOWN_METADATA if key in node.metadata}
    kind = pod = namespace = ""
    parts = node.id.split("~")
    if len(parts) == 4:
        kind = parts[0]
        pod, _, namespace = parts[2].rpartition(".")
    claimed_namespace = metadata.get("NAMESPACE", "")
    if namespace and claimed_namespace and namespace != claimed_namespace:
        raise refusals.denied(
            f"node.id names namespace {namespace!r} and metadata NAMESPACE {claimed_namespace!r}: let both say the same"
        )
    return Claims(
        id=node.id,
        kind=kind,
        pod=pod or metadata.get("NAME", ""),
        namespace=namespace or claimed_namespace,
        service_account=metadata.get("SERVICE_ACCOUNT", ""),
        node=metadata.get("NODE_NAME", ""),
        cluster=metadata.get("CLUSTER_ID", ""),
        metadata=tuple(sorted(metadata.items())),
        extensions=node.extensions,
        incremental=incremental,
    )


def _text(key: str, value: str | None) -> str:
    if value is None:
        raise refusals.invalid(f"node.metadata {key} is no string: every proxy sends it as one")
    if len(value) > LONGEST_METADATA_VALUE:
        raise refusals.invalid(f"node.metadata {key} is longer than {LONGEST_METADATA_VALUE} characters")
    return value
