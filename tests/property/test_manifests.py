"""Whatever order, files and forms manifests come in, the facts are the same; whatever bytes come, nothing breaks."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import manifests
from tests.kit.manifests import Manifest, manifest_text, object_list
from watchers.directory import Directory
from watchers.documents import UnreadableText, documents, line_of
from watchers.facts import Fact, ObjectKey, SourceFault, kinds
from watchers.manifests import Manifests, read_manifests

POOL: tuple[Manifest, ...] = (
    manifests.namespace("istio-system", network="net1"),
    manifests.namespace("shop", labels={"istio.io/dataplane-mode": "ambient"}),
    manifests.node("n1", region="eu", zone="eu-1"),
    manifests.pod("shop/a", "10.0.0.1", labels={"app": "a"}, ports={"http": 8080}, deployment="a"),
    manifests.pod("shop/b", ["10.0.0.2", "fd00::2"], node="n1"),
    manifests.pod("pay/a", "10.0.0.3", ready=False),
    manifests.service("shop/a", "10.96.0.1", selector={"app": "a"}, is_global=True),
    manifests.service("shop/b", None),
    manifests.slice_("shop/a-1", manifests.endpoint("10.0.0.1", pod="shop/a"), service="a"),
    manifests.east_west_gateway("istio-system/east-west", "192.0.2.1", network="net1"),
    manifests.gateway_class("istio-waypoint"),
    manifests.mesh_config_map(trust_domain="mesh.example", scopes=[{"scope": "GLOBAL"}]),
)
FILES = ("a.yaml", "b.json", "c/d.yml", "e.json")


def decoded(document: Manifest) -> tuple[ObjectKey, Fact]:
    keyed = kinds.decode(document, "west", "istio-system")
    assert keyed is not None
    return keyed


FACTS = dict(decoded(document) for document in POOL)


def west(path: Path) -> Directory:
    return Directory("west", path, home=True, system_namespace="istio-system", deadline=0, now=lambda: 0.0)


def write(root: Path, name: str, objects: list[Manifest], as_list: bool) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    given = [object_list(*objects)] if as_list or not objects else objects
    path.write_text(manifest_text(*given, form="json" if name.endswith(".json") else "yaml"))


def objects_of(items: Any) -> dict[ObjectKey, Fact]:
    return {key: fact for key, fact in items.items() if key[1] not in ("Cluster", "SourceFault")}


@settings(max_examples=40, deadline=None)
@given(st.permutations(POOL), st.data())
def test_any_order_in_any_files_in_any_form_gives_the_same_facts(order: list[Manifest], data: st.DataObject) -> None:
    shares: dict[str, list[Manifest]] = {}
    for document in order:
        shares.setdefault(data.draw(st.sampled_from(FILES)), []).append(document)
    with tempfile.TemporaryDirectory() as root:
        for name, share in shares.items():
            write(Path(root), name, share, data.draw(st.booleans()))
        items = west(Path(root)).load().items
    assert items is not None
    assert objects_of(items) == FACTS
    assert not any(isinstance(fact, SourceFault) for fact in items.values())


edits: st.SearchStrategy[tuple[str, str, list[int]]] = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(FILES), st.lists(st.sampled_from(range(len(POOL))), unique=True)),
    st.tuples(st.just("break"), st.sampled_from(FILES), st.just([])),
    st.tuples(st.just("delete"), st.sampled_from(FILES), st.just([])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(edits, max_size=12))
def test_after_any_edits_every_object_is_the_first_files_last_good_one(
    history: list[tuple[str, str, list[int]]],
) -> None:
    good: dict[str, dict[ObjectKey, Fact]] = {}
    broken: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        directory = west(root)
        shown: Any = directory.load().items
        for what, file, chosen in history:
            if what == "write":
                objects = [POOL[number] for number in chosen]
                write(root, file, objects, False)
                good[file] = dict(decoded(document) for document in objects)
                broken.discard(file)
            elif what == "break":
                (root / file).parent.mkdir(exist_ok=True)
                (root / file).write_text("{")
                good.setdefault(file, {})
                broken.add(file)
            else:
                (root / file).unlink(missing_ok=True)
                good.pop(file, None)
                broken.discard(file)
            shown = directory.load().items or shown
        expected: dict[ObjectKey, Fact] = {}
        doubled = set()
        for file, facts in sorted(good.items()):
            if facts.keys() & expected.keys():
                doubled.add(file)
            expected = {**facts, **expected}
        assert objects_of(shown) == expected
        assert {fact.file for fact in shown.values() if isinstance(fact, SourceFault)} == broken | doubled
        if not broken:
            fresh = west(root).load().items
            assert fresh == shown


# Hostile content

TEXTS = [manifest_text(*POOL, form=form) for form in ("yaml", "json")]
MARKS = [
    "\n",
    " ",
    "  ",
    "\t",
    "- ",
    ": ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a ",
    "*a",
    "<<: ",
    "|\n",
    '"',
    "'",
    "#",
    "%",
]
WORDS = [
    "---\n",
    "...\n",
    "!!str ",
    "\\",
    "true",
    "null",
    "~",
    "1",
    "1e9",
    "0x",
    "kind",
    "metadata",
    "items",
    "\0",
    "ü",
]
fragments = st.sampled_from(MARKS + WORDS)


def refusal_of(read: Callable[[], object]) -> UnreadableText | None:
    try:
        read()
    except UnreadableText as error:
        return error
    return None


@settings(max_examples=300, deadline=None)
@given(st.lists(fragments, max_size=30).map("".join), st.lists(st.sampled_from(["a", "items", 0, 1]), max_size=3))
def test_any_text_is_read_or_refused_in_a_line_of_it(text: str, path: list[str | int]) -> None:
    lines = text.count("\n") + 1
    error = refusal_of(lambda: list(documents(text)))
    assert error is None or (1 <= error.line <= lines and error.cause and error.cure)
    assert 1 <= line_of(text, 0, path) <= lines


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(TEXTS),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 40), fragments), min_size=1, max_size=4),
    st.sampled_from(["a.yaml", "a.json"]),
)
def test_any_damage_to_a_file_is_refused_in_words(text: str, damage: list[tuple[float, int, str]], name: str) -> None:
    for where, length, instead in damage:
        place = int(where * len(text))
        text = text[:place] + instead + text[place + length :]
    lines = text.count("\n") + 1
    found: list[Manifests] = []
    error = refusal_of(lambda: found.append(read_manifests(name, text.encode(), "west", "istio-system")))
    if error is not None:
        assert 1 <= error.line <= lines
    for manifests_read in found:
        flaw = manifests_read.flaw
        assert flaw is None or 1 <= flaw.line <= lines
        assert not any("/" in part for key in manifests_read.facts for part in key)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["a.yaml", "a.json"]))
def test_any_bytes_are_read_or_refused(data: bytes, name: str) -> None:
    error = refusal_of(lambda: read_manifests(name, data, "west", "istio-system"))
    assert error is None or error.cause


plain = st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(plain),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(plain), inner),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(json_values)
def test_json_read_as_yaml_means_the_same(value: Any) -> None:
    (document,) = documents(json.dumps(value, ensure_ascii=False))
    assert document.value == value
