"""Names that visitors ask for: what each gets, how long an answer is held, and how many live in a gateway."""

from __future__ import annotations

import pytest

from tests.kit.named_secrets import Gateway, Secrets
from xds.messages.downstream_tls import NO_NAME
from xds.session.server_names import HOLD, is_server_name

DEFAULT = {NO_NAME: "default"}


@pytest.mark.parametrize(
    "name",
    [
        *("A.example", "a.example.", "*.example", "a_b.example", "", ".", "a..b", "-a.example", "a" * 64),
        *("a." * 126 + "ab", "a b", "a\0b", "é.example", "kubernetes://a/b", "roots/a/b", "a.example\n"),
    ],
)
def test_what_no_host_could_be_called_is_refused_without_looking_any_further(name: str) -> None:
    assert not is_server_name(name)
    assert Gateway(Secrets(**DEFAULT, **{"*.b": "wild"}), awaited=[name]).visit(name) == [""]


@pytest.mark.parametrize("name", ["a", "a.example", "xn--bcher-kva.example", "1.2", "a" * 63, "a." * 126 + "a"])
def test_what_a_host_could_be_called_is_looked_for(name: str) -> None:
    assert is_server_name(name)
    assert Gateway(Secrets(**DEFAULT)).visit(name) == ["default"]


def test_a_name_gets_its_own_certificate_before_the_wildcards_before_the_default_one() -> None:
    gateway = Gateway(Secrets(**{"a.example": "own", "*.example": "wild", **DEFAULT}))
    names = ("a.example", "b.example", "c.b.example", "example", NO_NAME)
    assert gateway.visit(*names) == ["own", "wild", "default", "default", "default"]
    assert gateway.unknown == 0


def test_a_name_that_nobody_has_is_refused_at_once_and_counted() -> None:
    gateway = Gateway(Secrets(**{"a.example": "own"}))
    assert gateway.visit("b.example", NO_NAME, "B.example") == ["", "", ""]
    assert gateway.unknown == 3
    assert gateway.orders == []


# Answers that are held.


def test_an_answer_is_held_for_a_certificate_that_is_to_come_and_ends_with_it() -> None:
    gateway = Gateway(Secrets(), awaited=["a.example"])
    assert gateway.visit("a.example") == [None]
    gateway.poll(HOLD - 0.1)
    assert gateway.sent == []
    gateway.view.change({"a.example": "own"})
    gateway.poll()
    assert gateway.held == {"a.example": "own"}
    assert all(order.cancelled for order in gateway.orders)


def test_an_answer_is_not_held_for_ever_and_held_again_for_the_next_visitor() -> None:
    gateway = Gateway(Secrets(), awaited=["a.example"])
    for _ in range(2):
        assert gateway.visit("a.example") == [None]
        gateway.poll(HOLD)
        assert gateway.visit() == []
        assert (gateway.held, gateway.asking) == ({}, set())


def test_an_answer_that_is_held_holds_up_no_other() -> None:
    gateway = Gateway(Secrets(**{"b.example": "own"}), awaited=["a.example"])
    assert gateway.visit("a.example", "b.example", "c.example") == [None, "own", ""]
    gateway.view.change({"b.example": "new"})
    gateway.poll()
    assert gateway.held == {"b.example": "new"}


def test_a_default_certificate_that_comes_ends_the_waiting() -> None:
    gateway = Gateway(Secrets(), awaited=["a.example"])
    gateway.visit("a.example")
    gateway.view.change(dict(DEFAULT))
    gateway.poll()
    assert gateway.held == {"a.example": "default"}


def test_a_stream_that_ends_leaves_no_timer() -> None:
    gateway = Gateway(Secrets(), awaited=["a.example"])
    gateway.visit("a.example")
    gateway.session.close()
    assert gateway.orders
    assert all(order.cancelled for order in gateway.orders)
    assert gateway.view.closed


# What changes.


def test_a_certificate_of_its_own_takes_the_place_of_the_default_one() -> None:
    gateway = Gateway(Secrets(**DEFAULT))
    gateway.visit("a.example")
    gateway.view.change({"a.example": "own"})
    gateway.poll()
    assert gateway.held == {"a.example": "own"}
    gateway.view.change({"a.example": None})
    gateway.poll()
    assert gateway.held == {}
    assert gateway.visit("a.example") == ["default"]


def test_a_host_that_comes_with_the_certificate_its_name_was_given_before_is_told_nothing() -> None:
    gateway = Gateway(Secrets(**{"*.example": "wild"}))
    gateway.visit("a.example")
    gateway.sent.clear()
    gateway.view.change({"a.example": "wild"})
    gateway.poll()
    assert gateway.sent == []
    gateway.view.change({"*.example": "new"})
    gateway.poll()
    assert gateway.visit("a.example") == ["wild"]


@pytest.mark.parametrize("new", ["new", None])
def test_when_the_certificate_behind_names_changes_they_are_asked_for_anew(new: str | None) -> None:
    gateway = Gateway(Secrets(**{"*.example": "wild", "*.other": "wild too", **DEFAULT}))
    gateway.visit("a.example", "b.example", "a.other", "c")
    gateway.view.change({"*.example": new})
    gateway.poll()
    assert gateway.held == {"a.other": "wild too", "c": "default"}
    assert gateway.visit("a.example") == [new or "default"]


def test_a_wildcard_that_comes_takes_the_place_of_the_default_certificate_under_it() -> None:
    gateway = Gateway(Secrets(**DEFAULT))
    gateway.visit("a.example", "b.other")
    gateway.view.change({"*.example": "wild"})
    gateway.poll()
    assert gateway.held == {"b.other": "default"}
    assert gateway.visit("a.example") == ["wild"]


def test_a_gateway_that_comes_back_is_told_the_difference() -> None:
    gateway = Gateway(Secrets(**{"own.example": "own", "*.example": "wild", **DEFAULT}))
    gateway.visit("own.example", "a.example", "c", NO_NAME)
    gateway.sent.clear()
    gateway.connect()
    assert gateway.sent == []
    gateway.view.change({NO_NAME: "new"})
    gateway.connect()
    gateway.poll()
    assert gateway.held[NO_NAME] == "new"
    assert gateway.visit("own.example", "a.example", "c") == ["own", "wild", "new"]


# How many live.


def test_of_names_that_are_no_hosts_those_asked_for_last_live() -> None:
    gateway = Gateway(Secrets(**DEFAULT, **{f"h{number}.example": "own" for number in range(20)}), most=10)
    for number in range(20):
        gateway.visit(f"h{number}.example")
    for number in range(30):
        gateway.visit(f"n{number}.example")
        gateway.poll()
    own = {name for name, text in gateway.held.items() if text == "own"}
    assert len(own) == 20
    assert set(gateway.held) - own == {f"n{number}.example" for number in range(20, 30)}


def test_a_flood_of_unknown_names_leaves_nothing_behind() -> None:
    gateway = Gateway(Secrets(**{"a.example": "own"}))
    for number in range(1000):
        gateway.visit(f"n{number}.example")
    assert gateway.unknown == 1000
    assert (gateway.held, gateway.asking) == ({}, set())
    assert not gateway.names._live
    assert not gateway.names._ending


# What is refused by the gateway.


def test_a_visitor_who_waits_for_a_certificate_that_the_gateway_refuses_is_told_that_there_is_none() -> None:
    gateway = Gateway(Secrets(**{"a.example": "bad", "b.example": "good"}))
    gateway.refusing.add("bad")
    assert gateway.visit("a.example", "b.example") == ["", "good"]
    assert gateway.visit("a.example") == [""]
    gateway.view.change({"a.example": "good"})
    gateway.poll()
    assert gateway.visit("a.example") == ["good"]


def test_a_renewal_that_the_gateway_refuses_leaves_it_what_it_has() -> None:
    gateway = Gateway(Secrets(**{"a.example": "good"}))
    gateway.refusing.add("bad")
    gateway.visit("a.example")
    gateway.view.change({"a.example": "bad"})
    gateway.poll()
    assert gateway.held == {"a.example": "good"}
