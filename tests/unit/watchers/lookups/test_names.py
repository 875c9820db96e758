"""What stands of a DNS name after every answer, and when it is asked again."""

from __future__ import annotations

import itertools

import pytest

from watchers.facts.names import ResolvedName
from watchers.lookups.names import Answer, WatchedName, may_be_told

EMPTY = Answer("empty")
ABSENT = Answer("absent", cause="it does not exist (NXDOMAIN)")
FAILED = Answer("failed", cause="no name server answers")
SERVFAIL = Answer("failed", cause="name servers answer SERVFAIL")
OLD, NEW = "198.51.100.20", "198.51.100.21"


def found(*addresses: str, ttl: float = 60.0) -> Answer:
    return Answer("found", addresses, ttl)


class Name:
    """A name under test: at moment 0, without chance, patient for 30 seconds."""

    def __init__(self, *stands: str) -> None:
        self.watched = WatchedName(stands, 30.0)

    def answered(self, a: Answer, aaaa: Answer = EMPTY, *, now: float = 0.0, chance: float = 0.0) -> ResolvedName:
        return self.watched.answered({"A": a, "AAAA": aaaa}, now, chance)

    def pause(self, a: Answer, aaaa: Answer = EMPTY, *, chance: float = 0.0) -> float:
        self.answered(a, aaaa, chance=chance)
        return self.watched.pause


# What stands.


def test_addresses_of_both_families_stand_those_of_ipv4_first() -> None:
    assert Name().answered(found(OLD), found("2001:db8::1")) == ResolvedName((OLD, "2001:db8::1"), "")


def test_the_order_of_an_answer_changes_nothing() -> None:
    addresses = ("198.51.100.9", "198.51.100.20", "198.51.100.100")
    facts = {Name().answered(found(*order)) for order in itertools.permutations(addresses)}
    assert facts == {ResolvedName(addresses, "")}


def test_other_spellings_of_an_address_and_repeats_change_nothing() -> None:
    spellings = found("2001:DB8:0:0::1", "2001:db8::1")
    assert Name().answered(EMPTY, spellings) == ResolvedName(("2001:db8::1",), "")


def test_a_new_answer_takes_the_place_of_the_old_one() -> None:
    name = Name()
    name.answered(found(OLD))
    assert name.answered(found(NEW)) == ResolvedName((NEW,), "")


@pytest.mark.parametrize(
    ("a", "aaaa", "reason"),
    [
        (FAILED, FAILED, "no name server answers"),
        (SERVFAIL, FAILED, "name servers answer SERVFAIL; no name server answers"),
        (ABSENT, ABSENT, "it does not exist (NXDOMAIN)"),
        (EMPTY, EMPTY, "it has no addresses"),
        (EMPTY, FAILED, "no name server answers"),
        (FAILED, ABSENT, "no name server answers; it does not exist (NXDOMAIN)"),
        (found("127.0.0.1"), EMPTY, "127.0.0.1 is no address of a gateway"),
    ],
)
def test_the_last_good_addresses_stand_through_every_failure_which_is_told(
    a: Answer, aaaa: Answer, reason: str
) -> None:
    name = Name()
    name.answered(found(OLD))
    assert name.answered(a, aaaa) == ResolvedName((OLD,), reason)
    assert name.answered(found(OLD)) == ResolvedName((OLD,), "")


def test_addresses_known_before_the_first_answer_stand_until_there_is_one() -> None:
    name = Name(OLD, "2001:db8::1")
    assert name.answered(FAILED, FAILED).addresses == (OLD, "2001:db8::1")
    assert name.answered(found(NEW)).addresses == (NEW,)


def test_a_family_that_fails_keeps_its_addresses_while_the_other_changes() -> None:
    name = Name()
    name.answered(found(OLD), found("2001:db8::1"))
    assert name.answered(found(NEW), FAILED) == ResolvedName((NEW, "2001:db8::1"), "no name server answers")


def test_a_family_that_always_fails_is_nothing_to_speak_of_while_the_other_answers() -> None:
    name = Name()
    for _ in range(3):
        assert name.answered(found(OLD), FAILED) == ResolvedName((OLD,), "")


def test_a_family_whose_addresses_are_withdrawn_has_none() -> None:
    name = Name()
    name.answered(found(OLD), found("2001:db8::1"))
    assert name.answered(found(OLD), EMPTY) == ResolvedName((OLD,), "")


def test_a_name_without_any_answer_is_pending_until_patience_is_over() -> None:
    name = Name()
    assert name.answered(FAILED, FAILED, now=29.9).pending
    assert not name.answered(FAILED, FAILED, now=30.0).pending


@pytest.mark.parametrize("answer", [ABSENT, EMPTY])
def test_a_name_that_is_known_to_have_no_address_is_not_pending(answer: Answer) -> None:
    assert not Name().answered(answer, answer).pending


def test_a_name_whose_addresses_of_before_stand_is_not_pending() -> None:
    assert not Name(OLD).answered(FAILED, FAILED).pending


# Hostile answers.


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "100.100.100.200",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "2001:db8::1%eth0",
        "ff02::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:198.51.100.20",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "nowhere",
    ],
)
def test_proxies_are_never_sent_to_their_own_machine_or_to_many(address: str) -> None:
    assert not may_be_told(address)


@pytest.mark.parametrize(
    "address", [OLD, "10.0.0.1", "192.168.1.1", "100.64.0.1", "2001:db8::1", "fd00::1", "64:ff9b::c633:6414"]
)
def test_proxies_may_be_sent_to_hosts_private_ones_included(address: str) -> None:
    assert may_be_told(address)


def test_what_may_not_be_told_is_left_out_and_the_rest_is_used() -> None:
    fact = Name().answered(found("127.0.0.1", OLD, "169.254.1.1"))
    assert fact == ResolvedName((OLD,), "127.0.0.1, 169.254.1.1 are no address of a gateway")


def test_an_address_of_the_wrong_family_is_left_out() -> None:
    assert Name().answered(found(OLD), found(NEW)).addresses == (OLD,)


def test_of_too_many_addresses_the_same_ones_are_used_whatever_their_order() -> None:
    many = [f"198.51.100.{number}" for number in range(1, 41)]
    fact = Name().answered(found(*many))
    assert fact.addresses == tuple(many[:16])
    assert fact.reason == "of its 40 addresses the first 16 are used"
    assert Name().answered(found(*reversed(many))) == fact


# When to ask again.


def test_a_name_is_asked_again_when_its_ttl_is_over() -> None:
    assert Name().pause(found(OLD, ttl=60)) == 60


def test_the_shorter_ttl_of_the_two_families_counts() -> None:
    assert Name().pause(found(OLD, ttl=60), found("2001:db8::1", ttl=20)) == 20


@pytest.mark.parametrize(("ttl", "pause"), [(0, 5), (4, 5), (5, 5), (300, 300), (86_400, 300)])
def test_a_ttl_counts_for_five_seconds_at_least_and_five_minutes_at_most(ttl: float, pause: float) -> None:
    assert Name().pause(found(OLD, ttl=ttl)) == pause


@pytest.mark.parametrize("ttl", [5, 20, 60, 300])
def test_chance_makes_a_pause_longer_by_a_tenth_but_never_by_more_than_two_seconds(ttl: float) -> None:
    assert Name().pause(found(OLD, ttl=ttl), chance=1.0) == ttl + min(ttl / 10, 2)


@pytest.mark.parametrize("answer", [FAILED, ABSENT, EMPTY])
def test_a_name_that_fails_is_asked_less_and_less_but_at_least_every_thirty_seconds(answer: Answer) -> None:
    name = Name()
    assert [name.pause(answer, answer) for _ in range(6)] == [5, 10, 20, 30, 30, 30]


def test_one_good_answer_ends_the_waiting() -> None:
    name = Name()
    for _ in range(4):
        name.pause(FAILED, FAILED)
    name.pause(found(OLD))
    assert name.pause(FAILED, FAILED) == 5


def test_a_family_that_fails_is_asked_again_soon_though_the_other_may_be_kept_long() -> None:
    assert Name().pause(found(OLD, ttl=300), FAILED) == 30


def test_a_pending_name_is_asked_again_when_patience_ends() -> None:
    name = Name()
    name.answered(FAILED, FAILED, now=28.0)
    assert name.watched.pause == 2
