"""What is kept of a kind while a list of it is read: no second copy of what is held already."""

from __future__ import annotations

from typing import Any

from aggregator.cache.table import Table
from tests.kit import manifests as m
from watchers.facts import Fact, ObjectKey, kinds
from watchers.kubernetes.kept import Kept
from watchers.kubernetes.quota import Holdings
from watchers.kubernetes.resources import resources
from watchers.metrics import WatchMetrics
from watchers.staging import Sink, Stage

CART, CHECKOUT = "shop/cart-1", "shop/checkout-1"


def fact(name: str, **fields: Any) -> tuple[ObjectKey, Fact]:
    keyed = kinds.decode(m.pod(name, "10.0.0.7", labels={"app": "x"}, **fields), "west", "istio-system")
    assert keyed is not None
    return keyed


def kept(store: Sink, most: int = 100) -> Kept:
    (resource,) = (resource for resource in resources("istio-system") if resource.kind.fact == "Pod")
    return Kept(
        resource.prefix("west"),
        store,
        Holdings(most),
        kind=resource.kind,
        namespace="",
        metrics=WatchMetrics(),
        labels=("west", "Pod"),
    )


def table(*facts: tuple[ObjectKey, Fact]) -> Table[ObjectKey, Fact]:
    made: Table[ObjectKey, Fact] = Table("facts")
    made.apply(facts)
    return made


def test_what_a_list_finds_unchanged_is_the_very_fact_that_is_held() -> None:
    held = fact(CART)
    ((_, gathered),) = kept(table(held)).gather([fact(CART)], 0)
    assert gathered is held[1]


def test_what_a_list_finds_changed_or_new_is_as_it_was_found() -> None:
    changed, new = fact(CART, ready=False), fact(CHECKOUT)
    gathered = kept(table(fact(CART, ready=True))).gather([changed, new], 0)
    assert [one for _, one in gathered] == [changed[1], new[1]]


def test_what_another_credential_reads_unchanged_is_the_very_fact_that_is_served() -> None:
    held = fact(CART)
    stage = Stage("west", table(held), aside=True)
    pods = kept(stage)
    stage.apply(pods.gather([fact(CART)], 0))
    assert stage.get(held[0]) is held[1]


def test_beyond_the_limit_only_what_is_held_is_gathered() -> None:
    held = fact(CART)
    gathered = kept(table(held), most=1).gather([fact(CART), fact(CHECKOUT)], 1)
    assert gathered == [held]
