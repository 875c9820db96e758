"""How the figures of domains are read, joined and shown, and whether weather over domains leaves nothing behind."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.bench import results
from tests.bench.activation import Change, Cost, Figures, New, Start
from tests.bench.domain_table import table
from tests.bench.domain_weather import RATE, Weather, _key, failures, thirds
from tests.bench.domains import SIZES, Part, add, figures
from tests.bench.hosting import NAMESPACE, Hosting, Ports, created, deleted, replaced
from tests.bench.request_load import Answered, Report
from tests.bench.results import Results
from tests.bench.served import Counts, metrics
from tests.bench.visitors import Activation
from tests.kit import certificates as c

HOSTING = Hosting(c.Issuer("an authority"), Ports(80, 443, 8080, 8081))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)


def found(first: float, *, functions: float | None = 17.0, sent: float = 3_000.0) -> Figures:
    """Figures in which a new domain takes so many seconds."""
    cost = Cost(0.005, 0.002, sent, functions, None)
    start = Start(1.0, 2.0, cost, 200_000_000, 300_000_000, 20_000_000)
    new = {"ec": New([Activation(first, 0.001, 0.002)] * 3, cost)}
    return Figures(start, new, {"delete": Change([0.01, 0.02], cost)})


def rows(matrix: dict[Part, Figures]) -> dict[str, dict[str, Any]]:
    """What is told of it, by name."""
    some = Results("domains", "full")
    add(some, matrix)
    return {row["name"]: row for row in some.rows}


def test_figures_have_the_unit_of_their_kind() -> None:
    row = figures(found(0.01), 1_000)
    assert row["new.ec.first.p50"] == (10.0, "ms")
    assert row["new.ec.cpu"] == (5.0, "ms")
    assert row["start.cpu"] == (0.005, "s")
    assert row["memory"] == (20.0, "KB/domain")


def test_what_a_control_plane_does_not_count_is_no_figure() -> None:
    row = figures(found(0.01, functions=None), 1_000)
    assert "new.ec.functions" not in row
    assert "new.ec.hashed" not in row


def test_the_peer_stands_beside_the_same_number_of_domains() -> None:
    told = rows({Part("on_demand", 1_000): found(0.01), Part("istiod", 1_000): found(0.5)})
    assert told["domains.on_demand_1000.new.ec.first.p50"]["peer"] == 500.0
    assert not any("istiod" in name for name in told)


def test_a_peer_that_stands_beside_nothing_has_rows_of_its_own() -> None:
    told = rows({Part("on_demand", 100): found(0.01), Part("istiod", 1_000): found(0.5)})
    assert told["domains.on_demand_100.new.ec.first.p50"]["peer"] is None
    assert told["domains.istiod_1000.new.ec.first.p50"]["value"] == 500.0


def test_a_domain_that_costs_more_beside_many_is_not_flat() -> None:
    told = rows({Part("on_demand", 100): found(0.01), Part("on_demand", 20_000): found(0.01, sent=6_000.0)})
    assert told["domains.flatness.sent"]["value"] == 2.0
    assert not told["domains.flatness.sent"]["met"]
    assert told["domains.flatness.cpu"]["met"]


def test_goals_of_large_numbers_are_not_those_of_small_ones() -> None:
    told = rows({Part("on_demand", 100): found(0.01), Part("on_demand", 20_000): found(0.1)})
    assert told["domains.on_demand_20000.start.cpu"]["goal"] == "<=15"
    assert told["domains.on_demand_100.start.cpu"]["goal"] == "none"
    assert not told["domains.on_demand_20000.new.ec.first.p99"]["met"]


def test_a_part_that_was_ended_shows_what_it_had_found() -> None:
    whole = found(0.01)
    told = rows({Part("on_demand", 20): Figures(whole.start, {}, {}), Part("on_demand", 2_000): whole})
    assert "domains.on_demand_20.start.cpu" in told
    assert not any("flatness" in name or name.startswith("domains.on_demand_20.new") for name in told)


def test_a_part_is_a_way_of_serving_and_a_number() -> None:
    assert Part.parse("istiod:7000") == Part("istiod", 7_000)
    for wrong, why in (("nobody:7000", "nobody"), ("istiod", "invalid literal"), ("istiod:many", "invalid literal")):
        with pytest.raises(ValueError, match=why):
            Part.parse(wrong)


def test_the_small_matrix_needs_no_peer() -> None:
    assert SIZES["small"].peer == ()


def test_metrics_are_summed_over_their_labels() -> None:
    page = '# HELP a_total Some.\na_total{type="x"} 2.0\na_total{type="y } 1"} 3\nb 1e3\n'
    assert metrics(page) == {"a_total": 5.0, "b": 1000.0}


def test_what_was_not_counted_at_first_is_not_counted_later() -> None:
    assert Counts(5.0, 4.0, None).since(Counts(2.0, 1.0, None)) == Counts(3.0, 3.0, None)


def test_requests_are_those_of_the_api() -> None:
    ingress = HOSTING.ingress("h1", "h1.example")
    collection = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"
    assert created(ingress)[:2] == ("POST", collection)
    assert replaced(ingress)[:2] == ("PUT", f"{collection}/h1")
    assert deleted(ingress) == ("DELETE", f"{collection}/h1", b"")


@pytest.mark.parametrize("seed", range(5))
def test_weather_puts_everything_back(seed: int) -> None:
    weather = Weather(HOSTING, random.Random(seed), 10, 100)
    first = {_key(one): one for one in (*weather.backends(), *HOSTING.many(100))}
    now = dict(first)
    for turn in range(3):
        writes = [write for _ in range(10 * RATE) for write in weather.change()] + weather.restore()
        for _, what in writes:
            if isinstance(what, tuple):
                del now[what]  # Nothing is deleted twice.
            else:
                now[_key(what)] = what
        assert now == first, f"after spell {turn}"


def test_weather_leaves_the_first_domains_in_peace() -> None:
    weather = Weather(HOSTING, random.Random(1), 10, 100)
    touched = {
        what[3] if isinstance(what, tuple) else what["metadata"]["name"]
        for _ in range(2_000)
        for _, what in weather.change()
    }
    assert touched.isdisjoint({f"h{number}{end}" for number in range(10) for end in ("", "-x")})


def test_latencies_are_compared_between_the_first_third_and_the_last() -> None:
    assert thirds([1.0] * 10 + [50.0] * 10 + [3.0] * 10) == (1.0, 3.0)


def test_a_failed_request_is_wrong() -> None:
    some = [Answered(0.0, 0.005)] * 9
    assert failures(Report(kept=some, new=some), Results("weather", "10s")) == []
    (wrong,) = failures(Report(kept=some, new=some, failures=["h1 answered 503"]), Results("weather", "10s"))
    assert "h1 answered 503" in wrong


def test_visitors_who_wait_longer_in_the_end_are_wrong() -> None:
    slower = [Answered(0.0, 0.005)] * 6 + [Answered(0.0, 0.5)] * 3
    (wrong,) = failures(Report(kept=slower, new=[Answered(0.0, 0.005)] * 9), Results("weather", "10s"))
    assert "kept" in wrong


def test_the_table_has_a_column_for_each_part_and_the_peers_last() -> None:
    some = Results("domains", "full")
    some.add("domains.istiod_1000.start.cpu", 9.0, "s")
    some.add("domains.on_demand_1000.start.cpu", 2.0, "s", peer=8.0)
    some.add("domains.on_demand_100.start.cpu", 1.0, "s")
    some.add("machine.load.before", 1.0, "processes")
    assert table(some.rows) == [
        "| figure | unit | on demand, 100 | on demand, 1,000 | istiod, 1,000 |",
        "|---|---|---|---|---|",
        "| `start.cpu` | s | 1 | 2 | 8 |",
    ]
