"""How figures of Isthmus and a peer are read, joined and shown."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from tests.bench import results
from tests.bench.api_servers import RESOURCES, ROOTS, definitions
from tests.bench.beside import Event, latencies, seconds, unit
from tests.bench.faults import _shown
from tests.bench.fleet import Receipt
from tests.bench.memory import used
from tests.bench.results import Results, table

WAY = "n1/SplitHorizonWorkload/istio-system/edge/192.0.2.2/shop/s3.shop.svc.cluster.local"
GONE = ("c1", ("c1", "Pod", "shop", "s3-3"))
EVENT = Event((GONE, ("c1", ("c1", "EndpointSlice", "shop", "s3-x"))), "s3.shop.", "n1")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)


def saved(peer: float | None) -> list[str]:
    """The table of one figure."""
    some = Results("some", "full")
    some.add("some.figure", 2.0, "ms", goal=3.0, peer=peer)
    some.save()
    return table("some", "full", 5)


def test_a_table_has_columns_for_the_peer_where_there_was_one() -> None:
    assert saved(8.0)[0] == "| figure | median | lowest to highest | peer | ratio | unit | goal |  |"
    assert saved(8.0)[2] == "| `some.figure` | 2 | 2 to 2 | 8 | 0.25 | ms | ≤ 3 | ok |"


def test_a_table_without_a_peer_has_no_column_for_it() -> None:
    assert saved(None)[2] == "| `some.figure` | 2 | 2 to 2 | ms | ≤ 3 | ok |"


def test_a_peer_that_never_did_is_not_seen() -> None:
    assert saved(math.inf)[2] == "| `some.figure` | 2 | 2 to 2 | inf | 0 | ms | ≤ 3 | ok |"
    assert _shown(math.inf, "s") == "not seen"
    assert _shown(None, "s") == "not measured"


def test_an_event_counts_until_the_first_response_after_it_that_names_it() -> None:
    heard = [[Receipt(1_000_000, 1, (WAY,), ()), Receipt(5_000_000, 1, (WAY,), ())]]
    assert list(latencies([2_000_000], [EVENT], heard)) == [3.0]


def test_an_event_is_told_by_the_removal_of_its_way_as_well() -> None:
    assert list(latencies([0], [EVENT], [[Receipt(1_000_000, 1, (), (WAY,))]])) == [1.0]


def test_an_event_of_another_network_or_service_is_not_told() -> None:
    other = [WAY.replace("n1/", "n2/"), WAY.replace("s3.", "s33."), "shop/s3.shop.svc.cluster.local"]
    assert list(latencies([0], [EVENT], [[Receipt(1_000_000, 1, tuple(other), ())]])) == [None]


def test_what_did_not_come_took_for_ever() -> None:
    assert seconds(1_000_000_000, 3_000_000_000) == 2.0
    assert seconds(1_000_000_000, 0) == math.inf


@pytest.mark.parametrize(
    ("name", "expected"),
    [("remote.memory.rest", "MB"), ("events.31.even.cpu", "% of a core"), ("join.last.cpu", "s"), ("leave.told", "s")],
)
def test_a_figure_has_the_unit_of_its_name(name: str, expected: str) -> None:
    assert unit(name) == expected


def test_a_process_is_measured_with_its_children() -> None:
    mine = used(os.getpid())
    assert mine.resident >= mine.proportional > 0


def test_every_kind_has_a_place_of_its_own() -> None:
    roots = [one.root for one in RESOURCES]
    assert len(roots) == len(set(roots))
    assert ROOTS["Gateway"] == "/apis/gateway.networking.k8s.io/v1/gateways"
    names = [one["metadata"]["name"] for one in definitions()]
    assert "gateways.gateway.networking.k8s.io" in names
    assert "gateways.networking.istio.io" in names
