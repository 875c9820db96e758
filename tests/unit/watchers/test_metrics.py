"""Rules of `watchers.metrics`."""

from __future__ import annotations

from watchers.metrics import WatchMetrics


def test_numbers_are_kept_by_the_values_of_the_labels() -> None:
    metrics = WatchMetrics()
    metrics.events.add("west", "Pod")
    metrics.events.add("west", "Pod", amount=3)
    metrics.heard.set("west", "Pod", value=7.5)
    assert metrics.events.values == {("west", "Pod"): 4}
    assert metrics.heard.values == {("west", "Pod"): 7.5}


def test_a_cluster_that_is_gone_leaves_no_series() -> None:
    metrics = WatchMetrics()
    metrics.restarts.add("west", "gone")
    metrics.restarts.add("east", "gone")
    metrics.forget("west")
    assert metrics.restarts.values == {("east", "gone"): 1}


def test_no_process_shares_its_numbers_with_another() -> None:
    WatchMetrics().restarts.add("west", "gone")
    assert WatchMetrics().restarts.values == {}


def test_every_metric_says_what_it_is_and_has_a_name_of_its_own() -> None:
    metrics = WatchMetrics().all()
    assert len({metric.name for metric in metrics}) == len(metrics)
    assert all(metric.help.endswith(".") and metric.labels[0] == "cluster" for metric in metrics)
