from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Iterable

import pytest

from aggregator.app.activations import Activations
from aggregator.app.records import Pass, Records
from aggregator.cache.table import Table
from aggregator.operate.domain_list import Activation
from aggregator.traffic.hosts import Host
from aggregator.views.ingress_gateway import SCOPES, scope_keys
from aggregator.views.view import View
from watchers.sink import Cause
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.records import Ack, ResourceRejected
from xds.server.proxies import Proxy

SECOND = 10**9
PROXY = Proxy("gateway-1", "127.0.0.1:1", None, "ingress", "", "", "", "")
UNKNOWN = Activation()
DOMAIN = Host("a.example.org", (), None, None)


class Told:
    """Activations, and the passes and answers they are told of."""

    def __init__(self, *, gateways: bool = True) -> None:
        self.records = Records()
        self.interest: Table[tuple[str], View] = Table("interest")
        if gateways:
            self.connect()
        self.activations = Activations(self.interest, self.records)

    def connect(self) -> None:
        self.interest.apply([(SCOPES.key, SCOPES)])

    def passed(
        self, revision: int, *hosts: str, at: float = 0.0, gone: Iterable[str] = (), same: Iterable[str] = ()
    ) -> None:
        """A pass changed the routes of `hosts` by news of that second; the domains `same` without their routes."""
        changed = {**dict.fromkeys((*hosts, *same), DOMAIN), **dict.fromkeys(gone)}
        asked = self.interest.get(SCOPES.key) is not None
        told = {scope_keys(host, None)[0]: "routes" for host in hosts} if asked else {}
        causes = (Cause(int(at * SECOND), "west", 1),) if at else ()
        self.activations.note(changed, told, Pass(revision, causes, 5 * SECOND, 6 * SECOND, 1, 1, 1))

    def accepts(self, revision: int, at: float, type_url: str = SCOPED_ROUTE_TYPE) -> None:
        self.records.append(Ack("gateway-1", type_url, "n", True, "", int(at * SECOND), revision))

    def refuses(self, host: str) -> None:
        self.records.append(ResourceRejected(PROXY, SCOPED_ROUTE_TYPE, scope_keys(host, None)[0][1], "v", "no"))

    def of(self, host: str) -> tuple[float | None, float | None]:
        found = self.activations.of(host)
        return found.taken, found.seconds


def test_the_first_answer_that_covers_a_change_ends_its_activation() -> None:
    told = Told()
    told.passed(3, "a", at=10)
    told.accepts(2, at=11)
    assert told.of("a") == (10, None)
    told.accepts(3, at=12)
    told.accepts(9, at=20)
    assert told.of("a") == (10, 2)


def test_an_answer_covers_all_changes_up_to_its_revision_and_no_later_ones() -> None:
    told = Told()
    for revision, host in enumerate(("a", "b", "c"), 1):
        told.passed(revision, host, at=10)
    told.accepts(2, at=11)
    assert [told.of(host)[1] for host in "abc"] == [1, 1, None]


def test_a_change_begins_anew_whatever_was_measured() -> None:
    told = Told()
    told.passed(1, "a", "b", at=10)
    told.accepts(1, at=11)
    told.passed(2, "a", at=20)
    assert told.of("a") == (20, None)
    told.accepts(1, at=21)  # of before
    assert told.of("a") == (20, None)
    told.accepts(2, at=22)
    assert (told.of("a"), told.of("b")) == ((20, 2), (10, 1))


def test_the_oldest_news_of_a_pass_counts_and_without_any_its_beginning() -> None:
    told = Told()
    causes = tuple(Cause(second * SECOND, "west", 1) for second in (12, 10, 11))
    told.activations.note({"a": DOMAIN}, {scope_keys("a", None)[0]: "routes"}, Pass(1, causes, 13 * SECOND, 0, 1, 1, 1))
    told.passed(2, "b")
    assert (told.of("a")[0], told.of("b")[0]) == (10, 5)


def test_a_domain_whose_routes_stay_is_what_it_was() -> None:
    told = Told()
    told.passed(1, "a", at=10)
    told.accepts(1, at=11)
    told.passed(2, same=("a",), at=20)
    assert told.of("a") == (10, 1)


def test_a_domain_that_goes_is_forgotten_and_comes_back_as_a_new_one() -> None:
    told = Told()
    told.passed(1, "a", at=10)
    told.passed(2, gone=("a",), at=11)
    told.accepts(2, at=12)
    assert told.activations.of("a") == UNKNOWN
    assert (told.activations._awaited, told.activations._hosts) == ({}, {})
    told.passed(3, "a", at=20)
    told.accepts(3, at=21)
    assert told.of("a") == (20, 1)


def test_nothing_is_measured_of_changes_that_no_gateway_waited_for() -> None:
    told = Told(gateways=False)
    told.passed(1, "a", at=10)
    told.connect()
    told.accepts(1, at=500)
    assert told.of("a") == (10, None)


def test_nothing_is_measured_where_a_gateway_refuses_until_the_next_change() -> None:
    told = Told()
    told.passed(1, "a", "b", at=10)
    told.refuses("a")
    told.accepts(1, at=11)
    assert [told.of(host)[1] for host in "ab"] == [None, 1]
    told.passed(2, "a", at=20)
    told.accepts(2, at=21)
    assert told.of("a") == (20, 1)


def test_answers_about_other_types_and_those_that_say_nothing_new_do_not_count() -> None:
    told = Told()
    told.passed(1, "a", at=10)
    told.accepts(7, at=11, type_url=CLUSTER_TYPE)
    told.accepts(0, at=11)
    assert told.of("a") == (10, None)


def test_an_answer_before_the_news_as_where_clocks_differ_is_no_negative_time() -> None:
    told = Told()
    told.passed(1, "a", at=10)
    told.accepts(1, at=9)
    assert told.of("a") == (10, 0)


def test_what_was_measured_is_counted_and_summed() -> None:
    told = Told()
    told.passed(1, "a", "b", at=10)
    told.accepts(1, at=12)
    told.passed(2, "a", at=20)
    told.accepts(2, at=21)
    count, seconds = told.activations.metrics()
    assert (count.values, seconds.values) == ({(): 3}, {(): 5.0})


def test_answers_are_not_missed_though_nobody_asks() -> None:
    told = Told()
    told.passed(1, "a", at=10)
    told.accepts(1, at=11)
    for _ in range(20_000):
        told.accepts(1, at=12, type_url=CLUSTER_TYPE)
    assert told.of("a") == (10, 1)


def test_a_gateway_that_never_answers_makes_nothing_grow_with_the_changes() -> None:
    told = Told()
    for revision in range(1, 1000):
        told.passed(revision, f"h{revision % 10}", at=revision)
        told.passed(revision, gone=(f"h{(revision + 5) % 10}",))
    assert len(told.activations._awaited) <= 10


def test_twenty_thousand_that_one_answer_covers_are_looked_through_once_and_leave_nothing() -> None:
    told = Told()
    hosts = [f"h{number}.example.org" for number in range(20_000)]
    told.passed(1, *hosts, at=10)
    told.accepts(1, at=11)
    began = time.thread_time()
    assert told.of(hosts[-1]) == (10, 1)
    assert time.thread_time() - began < 0.25  # 20 ms; once for each it takes seconds
    assert sys.getsizeof(told.activations._awaited) < 1000
    assert sys.getsizeof(told.activations._hosts) < 1000


@pytest.mark.parametrize("gateways", [False, True])
def test_a_domain_costs_less_than_150_bytes_once_it_was_accepted(gateways: bool) -> None:
    told = Told(gateways=gateways)
    hosts = [f"h{number}.example.org" for number in range(4_000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for revision, host in enumerate(hosts, 1):
            told.passed(revision, host, at=revision)
            told.accepts(revision, at=revision + 0.5)
        told.of("")
        told.records._ring.clear()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown / len(hosts) < 150
