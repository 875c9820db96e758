"""Rules of `watchers.kubernetes.events`: lines and Status objects, good and bad."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.manifests import CREATED
from watchers.facts import Pod, keys
from watchers.facts.kinds import KINDS, Kind
from watchers.kubernetes.events import EventReader, Refusal, refusal
from watchers.kubernetes.lines import Lines

BY_FACT = {kind.fact: kind for kind in KINDS}


def reader(kind: str = "Namespace") -> EventReader:
    return EventReader(BY_FACT[kind], "west", "istio-system")


def named(name: str, version: str = "1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version, "creationTimestamp": CREATED, **metadata}}


def line(kind: str, value: object, *, spaced: bool = False) -> bytes:
    """An event as API servers write it, or as JSON may also be written."""
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps({"type": kind, "object": value}, separators=separators).encode()


def key(name: str) -> tuple[str, str, str, str]:
    return ("west", "Namespace", "", name)


def test_the_newest_change_of_every_key_counts() -> None:
    events = reader().read(
        [
            line("ADDED", named("a", "3")),
            line("ADDED", named("b", "4")),
            line("MODIFIED", named("a", "5", labels={"x": "y"})),
            line("DELETED", named("b", "6")),
        ]
    )
    assert events.changes[key("b")] is None
    assert events.changes[key("a")].labels == (("x", "y"),)  # type: ignore[union-attr]
    assert (events.objects, events.resource_version, events.bookmark) == (4, "6", "")


@given(st.lists(st.tuples(st.sampled_from(("ADDED", "MODIFIED", "DELETED")), st.sampled_from("ab"), st.booleans())))
@settings(max_examples=50, deadline=None)
def test_however_the_json_is_written_it_says_the_same(changes: list[tuple[str, str, bool]]) -> None:
    objects = [(change, named(name, labels={"x": 1} if odd else {})) for change, name, odd in changes]
    plain = reader().read([line(change, value) for change, value in objects])
    spaced = reader().read([line(change, value, spaced=True) for change, value in objects])
    assert plain.changes == spaced.changes
    assert plain.invalid.keys() == spaced.invalid.keys()
    assert (plain.objects, plain.resource_version) == (spaced.objects, spaced.resource_version)


def test_a_bookmark_is_a_version_and_no_change() -> None:
    bookmark = {"kind": "Namespace", "metadata": {"resourceVersion": "77", "creationTimestamp": None}}
    events = reader().read([line("ADDED", named("a", "3")), line("BOOKMARK", bookmark)])
    assert (events.resource_version, events.bookmark, events.initial_end) == ("77", "77", False)
    assert list(events.changes) == [key("a")]


def test_an_object_after_a_bookmark_has_the_newest_version() -> None:
    bookmark = {"metadata": {"resourceVersion": "77"}}
    events = reader().read([line("BOOKMARK", bookmark), line("ADDED", named("a", "80"))])
    assert (events.resource_version, events.bookmark) == ("80", "77")


def test_the_end_of_the_initial_events_is_a_bookmark_with_an_annotation() -> None:
    bookmark = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    assert reader().read([line("BOOKMARK", bookmark)]).initial_end


def test_an_object_that_cannot_be_used_is_put_aside() -> None:
    events = reader().read(
        [
            line("ADDED", named("a", "3")),
            line("ADDED", named("b", "4", labels={"x": 1})),
            line("ADDED", named("c", "5")),
        ]
    )
    assert sorted(events.changes) == [key("a"), key("c")]
    assert str(events.invalid[key("b")]) == "Namespace b: metadata.labels.x is 1, must be a string"
    assert events.resource_version == "5"


def test_a_later_version_that_can_be_used_mends_it() -> None:
    events = reader().read([line("ADDED", named("a", "3", labels={"x": 1})), line("MODIFIED", named("a", "4"))])
    assert not events.invalid
    assert key("a") in events.changes


def test_a_later_version_that_cannot_leaves_the_one_before() -> None:
    events = reader().read([line("ADDED", named("a", "3")), line("MODIFIED", named("a", "4", labels={"x": 1}))])
    assert events.changes[key("a")] is not None
    assert key("a") in events.invalid


def test_an_object_that_cannot_be_used_can_be_deleted() -> None:
    events = reader().read([line("DELETED", named("a", "3", labels={"x": 1}))])
    assert events.changes == {key("a"): None}
    assert not events.invalid


def test_what_is_no_longer_selected_is_gone() -> None:
    events = reader("MeshConfig").read([line("MODIFIED", named("istio", "3", namespace="elsewhere"))])
    assert events.changes == {("west", "MeshConfig", "elsewhere", "istio"): None}


@pytest.mark.parametrize("name", ["", "../etc", "a/b", "A", "x" * 300, "a\0b"])
def test_no_name_that_an_object_cannot_have_becomes_a_key(name: str) -> None:
    events = reader().read([line("ADDED", named(name)), line("DELETED", named(name))])
    assert not events.changes


def test_an_error_ends_the_batch_with_what_the_status_says() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    events = reader().read([line("ADDED", named("a")), line("ERROR", status), line("ADDED", named("b"))])
    assert events.refusal == Refusal(410, "Expired", "too old")
    assert list(events.changes) == [key("a")]


@pytest.mark.parametrize(
    "garbage",
    [
        b'{"type":"ADDED","object":{"metadata":{"name":"z"}},"object":}',
        b'{"type":"ADDED","object":{}x}',
        b"<html>",
        b"null",
        b"[]",
        b'{"type": 7}',
        b'{"type":"GONE","object":{}}',
        b"\xff\xfe",
        b'{"type":"ADD',
    ],
)
def test_a_line_that_is_no_event_ends_the_batch(garbage: bytes) -> None:
    events = reader().read([line("ADDED", named("a")), garbage, line("ADDED", named("b"))])
    assert events.garbage
    assert list(events.changes) == [key("a")]


def test_empty_lines_are_nothing() -> None:
    events = reader().read([b"", b"\r", line("ADDED", named("a"))])
    assert (events.objects, events.garbage) == (1, False)


def test_a_pod_of_a_watch_is_the_pod_of_a_list() -> None:
    pod = {**named("cart-1", namespace="shop"), "status": {"podIP": "10.0.0.1", "phase": "Running"}}
    events = reader("Pod").read([line("ADDED", pod)])
    page = BY_FACT["Pod"].decode_page(json.dumps({"items": [pod], "metadata": {}}).encode(), "west", "istio-system")
    assert dict(page.facts) == events.changes
    assert isinstance(page.facts[0][1], Pod)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.fact)
def test_every_kind_can_be_deleted_by_its_name(kind: Kind) -> None:
    events = reader(kind.fact).read([line("DELETED", named("istio", namespace="shop"))])
    place = "shop" if kind.namespaced else ""
    assert events.changes == {("west", kind.fact, place, "istio"): None}


FIELDS = st.sampled_from(("metadata", "name", "resourceVersion", "annotations", "details", "code"))
LEAVES = st.none() | st.integers() | st.text(max_size=4)
OBJECTS = st.recursive(LEAVES, lambda inner: st.dictionaries(FIELDS, inner, max_size=3), max_leaves=4)
EVENTS = st.builds(line, st.sampled_from(("ADDED", "DELETED", "BOOKMARK", "ERROR")), OBJECTS)


@given(st.lists(st.binary(max_size=60) | EVENTS, max_size=4))
@settings(max_examples=100, deadline=None)
def test_no_line_makes_the_reader_fail(lines: list[bytes]) -> None:
    for kind in ("Namespace", "Pod", "TLSSecret", "RootCertificates"):
        reader(kind).read(lines)


def test_an_overlong_object_is_put_aside_by_its_name_and_the_next_is_read() -> None:
    long = line("MODIFIED", named("b", "4", annotations={"x": "y" * 300}))
    lines = Lines(200).feed(b"\n".join((line("ADDED", named("a", "3")), long, line("ADDED", named("c", "5")), b"")))
    events = EventReader(BY_FACT["Namespace"], "west", "istio-system", most_bytes=200).read(lines, "2")
    assert sorted(events.changes) == [key("a"), key("c")]
    assert str(events.invalid[key("b")]) == "Namespace b: is larger than 200 bytes"
    assert (events.objects, events.resource_version, events.garbage) == (3, "5", False)


def test_an_overlong_object_can_be_deleted() -> None:
    lines = Lines(200).feed(line("DELETED", named("b", "4", annotations={"x": "y" * 300})) + b"\n")
    events = reader().read(lines, "2")
    assert (events.changes, events.invalid, events.resource_version) == ({key("b"): None}, {}, "4")


def test_an_overlong_line_that_is_no_event_ends_the_batch() -> None:
    assert reader().read(Lines(200).feed(b"<html>" + b"x" * 300 + b"\n")).garbage


def test_what_was_told_before_is_left_out_and_said_to_be_old() -> None:
    lines = [line("ADDED", named("a", "7")), line("MODIFIED", named("b", "3")), line("MODIFIED", named("c", "5"))]
    events = reader().read(lines, "5")
    assert (list(events.changes), events.resource_version, events.old) == ([key("a")], "7", True)


def test_what_overtook_another_within_a_batch_is_put_behind_it() -> None:
    lines = [line("MODIFIED", named("a", "7", labels={"x": "new"})), line("MODIFIED", named("a", "6"))]
    events = reader().read(lines, "5")
    assert events.changes[key("a")].labels == (("x", "new"),)  # type: ignore[union-attr]
    assert (events.resource_version, events.old) == ("7", False)


def test_a_refusal_says_when_to_come_back() -> None:
    body = json.dumps({"code": 429, "details": {"retryAfterSeconds": 7}}).encode()
    assert refusal(429, body).retry_after == 7
    assert refusal(429, body, {"Retry-After": "3"}).retry_after == 3
    assert refusal(429, b"", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}).retry_after is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"code": "x"}', b"\xff"])
def test_an_error_page_says_no_more_than_its_status(body: bytes) -> None:
    assert refusal(502, body) == Refusal(502)


def test_what_a_server_says_is_shown_in_one_line_of_bounded_length() -> None:
    shown = str(Refusal(500, "Internal", "\x1b[31mred\nline\u202e" + "x" * 1000))
    assert shown.isprintable()
    assert len(shown) == 300


def test_a_version_too_large_is_recognised_by_cause_and_by_message() -> None:
    by_cause = {"code": 504, "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}
    by_message = {"code": 504, "message": "Timeout: Too large resource version: 9, current: 5"}
    assert refusal(504, json.dumps(by_cause).encode()).too_large
    assert refusal(504, json.dumps(by_message).encode()).too_large
    assert not refusal(504, b"{}").too_large


def selective(*namespaces: str) -> EventReader:
    kind = BY_FACT["Pod"].apart()
    kind.namespaces = frozenset(namespaces)
    return EventReader(kind, "west", "istio-system", most_bytes=4096)


def test_of_objects_in_other_namespaces_nothing_is_kept_but_the_version() -> None:
    events = selective("shop").read(
        [
            line("ADDED", named("a", "3", namespace="shop")),
            line("ADDED", named("b", "4", namespace="attic")),
            line("DELETED", named("c", "5", namespace="attic")),
            line("MODIFIED", named("d", "6")),
        ]
    )
    assert set(events.changes) == {("west", "Pod", "shop", "a")}
    assert (events.objects, events.resource_version) == (4, "6")


def test_an_object_without_a_namespace_is_in_default() -> None:
    assert set(selective("default").read([line("ADDED", named("a", "3"))]).changes) == {("west", "Pod", "default", "a")}


@pytest.mark.parametrize(
    "broken", [{"labels": "none"}, {"labels": {"-": "x"}}, {"labels": {"a": "x" * 5000}}, {"creationTimestamp": "now"}]
)
def test_what_is_wrong_in_other_namespaces_is_no_fault(broken: dict[str, Any]) -> None:
    read = selective("shop").read([line("ADDED", named("a", "3", **{"namespace": "attic", **broken}))])
    assert (read.changes, read.invalid, read.garbage) == ({}, {}, False)
    assert read.resource_version == "3"
    assert selective("attic").read([line("ADDED", named("a", "3", **{"namespace": "attic", **broken}))]).invalid


def test_names_of_other_namespaces_are_remembered_nowhere() -> None:
    labels = {"app": "only-in-the-attic"}
    read = selective("shop").read([line("ADDED", named("a", "3", namespace="attic-of-pods", labels=labels))])
    assert not read.changes
    assert (("app", "only-in-the-attic"),) not in keys._labels._kept
    hits = keys.repeated_dns_label.cache_info().hits
    keys.repeated_dns_label("attic-of-pods", "metadata", "namespace")
    assert keys.repeated_dns_label.cache_info().hits == hits
