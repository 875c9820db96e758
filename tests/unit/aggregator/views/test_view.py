"""What of a view counts as changed though it is equal."""

from __future__ import annotations

from aggregator.views.view import ResourceKey, joining_again
from xds.encoded import ADMITS_ALL, ADMITS_HEALTHY, NO_TIES, Encoded, Resource, Ties, wrap

HEALTHY, ALL, JOINS = Ties(admits=ADMITS_HEALTHY), Ties(admits=ADMITS_ALL), Ties(joins=("shop/cart",))


def one(name: str, ties: Ties = NO_TIES) -> tuple[ResourceKey, Resource]:
    return ("view", name), wrap("type", name, Encoded(b"", bytes(16)), ties=ties)


ROWS = dict([one("cart-1", JOINS), one("cart-2", JOINS), one("ads-1", Ties(joins=("shop/ads",))), one("gateway")])
CART = ("view", "shop/cart")


def names(rows: dict[ResourceKey, Resource], *changes: tuple[ResourceKey, Resource | None]) -> list[str]:
    return [key[1] for key in joining_again(rows, changes)]


def test_what_joins_a_service_that_comes_to_be() -> None:
    assert names(ROWS, one("shop/cart", HEALTHY)) == ["cart-1", "cart-2"]


def test_what_joins_a_service_that_takes_unhealthy_workloads_from_now_on() -> None:
    rows = {**ROWS, **dict([one("shop/cart", HEALTHY)])}
    assert names(rows, one("shop/cart", ALL)) == ["cart-1", "cart-2"]


def test_nothing_for_a_service_that_changes_otherwise_or_goes() -> None:
    rows = {**ROWS, **dict([one("shop/cart", ALL)])}
    assert names(rows, one("shop/cart", HEALTHY)) == []
    assert names(rows, one("shop/cart", ALL)) == []
    assert names(rows, (CART, None)) == []


def test_nothing_for_what_admits_nothing() -> None:
    assert names(ROWS, one("cart-3", JOINS), one("gateway-2")) == []


def test_not_what_changes_itself() -> None:
    assert names(ROWS, one("shop/cart", HEALTHY), one("cart-1", JOINS), (("view", "cart-2"), None)) == []
