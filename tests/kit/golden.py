"""Recorded answers of a peer control plane: loading a scenario, and comparing what we send with what was recorded.

`load` reads tests/golden/cases/<name> (format: tests/golden/README.md). `to_json` and `from_json` translate between
protobuf messages, of Istio's workload API and of Envoy, and the form of the records. `compare` yields the differences
that no declared improvement excuses, and the improvements that excuse nothing; a comparison without either is clean,
and `report` is the text for a failed one.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from msgspec import UNSET, Struct, UnsetType, ValidationError, convert

from xds import protos

CASES = Path(__file__).parent.parent / "golden" / "cases"

EXCLUDED = "default/kubernetes"
"""Prefix of resource names that are never compared: the API server's own service exists only beside a real one."""

TYPE_URLS = {
    "address": "type.googleapis.com/istio.workload.Address",
    "authorization": "type.googleapis.com/istio.security.Authorization",
    "cds": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "eds": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "lds": "type.googleapis.com/envoy.config.listener.v3.Listener",
}
"""Type URL of each section of a record: the first two of a ztunnel's, the others of an Envoy's."""

_ABSENT = "(absent)"

_Field = Any
"""A FieldDescriptor; the stubs know two classes of that name."""


class Improvement(Struct, frozen=True, forbid_unknown_fields=True):
    """A difference that is meant: where, why, and, if given, what exactly we send instead of the record.

    `proxy` is the kind of proxy whose record is meant. `resource` is a resource name, `section` the part of the record
    it is in, if the name does not say it. `path` is a place inside it in the notation of `Difference`, covering
    everything below; empty, it covers the whole resource, including that one side lacks it. `ours: null` says that we
    send nothing there.
    """

    resource: str
    reason: str
    path: str = ""
    section: str = ""
    proxy: str = "ztunnel"
    ours: Any = UNSET


class Scenario(Struct, frozen=True):
    """One recorded case.

    `directories` holds each cluster's manifests, `networks` its network; `compared` names the proxy kinds whose
    record the product is held to, the others are kept for later. `record` is {section: {resource name: resource}} of
    one kind.
    """

    name: str
    about: str
    local_cluster: str
    networks: Mapping[str, str]
    probes: Mapping[str, Mapping[str, Any]]
    compared: tuple[str, ...]
    directory: Path
    improvements: tuple[Improvement, ...]

    @property
    def directories(self) -> Mapping[str, Path]:
        """Directory of manifests of each cluster."""
        return {cluster: self.directory / cluster for cluster in self.networks}

    def record(self, kind: str = "ztunnel") -> Mapping[str, Mapping[str, Any]]:
        """What the peer sent to the probe of this kind. Raises FileNotFoundError if there is no such record."""
        sections: Mapping[str, Mapping[str, Any]] = json.loads((self.directory / "istiod" / f"{kind}.json").read_text())
        return sections

    def improvements_of(self, kind: str) -> tuple[Improvement, ...]:
        """The improvements on the record of this kind."""
        return tuple(one for one in self.improvements if one.proxy == kind)


class Difference(Struct, frozen=True):
    """A place where the two sides differ, like `service.addresses[1].network` or `workload.services[ns/host].ports`."""

    resource: str
    path: str
    recorded: Any
    ours: Any
    section: str = ""

    def __str__(self) -> str:
        where = f"{self.resource} {self.path}".rstrip()
        return f"{where}\n    recorded: {_show(self.recorded)}\n    ours:     {_show(self.ours)}"


class Comparison(Struct, frozen=True):
    """Result of `compare`."""

    differences: tuple[Difference, ...]
    unused: tuple[Improvement, ...]

    @property
    def clean(self) -> bool:
        """Whether everything agrees but what was declared, and everything declared was needed."""
        return not self.differences and not self.unused

    def report(self) -> str:
        """Readable account of what is wrong; empty when clean."""
        lines = [str(difference) for difference in self.differences]
        lines += [
            f"{improvement.resource} {improvement.path}".rstrip() + f"\n    excuses nothing: {improvement.reason}"
            for improvement in self.unused
        ]
        return "\n".join(lines)


def names(cases: Path = CASES) -> tuple[str, ...]:
    """All scenarios, in order."""
    return tuple(sorted(path.parent.name for path in cases.glob("*/scenario.json")))


def load(name: str, cases: Path = CASES) -> Scenario:
    """Reads a scenario. Raises ValueError, naming file and cause, for improvements that cannot be read."""
    directory = cases / name
    described = json.loads((directory / "scenario.json").read_text())
    return Scenario(
        name=described["name"],
        about=described["about"],
        local_cluster=described["local_cluster"],
        networks=described["clusters"],
        probes=described["probes"],
        compared=tuple(described["compared"]),
        directory=directory,
        improvements=load_improvements(directory / "improvements.yaml"),
    )


def load_improvements(path: Path) -> tuple[Improvement, ...]:
    """Reads a list of improvements; a missing or empty file holds none. Raises ValueError for anything else."""
    text = path.read_text() if path.exists() else ""
    try:
        entries = tuple(convert(entry, Improvement) for entry in yaml.safe_load(text) or [])
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    for entry in entries:
        if not entry.reason.strip():
            raise ValueError(f"{path}: the improvement of {entry.resource} {entry.path} has no reason")
    return entries


def compare(
    ours: Mapping[str, Mapping[str, Any]],
    recorded: Mapping[str, Mapping[str, Any]],
    improvements: Sequence[Improvement] = (),
) -> Comparison:
    """Compares {section: {resource name: resource in JSON form}} of both sides."""
    used: set[int] = set()
    left: list[Difference] = []
    for section in sorted({*ours, *recorded}):
        mine = ours.get(section, {})
        for difference in _differences(section, mine, recorded.get(section, {})):
            excuses = [index for index, entry in enumerate(improvements) if _excuses(entry, difference, mine)]
            used.update(excuses)
            if not excuses:
                left.append(difference)
    return Comparison(tuple(left), tuple(entry for index, entry in enumerate(improvements) if index not in used))


def decode(type_url: str, data: bytes | memoryview) -> dict[str, Any]:
    """The form of the records of a serialised message, as a resource's Any holds it."""
    message = _message(type_url)
    message.ParseFromString(bytes(data))
    return to_json(message)


def to_json(message: Message) -> dict[str, Any]:
    """The form of the records: snake_case, defaults omitted, keys sorted, enums by name, IP bytes as text.

    A message keeps its type as `@type`; an unknown enum value stays a number, bytes that are no address are
    `base64:...`. A duration is seconds with an `s`, a Struct what it stands for.
    """
    return {"@type": f"type.googleapis.com/{message.DESCRIPTOR.full_name}", **_fields_to_json(message)}


def from_json(resource: Mapping[str, Any], message: Message | None = None) -> Message:
    """The message that `to_json` would turn into `resource`; without `message` its class is that of `@type`.

    Raises ValueError for a field that the message does not have.
    """
    if message is None:
        message = _message(resource["@type"])
    for name, value in resource.items():
        if name != "@type":
            _set_field(message, name, value)
    return message


def _fields_to_json(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if _is_map(field):
            found[field.name] = {str(key): _to_json(field, value[key]) for key in sorted(value)}
        elif field.is_repeated:
            found[field.name] = [_to_json(field, item) for item in value]
        else:
            found[field.name] = _to_json(field, value)
    return dict(sorted(found.items()))


def _to_json(field: _Field, value: Any) -> Any:
    if _is_map(field):
        field = field.message_type.fields_by_name["value"]
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if _is_wrapper(field):
            return value.value
        match field.message_type.full_name:
            case "google.protobuf.Any":
                return decode(value.type_url, value.value)
            case "google.protobuf.Duration":
                return f"{value.seconds + value.nanos / 1e9:g}s"
            case "google.protobuf.Struct":
                return _plain(value)
        return _fields_to_json(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    if field.type == FieldDescriptor.TYPE_BYTES:
        return str(ip_address(value)) if len(value) in (4, 16) else f"base64:{b64encode(value).decode()}"
    return value


def _plain(struct: Any) -> dict[str, Any]:
    """What a Struct stands for; whole numbers as such."""
    return json.loads(json_format.MessageToJson(struct, descriptor_pool=protos.POOL))  # type: ignore[no-any-return]


def _set_field(message: Message, name: str, value: Any) -> None:
    field: _Field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        raise ValueError(f"{message.DESCRIPTOR.full_name} has no field {name}")
    place = getattr(message, name)
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        for key, item in value.items():
            if inner.type == FieldDescriptor.TYPE_MESSAGE:
                _fill(place[key], item)
            else:
                place[key] = _scalar(inner, item)
    elif field.is_repeated:
        for item in value:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                from_json(item, place.add())
            else:
                place.append(_scalar(field, item))
    elif _is_wrapper(field):
        place.value = value
        place.SetInParent()
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        _fill(place, value)
    else:
        setattr(message, name, _scalar(field, value))


def _fill(place: Any, value: Any) -> None:
    """Fills a message that is a field."""
    place.SetInParent()
    match place.DESCRIPTOR.full_name:
        case "google.protobuf.Any":
            place.type_url = value["@type"]
            place.value = from_json(value).SerializeToString()
        case "google.protobuf.Duration":
            place.FromJsonString(value)
        case "google.protobuf.Struct":
            json_format.ParseDict(value, place, descriptor_pool=protos.POOL)
        case _:
            from_json(value, place)


def _scalar(field: _Field, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b64decode(value[7:]) if value.startswith("base64:") else ip_address(value).packed
    return value


def _message(type_url: str) -> Message:
    return protos.message_class(type_url.rpartition("/")[2])()


def _is_map(field: _Field) -> bool:
    return field.type == FieldDescriptor.TYPE_MESSAGE and bool(field.message_type.GetOptions().map_entry)


def _is_wrapper(field: _Field) -> bool:
    message = field.message_type
    return message is not None and message.file.name == "google/protobuf/wrappers.proto"


def _differences(section: str, ours: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*ours, *recorded}):
        if not name.startswith(EXCLUDED):
            for path, theirs, mine in _walk("", recorded.get(name, UNSET), ours.get(name, UNSET)):
                yield Difference(name, path, theirs, mine, section)


_UNORDERED = {"filter_chains": "name", "range_matchers": "ranges"}
"""Lists whose order means nothing, with what tells their items apart."""


def _walk(path: str, recorded: Any, ours: Any) -> Iterable[tuple[str, Any, Any]]:
    if isinstance(recorded, Mapping) and isinstance(ours, Mapping):
        for key in sorted({*recorded, *ours}):
            yield from _walk(_below(path, key), recorded.get(key, UNSET), ours.get(key, UNSET))
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        key = _UNORDERED.get(path.rpartition(".")[2])
        if key is not None:
            recorded, ours = (sorted(one, key=lambda item: _show(item.get(key, UNSET))) for one in (recorded, ours))
        for index, (theirs, mine) in enumerate(zip(recorded, ours, strict=True)):
            yield from _walk(f"{path}[{index}]", theirs, mine)
    elif recorded != ours:
        yield path, recorded, ours


def _below(path: str, key: str) -> str:
    if not key.replace("_", "").isalnum():
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _excuses(improvement: Improvement, difference: Difference, ours: Mapping[str, Any]) -> bool:
    if improvement.resource != difference.resource or improvement.section not in ("", difference.section):
        return False
    path = improvement.path
    if path and difference.path != path and not difference.path.startswith((f"{path}.", f"{path}[")):
        return False
    if improvement.ours is UNSET:
        return True
    sent = dict(places("", ours.get(improvement.resource, UNSET))).get(path, UNSET)
    return bool(sent is UNSET if improvement.ours is None else sent == improvement.ours)


def places(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every place of a resource with what is there."""
    yield path, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from places(_below(path, key), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(f"{path}[{index}]", item)


def _show(value: Any) -> str:
    return _ABSENT if isinstance(value, UnsetType) else json.dumps(value, sort_keys=True, ensure_ascii=False)
