"""Who is to blame for a rejection, and what is remembered of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.xds.session.model import resource
from xds.encoded import Resource
from xds.session.rejections import MAX_MESSAGE, MAX_NAMES, MAX_VERSIONS, Bisection, Quarantine, culprits

RECORDED = json.loads(Path("tests/kit/fixtures/ztunnel/nack_cases.json").read_text())


def named(*names: str) -> dict[str, Resource]:
    return {name: resource(name, "text") for name in names}


# Culprits.


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (reply["error_detail"]["message"].partition(": ")[0], reply["error_detail"]["message"])
        for case in RECORDED
        for reply in case["reply"]
        if "error_detail" in reply
    ],
)
def test_the_culprit_is_found_in_every_recorded_rejection_of_a_ztunnel(name: str, message: str) -> None:
    among = named(name, "demo/innocent", "t//Pod/demo/innocent")
    assert culprits(message, among) == {name: message.partition(": ")[2]}


def test_all_culprits_of_a_list_are_found_each_with_its_reason() -> None:
    message = "c//Pod/ns/a: unknown enum: x; ns/host: had 3 bytes; c//Pod/ns/b: no; really not"
    assert culprits(message, named("c//Pod/ns/a", "c//Pod/ns/b", "ns/host", "ns/other")) == {
        "c//Pod/ns/a": "unknown enum: x",
        "ns/host": "had 3 bytes",
        "c//Pod/ns/b": "no; really not",
    }


def test_a_hostile_text_is_kept_in_part() -> None:
    found = culprits("ns/a: x" + "; y" * 1_000_000, named("ns/a"))
    assert len(found["ns/a"]) < 2 * MAX_MESSAGE


def test_a_name_with_colons_is_found() -> None:
    name = "c/discovery.k8s.io/EndpointSlice/ns/slice/2001:db8::1"
    assert culprits(f"{name}: bad", named(name)) == {name: "bad"}


def test_a_name_that_begins_like_another_is_not_taken_for_it() -> None:
    assert culprits("ns/ab: bad", named("ns/a", "ns/ab")) == {"ns/ab": "bad"}


@pytest.mark.parametrize(
    "message",
    [
        "Error adding/updating cluster(s) one: bad port, two: bad name",
        "Error adding/updating listener(s) one: bad port\ntwo: bad name\n",
    ],
)
def test_culprits_are_found_in_the_texts_of_envoy(message: str) -> None:
    assert culprits(message, named("one", "two", "three")).keys() == {"one", "two"}


@pytest.mark.parametrize("message", ["", "something is wrong", "decode: failed: a", "a", "a ; b"])
def test_a_text_that_names_nobody_blames_nobody(message: str) -> None:
    assert culprits(message, named("a", "b")) == {}


# Quarantine.


def test_a_rejected_version_is_held_back_and_no_other() -> None:
    quarantine = Quarantine()
    quarantine.reject(resource("a", "bad"), "why", "n1")
    assert quarantine.hold(resource("a", "bad"))
    assert not quarantine.hold(resource("a", "good"))
    assert not quarantine.hold(resource("b", "bad"))


def test_an_accepted_version_ends_the_rejection_but_the_bad_one_stays_known() -> None:
    quarantine = Quarantine()
    quarantine.reject(resource("a", "bad"), "why", "n1")
    quarantine.accept([resource("a", "good")])
    assert quarantine.current == {}
    assert quarantine.hold(resource("a", "bad"))
    assert quarantine.current["a"].message == "why"


def test_what_is_gone_is_not_rejected_any_more_but_the_bad_version_stays_known() -> None:
    quarantine = Quarantine()
    quarantine.reject(resource("a", "bad"), "why", "n1")
    quarantine.lift("a")
    assert quarantine.current == {}
    assert quarantine.hold(resource("a", "bad"))


def test_reasons_of_any_length_are_kept_in_part() -> None:
    quarantine = Quarantine()
    quarantine.reject(resource("a", "bad"), "x" * 1_000_000, "n1")
    assert len(quarantine.current["a"].message) == MAX_MESSAGE


def test_the_oldest_of_many_rejected_versions_is_forgotten() -> None:
    quarantine = Quarantine()
    for number in range(MAX_VERSIONS + 1):
        quarantine.reject(resource("a", str(number)), "why", "n1")
    assert not quarantine.hold(resource("a", "0"))
    assert quarantine.hold(resource("a", "1"))


def test_the_oldest_of_many_rejected_names_is_forgotten() -> None:
    quarantine = Quarantine()
    first = resource("0", "bad")
    for number in range(MAX_NAMES + 1):
        quarantine.reject(Resource(str(number), first.digest, first.frame), "why", "n1")
    assert not quarantine.hold(first)
    assert len(quarantine.current) == MAX_NAMES


# Bisection.


def isolate(resources: list[Resource], bad: set[str]) -> tuple[set[str], int]:
    """What a client that names no names is left accused of, and in how many responses."""
    bisection = Bisection()
    bisection.split(tuple(resources))
    found: set[str] = set()
    responses = 0
    while group := bisection.next_group():
        responses += 1
        if not bad & {member.name for member in group}:
            bisection.clear(group)
        elif len(group) == 1:
            found.add(group[0].name)
            bisection.clear(group)
        else:
            bisection.split(group)
    assert bisection.suspects == {}
    return found, responses


def test_one_culprit_among_many_is_isolated_in_few_steps() -> None:
    found, responses = isolate([resource(str(number), "text") for number in range(4000)], {"1234"})
    assert found == {"1234"}
    assert responses <= 2 * 12


def test_several_culprits_are_isolated() -> None:
    bad = {"3", "4", "77", "99"}
    found, _ = isolate([resource(str(number), "text") for number in range(100)], bad)
    assert found == bad


def test_a_suspect_whose_content_changed_is_not_sent_in_its_old_version() -> None:
    bisection = Bisection()
    bisection.split((resource("a", "1"), resource("b", "1"), resource("c", "1"), resource("d", "1")))
    bisection.drop("a")
    assert [member.name for member in bisection.next_group()] == ["b"]


def test_when_all_suspects_are_gone_nothing_waits() -> None:
    bisection = Bisection()
    bisection.split((resource("a", "1"), resource("b", "1")))
    bisection.drop("a")
    bisection.drop("b")
    assert not bisection.waiting
    assert bisection.next_group() == ()
