"""Who may say where a cluster is: registrations, and which of several that claim one cluster owns it.

In: Secrets of the home cluster's system namespace (label ``istio/multiCluster: "true"``, of each cluster's id its
kubeconfig), kubeconfigs in files, and the clusters this process was told of. Out: the owner of every id, and why other
claims do not count. Pure, and the same whatever order things arrive in, so that all replicas decide alike. Reads no
kubeconfig, and shows none: not in a repr, and so in no log line.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, cast

import msgspec

from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import ObjectKey, check_cluster, trust_domain
from watchers.facts.kinds import Kind
from watchers.facts.metadata import ObjectMeta, created, namespaced_key

LABEL = "istio/multiCluster"
"""The label, of value "true", of Secrets that register clusters (istioctl create-remote-secret writes it)."""

TRUST_DOMAIN = "isthmus.io/trust-domain"
"""The annotation of such a Secret that names the trust domain of its clusters' identities, if that is not home's."""

_LINE_ENDS = str.maketrans("", "", "\r\n")


class SecretAnnotations(msgspec.Struct, gc=False):
    """The annotation that is read."""

    trust_domain: str | None = msgspec.field(default=None, name=TRUST_DOMAIN)


class SecretMeta(ObjectMeta, gc=False):
    """``metadata`` of a Secret."""

    annotations: SecretAnnotations | None = None


class SecretObject(msgspec.Struct, gc=False):
    """A Secret on the wire, as far as it is read: ``data`` are kubeconfigs by cluster id, in base64."""

    metadata: SecretMeta
    data: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"SecretObject({self.metadata.name!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("name", self.metadata.name)]


class RemoteSecret(msgspec.Struct, frozen=True, gc=False):
    """A Secret that registers clusters: when it was made (RFC 3339), kubeconfigs by cluster id, sorted, and the trust
    domain of these clusters, "" where it names none.
    """

    created: str
    kubeconfigs: tuple[tuple[str, bytes], ...]
    trust_domain: str = ""

    def __repr__(self) -> str:
        return f"RemoteSecret({[cluster for cluster, _ in self.kubeconfigs]})"

    def __rich_repr__(self) -> list[tuple[str, list[str]]]:
        return [("clusters", [cluster for cluster, _ in self.kubeconfigs])]


def is_remote_secret(wire: SecretObject, system_namespace: str) -> bool:
    """Whether a Secret registers clusters: those elsewhere than in the system namespace may not."""
    labels = wire.metadata.labels or {}
    return labels.get(LABEL) == "true" and wire.metadata.namespace == system_namespace


def read_remote_secret(wire: SecretObject, cluster: str) -> tuple[ObjectKey, RemoteSecret]:
    """Key and content of a Secret that registers clusters; raises InvalidObject, which shows no value."""
    kubeconfigs = sorted((key, _decoded(key, value)) for key, value in (wire.data or {}).items())
    named = (wire.metadata.annotations or SecretAnnotations()).trust_domain or ""
    return namespaced_key(cluster, "RemoteSecret", wire.metadata), RemoteSecret(
        created(wire.metadata.creation),
        tuple(kubeconfigs),
        trust_domain(named, "metadata", "annotations", TRUST_DOMAIN),
    )


def _decoded(key: str, value: str) -> bytes:
    try:
        return b64decode(value.translate(_LINE_ENDS), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidObject(("data", key), "is not base64", "encode the kubeconfig") from None


REMOTE_SECRET = Kind(
    "Secret",
    "v1",
    wire=SecretObject,
    # No fact of the mesh, and never in a table of them: its sink is `clusters.SecretClaims`.
    read=cast("Any", read_remote_secret),
    fact="RemoteSecret",
    selects=is_remote_secret,
    confidential=True,
)
"""Secrets that register clusters, as a kind to read."""


class Origin(IntEnum):
    """Where a registration stands; of two origins the lower goes first."""

    SETTING = 0
    FILE = 1
    SECRET = 2


class Claim(msgspec.Struct, frozen=True):
    """A registration: that this cluster is where this kubeconfig leads.

    ``created`` is RFC 3339, "" where it is unknown; ``namespace`` is "" for what is no Secret; ``name`` is that of the
    Secret, file or setting. ``trust_domain`` is "" where the cluster's identities are of home's.
    """

    cluster: str
    kubeconfig: bytes
    origin: Origin
    name: str
    namespace: str = ""
    created: str = ""
    trust_domain: str = ""

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        if self.origin is Origin.SECRET:
            return f"Secret {self.namespace}/{self.name}"
        return self.name

    @property
    def rank(self) -> tuple[Origin, str, str, str, str]:
        """The order of claims: the oldest first, then by namespace and name."""
        return self.origin, self.created, self.namespace, self.name, self.cluster

    def __repr__(self) -> str:
        return f"Claim({self.cluster!r}, {self.place!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("cluster", self.cluster), ("place", self.place)]


class Reserved(msgspec.Struct, frozen=True):
    """A cluster nobody can claim: home, or one read from a directory. ``uid`` is that of its API server, if known."""

    what: str
    uid: str = ""


class Refused(msgspec.Struct, frozen=True):
    """A claim that does not count: where it stands, for which id, why, and what to do."""

    place: str
    cluster: str
    cause: str
    cure: str


class Registrations(msgspec.Struct, frozen=True):
    """The owner of every registered cluster, and the claims that do not count, both in the order of claims."""

    owners: Mapping[str, Claim]
    refused: tuple[Refused, ...]


def claims_of(key: ObjectKey, secret: RemoteSecret) -> Iterator[Claim]:
    """The claims a Secret makes."""
    _, _, namespace, name = key
    for cluster, kubeconfig in secret.kubeconfigs:
        yield Claim(cluster, kubeconfig, Origin.SECRET, name, namespace, secret.created, secret.trust_domain)


def decide(reserved: Mapping[str, Reserved], claims: Iterable[Claim], uids: Mapping[Claim, str]) -> Registrations:
    """Who owns which cluster.

    Of several claims to one id the first in the order of claims owns it, and the next one does when that is gone. A
    claim may also turn out to lead to an API server that another id stands for already: ``uids`` are the uids of the
    namespace kube-system, as far as they have been read. Its objects would then count twice, so the later is refused.
    """
    owners: dict[str, Claim] = {}
    refused: list[Refused] = []
    servers = {one.uid: f"cluster {cluster!r}" for cluster, one in sorted(reserved.items()) if one.uid}
    for claim in sorted(claims, key=lambda claim: claim.rank):
        fault = _fault(claim, reserved, owners, servers.get(uids.get(claim, "")))
        if fault is not None:
            refused.append(Refused(claim.place, claim.cluster, *fault))
            continue
        owners[claim.cluster] = claim
        if uid := uids.get(claim):
            servers[uid] = f"cluster {claim.cluster!r}"
    return Registrations(owners, tuple(refused))


def _fault(
    claim: Claim, reserved: Mapping[str, Reserved], owners: Mapping[str, Claim], same_server: str | None
) -> tuple[str, str] | None:
    """Why a claim does not count, and the cure."""
    try:
        check_cluster(claim.cluster)
    except ValueError as error:
        return str(error), "rename the entry"
    if taken := reserved.get(claim.cluster):
        return f"claims the id {claim.cluster!r}, which is {taken.what}", "use an id of its own, or remove the entry"
    if owner := owners.get(claim.cluster):
        return (
            f"claims the cluster {claim.cluster!r}, which {owner.place} owns as the older claim",
            "remove one of the two entries",
        )
    if same_server:
        return (
            f"leads to the same API server as {same_server}, whose objects would count twice",
            "remove one of the two entries",
        )
    return None
