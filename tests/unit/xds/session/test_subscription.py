"""What a client is interested in after each kind of request."""

from __future__ import annotations

import pytest

from xds.session.requests import MAX_NAMES, ProtocolViolation
from xds.session.subscription import Interest

NEVER = frozenset[str]()


def test_a_first_incremental_request_without_names_is_a_wildcard() -> None:
    interest = Interest()
    assert interest.change((), ()).everything
    assert interest.covers("anything")


def test_a_later_request_without_names_changes_nothing() -> None:
    interest = Interest()
    interest.change(("a",), ())
    asked = interest.change((), ())
    assert not asked.everything
    assert not interest.covers("b")


@pytest.mark.parametrize("before", [(), ("*",), ("a",)], ids=["unnamed", "star", "name"])
def test_asking_for_a_star_asks_for_everything_even_again(before: tuple[str, ...]) -> None:
    interest = Interest()
    interest.change(before, ())
    assert interest.change(("*",), ()).everything


def test_the_star_given_up_leaves_the_names() -> None:
    interest = Interest()
    interest.change(("*", "a"), ())
    asked = interest.change((), ("*",))
    assert asked.narrowed
    assert (interest.covers("a"), interest.covers("b")) == (True, False)


def test_what_is_asked_for_and_given_up_at_once_is_given_up() -> None:
    interest = Interest()
    asked = interest.change(("*", "a"), ("*", "a"))
    assert (asked.everything, asked.names) == (False, ())
    assert interest.empty


def test_names_not_covered_before_are_new() -> None:
    interest = Interest()
    assert interest.change(("a",), ()).new == {"a"}
    asked = interest.change(("a", "b"), ())
    assert asked.names == ("a", "b")
    assert asked.new == {"b"}


def test_under_a_wildcard_no_name_is_new() -> None:
    interest = Interest()
    interest.change((), ())
    assert interest.change(("a",), ()).new == NEVER


def test_a_name_given_up_under_a_wildcard_is_to_be_stated() -> None:
    interest = Interest()
    interest.change(("*", "a"), ())
    asked = interest.change((), ("a", "b"))
    assert (asked.names, asked.dropped) == (("a",), ())


def test_a_name_given_up_without_a_wildcard_is_dropped() -> None:
    interest = Interest()
    interest.change(("a", "b"), ())
    asked = interest.change((), ("a", "c"))
    assert (asked.names, asked.dropped) == ((), ("a",))


def test_held_names_are_subscribed_to_without_a_wildcard_only() -> None:
    named, wild = Interest(), Interest()
    named.change(("a",), (), ("b",))
    assert named.names == {"a", "b"}
    wild.change((), (), ("b",))
    assert wild.names == set()


def test_a_list_of_all_names_replaces_the_one_before() -> None:
    interest = Interest()
    assert interest.replace(("a", "b")).new == {"a", "b"}
    asked = interest.replace(("b", "c"))
    assert (asked.names, asked.dropped) == (("c",), ("a",))
    assert (interest.covers("a"), interest.covers("c")) == (False, True)


def test_an_empty_list_is_a_wildcard_as_long_as_nothing_was_named() -> None:
    interest = Interest()
    assert interest.replace(()).everything
    assert not interest.replace(()).everything
    assert interest.wildcard
    interest.replace(("a",))
    interest.replace(())
    assert interest.empty


def test_a_star_in_the_list_may_stand_beside_names() -> None:
    interest = Interest()
    assert interest.replace(("*", "a")).everything
    assert interest.replace(("a",)).narrowed
    assert (interest.covers("a"), interest.covers("b")) == (True, False)


def test_more_names_than_the_limit_are_a_violation() -> None:
    names = [str(number) for number in range(MAX_NAMES + 1)]
    with pytest.raises(ProtocolViolation, match=f"{MAX_NAMES} are the limit"):
        Interest().change(names, ())
    with pytest.raises(ProtocolViolation, match=f"{MAX_NAMES} are the limit"):
        Interest().replace(names)
