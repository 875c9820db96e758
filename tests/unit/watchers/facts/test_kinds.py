"""The registry: three ways to the same facts, and nothing but InvalidObject out of any of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.kit import manifests
from tests.unit.watchers.recorded import NAMES, recorded, recorded_bytes
from watchers.facts import Cluster, Fact, SourceFault, kinds
from watchers.facts.invalid import InvalidObject
from watchers.facts.kinds import KINDS, Kind, kind_of

Path = tuple[str | int, ...]

WRONG: tuple[object, ...] = (None, True, 5, -1, 2**63, 1.5, "x", "a/b", "5", [], [None], ["x"], {}, {"x": None}, [[]])


def kind(document: Any) -> Kind:
    found = kind_of(document["apiVersion"], document["kind"], kinds.called_in(document))
    assert found is not None
    return found


def outcome(read: Any) -> object:
    """What reading gives: key and fact, or what the refusal says."""
    try:
        return read()
    except InvalidObject as error:
        return (str(error), error.path, error.cure, error.key)


def both_ways(document: Any, known: Kind | None = None) -> tuple[object, object]:
    """As an object of that kind, or of its own."""
    encoded, read_as = json.dumps(document).encode(), known or kind(document)
    return (
        outcome(lambda: read_as.decode(document, "west", "istio-system")),
        outcome(lambda: read_as.decode_json(encoded, "west", "istio-system")),
    )


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place of an object."""
    entries: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        if path or key not in ("apiVersion", "kind"):
            yield (*path, key)
            yield from paths(entry, (*path, key))


def with_value(document: Any, path: Path, value: object) -> Any:
    changed = copy.deepcopy(document)
    place = changed
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return changed


def without(document: Any, path: Path) -> Any:
    changed = copy.deepcopy(document)
    place = changed
    for part in path[:-1]:
        place = place[part]
    del place[path[-1]]
    return changed


@pytest.mark.parametrize("name", NAMES)
def test_json_and_values_give_the_same_fact(name: str) -> None:
    values, encoded = both_ways(recorded(name))
    assert values == encoded
    assert kind(recorded(name)).decode_json(recorded_bytes(name), "west", "istio-system") == values


@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_field_is_both_ways_end_alike(name: str) -> None:
    document, known = recorded(name), kind(recorded(name))
    for path in list(paths(document)):
        place = document
        for part in path[:-1]:
            place = place[part]
        kept = place[path[-1]]
        for value in WRONG:
            place[path[-1]] = value
            values, encoded = both_ways(document, known)
            assert values == encoded, (path, value)
        place[path[-1]] = kept


@pytest.mark.parametrize("name", NAMES)
def test_null_is_the_same_as_absent(name: str) -> None:
    document, known = recorded(name), kind(recorded(name))
    maps = ("labels", "matchLabels", "selector", "data", "exportedLabels", "f:labels", "f:annotations", "f:data")
    for path in paths(document):
        # An entry of a list, or of a map of strings, is there though it is null.
        if isinstance(path[-1], str) and (len(path) < 2 or path[-2] not in maps):
            null = both_ways(with_value(document, path, None), known)[0]
            absent = both_ways(without(document, path), known)[0]
            refused = all(isinstance(found, tuple) and isinstance(found[0], str) for found in (null, absent))
            assert null == absent or refused, path


def test_every_field_of_a_wire_struct_occurs_in_a_recording() -> None:
    # A wrong wire name (podIp for podIP) would give the default in silence.
    declared: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()
    for name in NAMES:
        for struct in _structs(msgspec.convert(recorded(name), kind(recorded(name))._wire)):
            for field in struct.__struct_fields__:
                declared.add((type(struct).__name__, field))
                if getattr(struct, field) is not None:
                    seen.add((type(struct).__name__, field))
    cluster_wide = {("NamespaceMeta", "namespace"), ("NodeMeta", "namespace"), ("ClassMeta", "namespace")}
    tested_elsewhere = {
        ("NamespaceMeta", "deletion"),
        ("PodMeta", "deletion"),
        ("ServiceSpec", "external_name"),
        ("SecretObject", "plain"),
        ("SecretEntries", "users"),
    }
    assert declared - seen == cluster_wide | tested_elsewhere


def _structs(value: Any) -> Iterator[msgspec.Struct]:
    if isinstance(value, msgspec.Struct):
        yield value
        for field in value.__struct_fields__:
            yield from _structs(getattr(value, field))
    elif isinstance(value, list):
        for entry in value:
            yield from _structs(entry)


def test_every_recording_is_of_another_kind_and_every_kind_is_recorded() -> None:
    assert sorted(kind(recorded(name)).fact for name in NAMES) == sorted(known.fact for known in KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_facts_survive_being_encoded(name: str) -> None:
    keyed = kinds.decode(recorded(name), "west", "istio-system")
    assert keyed is not None
    decoder = msgspec.msgpack.Decoder(Fact)
    assert decoder.decode(msgspec.msgpack.encode(keyed[1])) == keyed[1]


@pytest.mark.parametrize(
    "fact", [Cluster("stale", True, 12.5, "gone"), SourceFault("a.yaml", 3, "is empty", "delete it")]
)
def test_facts_about_sources_survive_being_encoded(fact: Fact) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fact), type=Fact) == fact


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_plain_tuples_and_facts_hashable(name: str) -> None:
    keyed = kinds.decode(recorded(name), "west", "istio-system")
    assert keyed is not None
    assert hash(keyed) == hash(kinds.decode(recorded(name), "west", "istio-system"))
    assert type(keyed[0]) is tuple


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "text",
        {},
        {"kind": "Pod"},
        {"apiVersion": "v1"},
        {"apiVersion": 1, "kind": "Pod"},
        {"apiVersion": "apps/v1", "kind": "Deployment"},
        {"apiVersion": "example.com/v1", "kind": "Pod"},
        {"apiVersion": "v1", "kind": "pod"},
    ],
)
def test_what_is_of_no_kind_we_read_is_none(document: object) -> None:
    assert kinds.decode(document, "west", "istio-system") is None


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"5", b'{"metadata":{"name":"\xff"}}', b'{"x":' + b"[" * 100_000, b"\x00"]
)
def test_whatever_the_bytes_are_they_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(InvalidObject) as caught:
        kind({"apiVersion": "v1", "kind": "Pod"}).decode_json(data, "west", "istio-system")
    assert caught.value.cause
    assert caught.value.cure


# Pages of a LIST


POD = kind_of("v1", "Pod")
assert POD is not None


def page(*items: object, **metadata: str) -> bytes:
    """A page as an API server answers: the items say neither apiVersion nor kind."""
    return json.dumps(
        {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": metadata,
            "items": [
                {key: value for key, value in item.items() if key not in ("apiVersion", "kind")}
                if isinstance(item, dict)
                else item
                for item in items
            ],
        }
    ).encode()


def test_a_page_gives_its_facts_and_where_to_go_on() -> None:
    assert POD is not None
    pods = [manifests.pod(f"shop/a{number}", "10.0.0.1") for number in range(3)]
    found = POD.decode_page(page(*pods, resourceVersion="77", **{"continue": "next"}), "west", "istio-system")
    assert found.facts == [POD.decode(pod, "west", "istio-system") for pod in pods]
    assert (found.invalid, found.resource_version, found.continue_token) == ([], "77", "next")


def test_the_last_page_has_no_token() -> None:
    assert POD is not None
    assert POD.decode_page(page(resourceVersion="77"), "west", "istio-system").continue_token == ""


@pytest.mark.parametrize(
    "bad",
    [
        manifests.pod("shop/bad", labels={"a": 1}),
        manifests.pod("shop/bad", labels={"a": "not/allowed"}),
        manifests.pod("shop/bad", spec={"nodeName": "a/b"}),
    ],
)
def test_one_bad_object_does_not_spoil_its_page(bad: object) -> None:
    assert POD is not None
    found = POD.decode_page(page(manifests.pod("shop/a"), bad, manifests.pod("shop/b")), "west", "istio-system")
    assert [key[3] for key, _ in found.facts] == ["a", "b"]
    assert [(error.key, error.subject) for error in found.invalid] == [(("west", "Pod", "shop", "bad"), "Pod shop/bad")]


def test_an_item_that_is_no_object_does_not_spoil_its_page() -> None:
    assert POD is not None
    found = POD.decode_page(page(manifests.pod("shop/a"), 5), "west", "istio-system")
    assert [key[3] for key, _ in found.facts] == ["a"]
    assert [error.subject for error in found.invalid] == ["Pod without a name"]


def test_a_page_without_items_is_empty() -> None:
    assert POD is not None
    assert POD.decode_page(b'{"kind":"PodList","items":null}', "west", "istio-system").facts == []


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"items":{}}', b'{"items":' + b"[" * 100_000])
def test_what_is_no_page_is_refused(data: bytes) -> None:
    assert POD is not None
    with pytest.raises(InvalidObject):
        POD.decode_page(data, "west", "istio-system")


def test_config_maps_that_are_no_facts_are_left_out_of_a_page() -> None:
    config_map = kind_of("v1", "ConfigMap", "istio")
    assert config_map is not None
    data = json.dumps({"items": [{"metadata": {"name": "a"}, "data": {"mesh": "{"}}, recorded("mesh_config_map")]})
    found = config_map.decode_page(data.encode(), "west", "istio-system")
    assert [key[1] for key, _ in found.facts] == ["MeshConfig"]
