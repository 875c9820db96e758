"""YAML from hostile text: what scalars mean, what is refused and in which line, and where a value stands."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from tests.kit import manifests
from watchers.documents import MAX_DEPTH, UnreadableText, documents, line_of


def values(text: str) -> list[Any]:
    return [document.value for document in documents(text)]


def value(text: str) -> Any:
    (only,) = values(text)
    return only


def refused(text: str, max_nodes: int = 10_000) -> UnreadableText:
    with pytest.raises(UnreadableText) as caught:
        list(documents(text, max_nodes))
    return caught.value


# What scalars mean


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("NULL", None),
        ("true", True),
        ("False", False),
        ("on", True),
        ("Off", False),
        ("yes", True),
        ("y", "y"),
        ("tRue", "tRue"),
        ("0", 0),
        ("8080", 8080),
        ("-1", -1),
        ("+1", 1),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0o17", 15),
        ("0644", 420),
        ("0b11", 3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        (".inf", float("inf")),
        ("-.Inf", float("-inf")),
        ("089", 89.0),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("12:30:45", "12:30:45"),
        ("1.2.3", "1.2.3"),
        ("10.0.0.1", "10.0.0.1"),
        ("12e03f4", "12e03f4"),
        ("=", "="),
        ("9" * 200, "9" * 200),
        ('"true"', "true"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("! 1", "1"),
        ("!!int '1'", 1),
    ],
)
def test_scalars_mean_what_the_kubernetes_tools_take_them_for(text: str, meaning: object) -> None:
    found = value(f"a: {text}\n")["a"]
    assert (found, type(found)) == (meaning, type(meaning))


def test_what_is_no_number_is_not_one() -> None:
    assert str(value("a: .nan")["a"]) == "nan"


def test_keys_are_their_text() -> None:
    assert value("8080: a\ntrue: b\n~: c\n") == {"8080": "a", "true": "b", "~": "c"}


def test_a_text_holds_any_number_of_documents() -> None:
    assert values("---\na: 1\n---\n---\nb: 2\n...\n") == [{"a": 1}, None, {"b": 2}]
    assert values("") == values("# nothing\n") == []


def test_collections_nest() -> None:
    assert value("a:\n- b: [1, {c: 2}]\n- - 3\n") == {"a": [{"b": [1, {"c": 2}]}, [3]]}


def test_manifests_read_as_another_yaml_reader_reads_them() -> None:
    text = manifests.manifest_text(
        manifests.pod("shop/a", "10.0.0.1", ports={"http": 80}, deployment="a"),
        manifests.service("shop/a", "10.96.0.1"),
        manifests.mesh_config_map(trust_domain="a", scopes=[]),
    )
    assert values(text) == list(yaml.safe_load_all(text))


# Anchors, aliases, merges


def test_an_alias_repeats_a_value() -> None:
    assert value("a: &x {b: [1]}\nc: *x\nd: [*x]\n") == {"a": {"b": [1]}, "c": {"b": [1]}, "d": [{"b": [1]}]}
    assert value("a: &x 1\nb: *x\n") == {"a": 1, "b": 1}


def test_merged_fields_give_way_to_own_ones_and_to_earlier_ones() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 0}\nd:\n  <<: *b\n"
    assert value(text)["c"] == {"x": 0, "y": 1, "z": 2}
    assert value(text)["d"] == {"y": 2, "z": 2}


def test_a_merge_in_quotes_is_a_key() -> None:
    assert value('a: {"<<": 1}') == {"a": {"<<": 1}}


def test_anchors_are_their_documents() -> None:
    assert refused("a: &x 1\n---\nb: *x\n").line == 3


@pytest.mark.parametrize("text", ["a: &x [*x]", "a: &x {b: {c: *x}}", "a: *x"])
def test_an_alias_of_what_is_not_complete_is_refused(text: str) -> None:
    error = refused(text)
    assert "alias" in error.cause or "anchor" in error.cause


@pytest.mark.parametrize("text", ["a: {<<: 1}", "a: {<<: [1]}", "a: {<<: [[]]}"])
def test_merging_what_is_no_mapping_is_refused(text: str) -> None:
    assert refused(text).cause == "merges (<<) what is no mapping"


def test_bombs_of_aliases_are_refused_before_they_go_off() -> None:
    lines = ["a0: &a0 [x, x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    started = time.process_time()
    error = refused("\n".join(lines), 4_000_000)
    assert "values, those repeated by aliases included" in error.cause
    assert time.process_time() - started < 1


def test_bombs_of_merges_are_refused_before_they_go_off() -> None:
    lines = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: 1}}" for n in range(1, 60)]
    assert "values" in refused("\n".join(lines), 4_000_000).cause


def test_the_number_of_values_is_bounded() -> None:
    assert refused("[" + "1," * 100 + "]", max_nodes=100).cause.startswith("holds more than 100 values")
    assert refused("---\n".join(["a: 1\n"] * 100), max_nodes=100).cause.startswith("holds more than 100 values")


# What is refused


@pytest.mark.parametrize("opened", ["[", "{a: ", "- "])
def test_depth_is_bounded(opened: str) -> None:
    assert "deep" in refused(opened * (MAX_DEPTH + 1) + "1").cause


def test_absurd_depth_is_refused_by_the_scanner() -> None:
    assert refused("[" * 1_000_000).line == 1


@pytest.mark.parametrize(
    ("text", "line", "cause"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "has the key 'a' twice in one mapping"),
        ("a:\n  b: !thing 1\n", 2, "has the tag '!thing'"),
        ("a: !!binary aGk=\n", 1, "has the tag 'tag:yaml.org,2002:binary'"),
        ("a: !!python/name:os.system\n", 1, "has the tag 'tag:yaml.org,2002:python/name:os.system'"),
        ("a: !!set {b}\n", 1, "has the tag 'tag:yaml.org,2002:set'"),
        ("x: 1\n? [a]\n: 1\n", 2, "has a key that is no plain text"),
        ("x: &x a\n*x : 1\n", 2, "has an alias as a key"),
        ("a: 1\n b: 2\n", 2, "mapping values are not allowed in this context"),
        ("a: b\n\tc: d\n", 2, "found a tab character that violates indentation"),
        ("a: [1\nb: 2\n", 2, "did not find expected ',' or ']'"),
        ("a: \x01\n", 1, "control characters are not allowed"),
        ("a: 1\nb: \x01\n", 2, "control characters are not allowed"),
        ('a: "x\n', 2, "found unexpected end of stream"),
    ],
)  # fmt: skip
def test_errors_have_their_line(text: str, line: int, cause: str) -> None:
    error = refused(text)
    assert (error.line, error.cause) == (line, cause)
    assert error.cure
    assert str(error).startswith(f"line {line}: {cause}")


def test_tabs_are_named_as_the_reason() -> None:
    assert refused("a:\n\tb: 1\n").cure == "indent with spaces: YAML takes no tabs there"


# Where things stand


def test_documents_know_their_lines_and_those_of_their_items() -> None:
    text = "# list\n---\nkind: List\nitems:\n- a: 1\n  items:\n  - 5\n\n- {b: 2}\n- c\n- &x d\n- *x\n---\n\nkind: Pod\n"
    first, second = documents(text)
    assert (first.line, first.item_lines) == (3, [5, 9, 10, 11, 12])
    assert (second.line, second.item_lines) == (15, [])


TEXT = """\
kind: Pod
metadata:
  name: a
  labels:
    x: |
      one
      two
    "y": 2
spec:
- ports:
  - {a: 1,
     b: 2}
  - *unknown
- <<: 5
---
a:
  b: c
"""


@pytest.mark.parametrize(
    ("document", "path", "line"),
    [
        (0, (), 1),
        (0, ("metadata",), 2),
        (0, ("metadata", "labels", "y"), 8),
        (0, ("metadata", "labels", "z"), 4),
        (0, ("metadata", "name", "z"), 3),
        (0, ("spec", 0, "ports", 0, "b"), 12),
        (0, ("spec", 0, "ports", 1), 13),
        (0, ("spec", 0, "ports", 1, "a"), 13),
        (0, ("spec", 1, "a"), 14),
        (0, ("spec", 7), 9),
        (0, ("nothing",), 1),
        (1, ("a", "b"), 17),
        (2, ("a",), 1),
    ],
)
def test_the_line_of_a_path(document: int, path: tuple[str | int, ...], line: int) -> None:
    assert line_of(TEXT, document, path) == line


def test_the_line_within_a_literal_block() -> None:
    assert line_of(TEXT, 0, ("metadata", "labels", "x"), 2) == 7
    assert line_of(TEXT, 0, ("metadata", "labels", "y"), 2) == 8


def test_the_line_in_a_broken_text_is_the_last_good_one_on_the_way() -> None:
    assert line_of("a:\n  b: [\n", 0, ("a", "b", "c")) == 2


def test_lines_in_json() -> None:
    assert line_of('{\n\t"a": {\n\t\t"b": 1\n\t}\n}', 0, ("a", "b")) == 3


@pytest.mark.parametrize("text", ["---\n ", "---\n", "a: 1\n---\n", "a:\n", "- \n "])
def test_what_is_missing_at_the_end_is_in_a_line_of_the_text(text: str) -> None:
    lines = text.count("\n") + 1
    found = list(documents(text))
    assert all(1 <= document.line <= lines for document in found)
    assert all(1 <= line_of(text, number, path) <= lines for number in range(len(found)) for path in ([], ["a"], [0]))
