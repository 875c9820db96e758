"""The fact of the certificates a namespace's proxies trust: ConfigMap ``istio-ca-root-cert``, key ``root-cert.pem``.

Proxies mount it, and verify the control plane by it. What is kept of one is what must be known to write it: a digest of
the text, which is the same in thousands of namespaces and may be anything where somebody else wrote it, and who owns
it. Other ConfigMaps are no facts of this kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from sys import intern

import msgspec

from watchers.facts.conditions import MANAGER
from watchers.facts.keys import ObjectKey
from watchers.facts.metadata import Name, Owned, namespaced_key

NAME = "istio-ca-root-cert"
ENTRY = "root-cert.pem"
LABEL = "istio.io/config"
"""As Istio labels it, with the value "true"."""

_MOST_MANAGERS = 8
_LONGEST_MANAGER = 128


class RootCertificates(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="RootCertificates"):
    """Such a ConfigMap: ``digest`` is that of its text ("" if it has none), ``labelled`` whether it has Istio's label.

    It is ``owned`` if this product applied the text or the label; ``managers`` are the others who own one of both, by
    the names under which the API server knows them, sorted.
    """

    digest: str
    labelled: bool
    owned: bool
    managers: tuple[str, ...] = ()


class RootsData(msgspec.Struct, gc=False):
    """The key used of its ``data``."""

    text: str | None = msgspec.field(default=None, name=ENTRY)


class RootsLabels(msgspec.Struct, gc=False):
    """The label used."""

    config: str | None = msgspec.field(default=None, name=LABEL)


class RootsOwnedLabels(msgspec.Struct, gc=False):
    """``f:metadata`` of ``fieldsV1``."""

    labels: dict[str, Owned] | None = msgspec.field(default=None, name="f:labels")


class RootsOwnedFields(msgspec.Struct, gc=False):
    """``fieldsV1``: names begin with ``f:``."""

    data: dict[str, Owned] | None = msgspec.field(default=None, name="f:data")
    metadata: RootsOwnedLabels | None = msgspec.field(default=None, name="f:metadata")


class RootsManager(msgspec.Struct, gc=False):
    """One entry of ``metadata.managedFields``."""

    manager: str | None = None
    fields: RootsOwnedFields | None = msgspec.field(default=None, name="fieldsV1")


class RootsMeta(Name, gc=False):
    """``metadata`` of such a ConfigMap."""

    labels: RootsLabels | None = None
    managed: list[RootsManager] | None = msgspec.field(default=None, name="managedFields")


class RootsObject(msgspec.Struct, gc=False):
    """Such a ConfigMap on the wire."""

    metadata: RootsMeta
    data: RootsData | None = None


def digest(text: str) -> str:
    """What a text is compared by. Whatever JSON can hold has one."""
    return intern(hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest())


def read_root_certificates(wire: RootsObject, cluster: str) -> tuple[ObjectKey, RootCertificates]:
    """Key and fact of such a ConfigMap."""
    metadata = wire.metadata
    text = wire.data.text if wire.data else None
    owners = {intern((one.manager or "")[:_LONGEST_MANAGER]) for one in metadata.managed or () if _owns(one.fields)}
    return namespaced_key(cluster, "RootCertificates", metadata), RootCertificates(
        "" if text is None else digest(text),
        metadata.labels is not None and metadata.labels.config == "true",
        MANAGER in owners,
        _others(owners),
    )


def _owns(fields: RootsOwnedFields | None) -> bool:
    if fields is None:
        return False
    labels = fields.metadata.labels if fields.metadata else None
    return f"f:{ENTRY}" in (fields.data or ()) or f"f:{LABEL}" in (labels or ())


def _others(owners: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(owner for owner in owners if owner != MANAGER)[:_MOST_MANAGERS])
