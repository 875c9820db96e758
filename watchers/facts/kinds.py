"""The registry: which kinds of objects become facts, and the ways there.

`decode` takes an object as plain Python values (YAML); `Kind.decode_json` takes one object's bytes (of a watch event,
of a file) and `Kind.decode_page` a page of a LIST, without ever building the values we do not use. All end in the same
wire structs and readers, so the ways cannot differ. A new kind is its module and an entry here. For an object that
cannot be used everything raises InvalidObject and nothing else, whatever it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Generic, TypeVar, cast

import msgspec

from watchers.facts import (
    Fact,
    ObjectKey,
    core,
    discovery,
    gateway_api,
    istio_networking,
    istio_security,
    mesh_config,
    multicluster,
    named,
    networking,
    reference_grants,
    root_certificates,
    secrets,
)
from watchers.facts.invalid import InvalidObject, refusal
from watchers.facts.opened import opened
from watchers.facts.repair import repaired

Item = TypeVar("Item")
Keyed = tuple[ObjectKey, Fact]

_NOT_JSON = "correct the JSON"
_LONGEST_NAME = 253
_SHOWN = 40


class PageMeta(msgspec.Struct, gc=False):
    """``metadata`` of a list."""

    resource_version: str | None = msgspec.field(default=None, name="resourceVersion")
    continue_token: str | None = msgspec.field(default=None, name="continue")


class PageObject(msgspec.Struct, Generic[Item]):
    """A page of a LIST on the wire."""

    items: list[Item] | None = None
    metadata: PageMeta | None = None


_RAW_PAGE = msgspec.json.Decoder(PageObject[msgspec.Raw])


class Page(msgspec.Struct, frozen=True):
    """A page of a LIST: its facts, the objects that are none for their own fault, and where to go on.

    ``continue_token`` is "" on the last page; ``resource_version`` is where a watch begins.
    """

    facts: list[Keyed]
    invalid: list[InvalidObject]
    resource_version: str
    continue_token: str


class Kind:
    """A kind of objects that become facts.

    ``fact`` is the kind in the key of the fact (another than the object's for ConfigMaps and Secrets). With ``called``
    only objects of that name are of the kind: two names of ConfigMaps make two kinds. ``selects`` tells which objects
    of the kind are facts at all, given the wire struct and the system namespace. Of an object whose kind
    is ``confidential`` no value is ever shown. With ``namespaces``, which a kind `apart` may be given, only what is in
    them is read; of other objects nothing is kept or said, whatever is wrong with them. ``at_home`` are fields of facts
    that are of use at home alone, where statuses are written, with what stands in them `elsewhere`.
    """

    def __init__(
        self,
        name: str,
        *api_versions: str,
        wire: type[Any],
        read: Callable[[Any, str], Keyed],
        fact: str = "",
        called: str = "",
        namespaced: bool = True,
        selects: Callable[[Any, str], bool] | None = None,
        confidential: bool = False,
        at_home: Mapping[str, object] | None = None,
    ) -> None:
        self.name = name
        self.api_versions = api_versions
        self.fact = fact or name
        self.called = called
        self.namespaced = namespaced
        self.namespaces: frozenset[str] | None = None
        self._wire = wire
        self._read = read
        self._selects = selects
        self._confidential = confidential
        self._at_home = at_home or {}
        self._elsewhere: Kind | None = None
        self._beside: Kind | None = None
        self._object = msgspec.json.Decoder(wire)
        self._page = msgspec.json.Decoder(PageObject[wire])  # type: ignore[valid-type]

    def apart(self) -> Kind:
        """The same kind, to be given namespaces of its own."""
        return copy(self)

    def where(self, selects: Callable[[Any, str], bool]) -> Kind:
        """The same kind, less what is not selected."""
        kind = copy(self)
        kind._selects = selects
        return kind

    def beside(self, other: Kind) -> Kind:
        """The same kind, of which the objects that it does not select are read as `other`, where all are at hand."""
        kind = copy(self)
        kind._beside = other
        return kind

    def elsewhere(self) -> Kind:
        """The kind as it is read of clusters that are not home, the same for all of them."""
        if self._elsewhere is None:
            self._elsewhere = self._without_home() if self._at_home else self
        return self._elsewhere

    def _without_home(self) -> Kind:
        blank = self._at_home
        read, kind = self._read, copy(self)

        def without(wire: Any, cluster: str) -> Keyed:
            key, fact = read(wire, cluster)
            return key, msgspec.structs.replace(fact, **blank)

        kind._read = without
        return kind

    def counts(self, namespace: str | None) -> bool:
        """Whether objects of a namespace are read, of the one they have on the wire."""
        return self.namespaces is None or not self.namespaced or (namespace or "default") in self.namespaces

    def decode(self, document: object, cluster: str, system_namespace: str) -> Keyed | None:
        """The fact of an object given as plain Python values; None if the object is not selected."""
        try:
            keyed = self._fact(msgspec.convert(document, self._wire), cluster, system_namespace)
        except msgspec.ValidationError as error:
            raise self._about(self._refusal(error, document), document, cluster) from None
        except InvalidObject as error:
            raise self._about(error, document, cluster) from None
        if keyed is None and self._beside is not None:
            return self._beside.decode(document, cluster, system_namespace)
        return keyed

    def decode_json(self, data: bytes | msgspec.Raw, cluster: str, system_namespace: str) -> Keyed | None:
        """The fact of an object given as JSON; None if the object is not selected."""
        try:
            try:
                wire = self._object.decode(data)
            except msgspec.ValidationError:
                raise
            except (msgspec.DecodeError, RecursionError):
                # Once, for all that follows: it is the costly part.
                data = repaired(bytes(data))
                wire = self._object.decode(data)
            keyed = self._fact(wire, cluster, system_namespace)
        except (msgspec.DecodeError, RecursionError, InvalidObject) as error:
            # Only now is it looked at a second time, to say which object and field it is.
            document = opened(data) if isinstance(error, msgspec.ValidationError | InvalidObject) else None
            if isinstance(error, InvalidObject):
                raise self._about(error, document, cluster) from None
            if isinstance(error, msgspec.ValidationError):
                raise self._about(self._refusal(error, document), document, cluster) from None
            raise self._about(_unreadable(error), document, cluster) from None
        if keyed is None and self._beside is not None:
            return self._beside.decode_json(data, cluster, system_namespace)
        return keyed

    def decode_page(self, data: bytes, cluster: str, system_namespace: str, most_bytes: int = 0) -> Page:
        """The facts of a page of a LIST, whose items do not repeat apiVersion and kind.

        One bad object does not spoil the page, nor does one of more than ``most_bytes`` (0: of any size); a page that
        is no list raises InvalidObject.
        """
        facts: list[Keyed] = []
        invalid: list[InvalidObject] = []
        page: PageObject[Any]
        read: Callable[[Any, str, str], Keyed | None] = self._fact
        bounded = 0 < most_bytes < len(data)
        try:
            page = _raw_page(data) if bounded else _decoded(self._page, data)
        except msgspec.ValidationError:
            # Some object is at fault. Slower, object by object, the others are still read.
            page = _raw_page(data)
            read = self.decode_json
        except (msgspec.DecodeError, RecursionError) as error:
            raise _unreadable(error) from None
        if bounded:
            read = self.decode_json
        for item in page.items or ():
            if bounded and memoryview(item).nbytes > most_bytes:
                values = opened(item)
                metadata = values.get("metadata") if isinstance(values, Mapping) else None
                too_large = self.too_large(metadata, most_bytes, cluster)
                if not too_large.key or self.counts(too_large.key[2]):
                    invalid.append(too_large)
                continue
            try:
                keyed = read(item, cluster, system_namespace)
            except InvalidObject as error:
                if not error.subject:
                    self._about(error, msgspec.to_builtins(item), cluster)
                if not error.key or self.counts(error.key[2]):
                    invalid.append(error)
            else:
                if keyed is not None:
                    facts.append(keyed)
        metadata = page.metadata or PageMeta()
        return Page(facts, invalid, metadata.resource_version or "", metadata.continue_token or "")

    def too_large(self, metadata: object, most_bytes: int, cluster: str) -> InvalidObject:
        """What is said of an object that has more bytes than one may have, of which only its metadata was read."""
        error = InvalidObject(
            (), f"is larger than {most_bytes:,} bytes", "make it smaller, or raise --object-bytes if it has to be"
        )
        return self._about(error, {"metadata": metadata}, cluster)

    def _fact(self, wire: Any, cluster: str, system_namespace: str) -> Keyed | None:
        if self.called and wire.metadata.name != self.called:
            return None
        if self._selects is not None and not self._selects(wire, system_namespace):
            return None
        if self.namespaces is not None and not self.counts(wire.metadata.namespace):
            return None
        return self._read(wire, cluster)

    def _refusal(self, error: msgspec.ValidationError, document: object) -> InvalidObject:
        return refusal(str(error), document, confidential=self._confidential)

    def _about(self, error: InvalidObject, document: object, cluster: str) -> InvalidObject:
        """Says in the error which object it is about, as far as the object tells."""
        metadata = document.get("metadata") if isinstance(document, Mapping) else None
        named = metadata if isinstance(metadata, Mapping) else {}
        name, namespace = named.get("name"), named.get("namespace")
        place = namespace if isinstance(namespace, str) and namespace else "default"
        if not isinstance(name, str) or not name:
            error.subject = f"{self.name} without a name"
        elif len(name) > _LONGEST_NAME or len(place) > _LONGEST_NAME:
            # There is no such object, and nobody is to keep, or to read, a name of a megabyte.
            error.subject = f"{self.name} {place[:_SHOWN]}.../{name[:_SHOWN]}..."
        elif self.namespaced:
            error.subject = f"{self.name} {place}/{name}"
            error.key = (cluster, self.fact, place, name)
        else:
            error.subject = f"{self.name} {name}"
            error.key = (cluster, self.fact, "", name)
        return error


_MULTICLUSTER = "multicluster.x-k8s.io/v1alpha1", "multicluster.x-k8s.io/v1beta1"
_ISTIO_NETWORKING = "networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"
_STATUS = {"conditions": (), "written": ()}

KINDS = (
    Kind(
        "Namespace",
        "v1",
        wire=core.NamespaceObject,
        read=core.read_namespace,
        namespaced=False,
        at_home={"deleting": False},
    ),
    Kind("Node", "v1", wire=core.NodeObject, read=core.read_node, namespaced=False),
    Kind("Pod", "v1", wire=core.PodObject, read=core.read_pod),
    Kind("Service", "v1", wire=core.ServiceObject, read=core.read_service, at_home=_STATUS),
    Kind(
        "ConfigMap",
        "v1",
        wire=mesh_config.ConfigMapObject,
        read=mesh_config.read_mesh_config,
        fact="MeshConfig",
        called=mesh_config.NAME,
        selects=lambda wire, system_namespace: mesh_config.is_mesh_config(wire.metadata, system_namespace),
    ),
    Kind(
        "ConfigMap",
        "v1",
        wire=root_certificates.RootsObject,
        read=root_certificates.read_root_certificates,
        fact="RootCertificates",
        called=root_certificates.NAME,
    ),
    Kind(
        "Secret",
        "v1",
        wire=secrets.SecretObject,
        read=secrets.read_tls_secret,
        fact="TLSSecret",
        selects=lambda wire, _: secrets.is_tls_secret(wire),
        confidential=True,
    ),
    Kind(
        "EndpointSlice",
        "discovery.k8s.io/v1",
        wire=discovery.EndpointSliceObject,
        read=discovery.read_endpoint_slice,
    ),
    Kind(
        "Gateway",
        "gateway.networking.k8s.io/v1",
        "gateway.networking.k8s.io/v1beta1",
        wire=gateway_api.GatewayObject,
        read=gateway_api.read_gateway,
        at_home={"conditions": (), "listener_status": (), "told": False},
    ),
    Kind(
        "GatewayClass",
        "gateway.networking.k8s.io/v1",
        "gateway.networking.k8s.io/v1beta1",
        wire=gateway_api.GatewayClassObject,
        read=gateway_api.read_gateway_class,
        namespaced=False,
    ),
    Kind(
        "ReferenceGrant",
        "gateway.networking.k8s.io/v1",
        "gateway.networking.k8s.io/v1beta1",
        wire=reference_grants.ReferenceGrantObject,
        read=reference_grants.read_reference_grant,
    ),
    Kind("Ingress", "networking.k8s.io/v1", wire=networking.IngressObject, read=networking.read_ingress),
    Kind(
        "IngressClass",
        "networking.k8s.io/v1",
        wire=networking.IngressClassObject,
        read=networking.read_ingress_class,
        namespaced=False,
    ),
    Kind(
        "ServiceEntry",
        *_ISTIO_NETWORKING,
        wire=istio_networking.ServiceEntryObject,
        read=istio_networking.read_service_entry,
        at_home=_STATUS,
    ),
    Kind(
        "WorkloadEntry",
        *_ISTIO_NETWORKING,
        wire=istio_networking.WorkloadEntryObject,
        read=istio_networking.read_workload_entry,
        at_home=_STATUS,
    ),
    Kind(
        "AuthorizationPolicy",
        "security.istio.io/v1",
        "security.istio.io/v1beta1",
        wire=istio_security.AuthorizationPolicyObject,
        read=istio_security.read_authorization_policy,
    ),
    Kind(
        "PeerAuthentication",
        "security.istio.io/v1",
        "security.istio.io/v1beta1",
        wire=istio_security.PeerAuthenticationObject,
        read=istio_security.read_peer_authentication,
    ),
    Kind(
        "ServiceExport",
        *_MULTICLUSTER,
        wire=multicluster.ServiceExportObject,
        read=multicluster.read_service_export,
    ),
    Kind(
        "ServiceImport",
        *_MULTICLUSTER,
        wire=multicluster.ServiceImportObject,
        read=multicluster.read_service_import,
    ),
)
"""Every kind that becomes facts."""

NAMED_SECRET = Kind(
    "Secret",
    "v1",
    wire=secrets.SecretObject,
    read=secrets.read_named_secret,
    fact="NamedSecret",
    confidential=True,
)
ROOTS_CONFIG_MAP = Kind(
    "ConfigMap",
    "v1",
    wire=named.RootsConfigMapObject,
    read=named.read_roots,
    fact="RootsConfigMap",
)
"""Kinds of which an API server is asked for single objects, by their names."""

_OTHER_ROOTS = ROOTS_CONFIG_MAP.where(lambda wire, _: named.holds_roots(wire))
_BESIDE = {
    "TLSSecret": NAMED_SECRET.where(lambda wire, _: secrets.holds_credential(wire)),
    "MeshConfig": _OTHER_ROOTS,
}
"""What the other objects of a directory are read as."""

_BY_GROUP: dict[tuple[str, str], tuple[Kind, ...]] = {}
for _kind in (*(kind.beside(_BESIDE[kind.fact]) if kind.fact in _BESIDE else kind for kind in KINDS), _OTHER_ROOTS):
    _group = (_kind.api_versions[0].rpartition("/")[0], _kind.name)
    _BY_GROUP[_group] = (*_BY_GROUP.get(_group, ()), _kind)


def kind_of(api_version: str, name: str, called: object = "") -> Kind | None:
    """The kind an object ``called`` so claims to be; None for kinds we do not read.

    Raises InvalidObject for a version of a known kind that we cannot read, rather than overlook the object.
    """
    kinds = _BY_GROUP.get((api_version.rpartition("/")[0], name), ())
    kind = next((one for one in kinds if one.called in ("", called)), None)
    if kind is not None and api_version not in kind.api_versions:
        error = InvalidObject(
            ("apiVersion",), f"is {api_version!r}, a version that is not read", f"use {kind.api_versions[0]}"
        )
        error.subject = name
        raise error
    return kind


def decode(document: object, cluster: str, system_namespace: str) -> Keyed | None:
    """Key and fact of an object given as plain Python values; None for what is of no kind we read."""
    if not isinstance(document, Mapping):
        return None
    api_version, name = document.get("apiVersion"), document.get("kind")
    if not isinstance(api_version, str) or not isinstance(name, str):
        return None
    kind = kind_of(api_version, name, called_in(document))
    return None if kind is None else kind.decode(document, cluster, system_namespace)


def called_in(document: Mapping[str, Any]) -> object:
    """What an object given as plain Python values is called, whatever stands there."""
    metadata = document.get("metadata")
    return metadata.get("name") if isinstance(metadata, Mapping) else None


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes | msgspec.Raw) -> Any:
    """What the decoder makes of the data, repaired if it cannot be read otherwise."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        return decoder.decode(repaired(bytes(data)))


def _raw_page(data: bytes) -> PageObject[msgspec.Raw]:
    try:
        return cast("PageObject[msgspec.Raw]", _decoded(_RAW_PAGE, data))
    except msgspec.ValidationError as error:
        raise InvalidObject((), f"is no list: {error}", "give the answer to a LIST request") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> InvalidObject:
    detail = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return InvalidObject((), f"is no JSON: {detail}", _NOT_JSON)
