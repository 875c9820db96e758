"""Whatever an object of a cluster says: a fact, nothing, or a refusal that names field and cure; and never slowly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.kit.fuzzing import bounded, fuzz
from tests.kit.hostile import LEAVES, damaged, damaged_value, nested_lists, places_in
from tests.unit.watchers.recorded import NAMES, recorded
from watchers.facts import kinds
from watchers.facts.invalid import InvalidObject
from watchers.facts.kinds import KINDS, Kind, Page

pytestmark = pytest.mark.slow

KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"


def kind_of(document: Any) -> Kind:
    kind = kinds.kind_of(document["apiVersion"], document["kind"])
    assert kind is not None
    return kind


def listed(document: Any) -> Kind:
    """The kind as API servers list it: of Secrets and ConfigMaps those that are of one kind."""
    found = kind_of(document)
    return next((kind for kind in KINDS if kind.fact == found.fact), found)


def check(found: Any, kind: Kind | None = None) -> None:
    """What a key must be: parts of a path in the world, without slashes, and of the cluster that said so."""
    if found is None:
        return
    (cluster, fact, namespace, name), value = found
    assert cluster == "west" and name
    assert kind is None or fact == kind.fact
    assert not any({"/", "\0"} & set(part) for part in (fact, namespace, name))
    hash((cluster, fact, namespace, name))
    assert value == value
    repr(value)


def refusal(call: Any, size: int = 0) -> InvalidObject | None:
    try:
        check(bounded(call, size))
    except InvalidObject as error:
        assert str(error) and error.cure
        assert len(str(error)) < 4096 and len(error.cure) < 4096
        str(error).encode()
        assert KEY_LINE not in str(error) + error.cure
        return error
    return None


DOCUMENTS = st.sampled_from(NAMES).map(recorded)


def words_of(name: str) -> list[str]:
    """The keys that stand in a recorded object."""
    return sorted({step for place in places_in(recorded(name)) for step in place if isinstance(step, str)})


WORDS = sorted({word for name in NAMES for word in words_of(name)})
HOSTILE = damaged_value(DOCUMENTS, WORDS)


def test_any_values_are_a_fact_or_refused() -> None:
    def one(document: Any) -> None:
        if "\\ud800" not in json.dumps(document):  # Neither YAML nor JSON can say that.
            refusal(lambda: kinds.decode(document, "west", "istio-system"))

    fuzz(one, HOSTILE | st.sampled_from(LEAVES), share=0.3)


def test_any_values_of_one_kind_under_the_name_of_another_are_a_fact_or_refused() -> None:
    def one(document: Any, other: Any) -> None:
        document = {**document, "apiVersion": other["apiVersion"], "kind": other["kind"]}
        refusal(lambda: kinds.decode(document, "west", "istio-system"))

    fuzz(one, DOCUMENTS, DOCUMENTS, share=0.1)


def json_of(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def test_any_json_of_a_kind_is_a_fact_or_refused_the_same_way() -> None:
    sound = DOCUMENTS.map(lambda document: (kind_of(document), json_of(document)))
    values = st.sampled_from(NAMES).flatmap(
        lambda name: st.tuples(
            st.just(kind_of(recorded(name))), damaged_value(st.just(recorded(name)), WORDS).map(json_of)
        )
    )
    texts = sound.flatmap(lambda pair: st.tuples(st.just(pair[0]), damaged(st.just(pair[1]))))

    def one(given: tuple[Kind, bytes]) -> None:
        kind, data = given
        refusal(lambda: kind.decode_json(data, "west", "istio-system"), len(data))

    fuzz(one, values | texts | st.tuples(st.sampled_from(KINDS), st.binary(max_size=60)), share=0.3)


@st.composite
def pages(draw: Any) -> tuple[Kind, bytes, int]:
    """Pages of a list with a sound object at the end, as JSON, and what one object may have."""
    document = draw(DOCUMENTS)
    items = draw(st.lists(damaged_value(st.just(document), WORDS) | st.sampled_from(LEAVES), max_size=3))
    page = {"metadata": {"resourceVersion": "7"}, "items": [*items, document]}
    if not draw(st.integers(0, 4)):
        page = draw(damaged_value(st.just(page), ["items", "metadata", "continue"]))
    return listed(document), json_of(page), draw(st.sampled_from([0, 100, 100_000]))


def test_any_page_is_read_without_what_is_wrong_in_it_or_refused() -> None:
    def one(given: tuple[Kind, bytes, int]) -> None:
        kind, data, most = given
        try:
            page: Page = bounded(lambda: kind.decode_page(data, "west", "istio-system", most), len(data))
        except InvalidObject as error:
            assert str(error) and error.cure
            return
        for found in page.facts:
            check(found, kind)
        for invalid in page.invalid:
            assert str(invalid) and invalid.cure
            assert invalid.subject

    fuzz(one, pages(), share=0.3)


BOMB = b"[" + b"[[[[[[[[[[[]]]]]]]]]]]," * 36_000 + b"7]"
"""Less than a megabyte, and close to half a million lists."""


def large(name: str) -> Iterator[tuple[str, bytes]]:
    """Objects of a kind that hold very much of one thing, up to a megabyte and a half as an API server takes them."""
    document = recorded(name)
    for place in places_in(document):
        holder = recorded(name)
        target = holder
        for step in place[:-1]:
            target = target[step]
        if not place:
            continue
        value, target[place[-1]] = target[place[-1]], "bomb"
        yield ".".join(map(str, place)) + " (lists)", json_of(holder).replace(b'"bomb"', BOMB)
        if isinstance(value, list) and value:
            one = len(json_of(value)) // len(value) + 1
            target[place[-1]] = (value * (1_000_000 // one))[: 1_000_000 // one]
        elif isinstance(value, dict) and value and place[-1] in ("labels", "annotations", "data", "matchLabels"):
            target[place[-1]] = {**value, **{f"a.example/k{number}": "v" for number in range(40_000)}}
        elif isinstance(value, str) and place[-1] not in ("apiVersion", "kind", "type"):
            target[place[-1]] = "a." * 500_000
        else:
            continue
        yield ".".join(map(str, place)), json_of(holder)


@pytest.mark.parametrize("name", NAMES)
def test_a_megabyte_of_one_thing_is_read_or_refused_quickly(name: str) -> None:
    slow = []
    for place, data in large(name):
        try:
            refusal(lambda data=data: kind_of(recorded(name)).decode_json(data, "west", "istio-system"), len(data))
        except AssertionError as error:
            slow.append(f"{place}: {error}")
    assert not slow


@pytest.mark.parametrize("name", NAMES)
def test_nesting_without_end_is_refused(name: str) -> None:
    kind = kind_of(recorded(name))
    for depth, beside in ((200, b""), (100_000, b""), (200, b",[]" * 100_000)):
        data = json_of(recorded(name))[:-1] + b', "spec": [' + b"[" * depth + b"]" * depth + beside + b"]}"
        refusal(lambda data=data: kind.decode_json(data, "west", "istio-system"), len(data))
    refusal(lambda: kinds.decode({**recorded(name), "spec": nested_lists(400)}, "west", "istio-system"))
