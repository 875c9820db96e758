from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import aggregator
from aggregator.app.activations import Activations
from aggregator.app.authority import expiries
from aggregator.app.loop_watch import LoopWatch
from aggregator.app.metrics import (
    ClusterStates,
    Exposition,
    Metric,
    Readable,
    RecordCounts,
    prometheus_name,
    type_label,
)
from aggregator.app.records import Pass, Records
from aggregator.cache.table import Table
from watchers.metrics import LookupMetrics, WatchMetrics, WriteMetrics
from watchers.status import ClusterStatus, KindStatus, State
from xds.metrics import ServerMetrics, work_metrics
from xds.records import Ack, Push, StreamClosed, StreamOpened
from xds.server.authority_in_force import AuthorityInForce
from xds.server.certificate_authority import CertificateAuthority

ADDRESS = "type.googleapis.com/istio.workload.Address"


def push(type_url: str = ADDRESS, size: int = 100) -> Push:
    return Push(proxy="z", type_url=type_url, nonce="1", resources=2, removed=1, size=size, causes=(), sent_ns=0)


def ack(accepted: bool) -> Ack:
    return Ack(proxy="z", type_url=ADDRESS, nonce="1", accepted=accepted, message="", received_ns=0)


def counted(*records: object, size: int = 8192) -> dict[str, dict[tuple[str, ...], float]]:
    ring = Records(size)
    counts = RecordCounts(ring)
    for record in records:
        ring.append(record)
    return {metric.name: metric.values for metric in counts()}


def test_passes_are_counted_with_their_functions_changes_and_time() -> None:
    counts = counted(Pass(1, (), 0, 500_000_000, 10, 4, 3), Pass(2, (), 0, 250_000_000, 5, 1, 0))
    assert counts["isthmus.aggregate.passes"] == {(): 2}
    assert counts["isthmus.aggregate.functions"] == {(): 15}
    assert counts["isthmus.aggregate.changes"] == {(): 5}
    assert counts["isthmus.aggregate.published"] == {(): 3}
    assert counts["isthmus.aggregate.duration"] == {(): 0.75}


def test_pushes_are_counted_by_type_with_their_resources_and_bytes() -> None:
    counts = counted(push(), push(size=50))
    assert counts["isthmus.xds.pushes"] == {("Address",): 2}
    assert counts["isthmus.xds.push.resources"] == {("Address",): 6}
    assert counts["isthmus.xds.push"] == {("Address",): 150}


def test_acknowledgements_and_rejections_are_counted_apart() -> None:
    counts = counted(ack(True), ack(True), ack(False))
    assert (counts["isthmus.xds.acks"], counts["isthmus.xds.rejects"]) == ({("Address",): 2}, {("Address",): 1})


def test_open_streams_are_a_gauge() -> None:
    opened = StreamOpened(proxy="z", peer="10.0.0.1:1", kind="delta", at_ns=0)
    closed = StreamClosed(proxy="z", peer="10.0.0.1:1", kind="delta", at_ns=1, reason="eof")
    counts = counted(opened, opened, closed)
    assert (counts["isthmus.xds.streams"], counts["isthmus.xds.streams.opened"]) == ({("delta",): 1}, {("delta",): 2})


def test_nothing_is_lost_when_nobody_asks_for_longer_than_the_ring_lasts() -> None:
    counts = counted(*[push() for _ in range(1000)], size=16)
    assert counts["isthmus.xds.pushes"] == {("Address",): 1000}
    assert counts["isthmus.records.missed"] == {(): 0}


def test_types_that_only_a_client_knows_make_no_series_of_their_own() -> None:
    counts = counted(*[push(f"type.googleapis.com/evil.Type{number}") for number in range(50)])
    assert counts["isthmus.xds.pushes"] == {("other",): 50}


@pytest.mark.parametrize(
    ("type_url", "label"),
    [(ADDRESS, "Address"), ("type.googleapis.com/envoy.config.cluster.v3.Cluster", "Cluster"), ("", "other")],
)
def test_known_types_have_short_names(type_url: str, label: str) -> None:
    assert type_label(type_url) == (label,)


def shown(*statuses: ClusterStatus) -> dict[str, dict[tuple[str, ...], float]]:
    return {metric.name.removeprefix("isthmus.cluster."): metric.values for metric in ClusterStates(lambda: statuses)()}


@pytest.mark.parametrize("state", get_args(State))
def test_a_cluster_has_one_state_of_all_there_are(state: State) -> None:
    states = shown(ClusterStatus("west", False, state))["state"]
    label = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", state).lower()
    assert [labels for labels, value in states.items() if value] == [("west", label)]
    assert len(states) == 7


def test_a_cluster_that_left_has_no_series_any_more() -> None:
    west, east = ClusterStatus("west", True, "Synced"), ClusterStatus("east", False, "Synced")
    assert {labels[0] for labels in shown(west, east)["state"]} == {"west", "east"}
    assert {labels[0] for labels in shown(west)["state"]} == {"west"}


def test_only_a_cluster_that_was_read_has_a_lag() -> None:
    read, unread = ClusterStatus("west", True, "Stale", lag=94.0), ClusterStatus("east", False, "Connecting")
    assert shown(read, unread)["lag"] == {("west",): 94.0}


def test_credentials_that_end_are_shown_with_their_end() -> None:
    status = ClusterStatus("west", True, "Synced", token_expires=10.0, server_certificate_expires=20.0)
    assert shown(status)["credential.expiry.timestamp"] == {("west", "token"): 10.0, ("west", "server_cert"): 20.0}


def test_objects_are_counted_by_kind() -> None:
    kinds = (KindStatus("Pod", "synced", objects=7), KindStatus("Node", "denied"))
    assert shown(ClusterStatus("west", True, "Synced", kinds=kinds))["objects"] == {
        ("west", "Pod"): 7,
        ("west", "Node"): 0,
    }


@pytest.mark.parametrize(
    ("unit", "name"), [("s", "isthmus_a_b_seconds"), ("By", "isthmus_a_b_bytes"), ("", "isthmus_a_b")]
)
def test_prometheus_sees_units_in_names(unit: str, name: str) -> None:
    assert prometheus_name(Metric(name="isthmus.a.b", kind="gauge", help="h", unit=unit)) == name


def test_metrics_of_packages_that_may_not_import_ours_are_read_all_the_same() -> None:
    class Theirs:
        name, kind, unit, help, labels = "isthmus.watch.events", "counter", "", "Events.", ("cluster",)
        values = {("west",): 3}  # noqa: RUF012

    text, _ = Exposition([lambda: [Theirs()]], "1").render("")  # type: ignore[list-item]
    assert b'# TYPE isthmus_watch_events_total counter\nisthmus_watch_events_total{cluster="west"} 3.0\n' in text


def test_label_values_are_escaped() -> None:
    hostile = Metric(name="isthmus.a", kind="gauge", help="h", labels=("l",), values={('x"\n} 1\nfake 2',): 1})
    text, _ = Exposition([lambda: [hostile]], "1").render("")
    assert b'isthmus_a{l="x\\"\\n} 1\\nfake 2"} 1.0\n' in text


def test_the_build_and_the_process_are_told_too() -> None:
    text, _ = Exposition([], "1.2.3").render("")
    assert b'isthmus_build_info{version="1.2.3"} 1.0\n' in text
    assert b"process_resident_memory_bytes " in text
    assert b"python_gc_collections_total{" in text


def every_metric() -> list[Readable]:
    watchers = (*WatchMetrics().all(), *LookupMetrics().all(), *WriteMetrics().all())
    authority = list(expiries(AuthorityInForce(CertificateAuthority.self_signed("cluster.local"))))
    server: list[Readable] = [*ServerMetrics().all(), *authority]
    domains: list[Readable] = [*Activations(Table("interest"), Records()).metrics(), *work_metrics()]
    return [*RecordCounts(Records())(), *ClusterStates(list)(), *watchers, *LoopWatch().metrics(), *server, *domains]


def test_every_metric_has_a_help_text_and_a_name_of_its_own() -> None:
    metrics = every_metric()
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert metric.name.startswith("isthmus.")
        assert metric.help.endswith(".")


def test_the_operations_guide_lists_every_metric_and_no_other() -> None:
    guide = (Path(aggregator.__file__).parents[1] / "docs" / "operations.md").read_text()
    listed = set(re.findall(r"^\| `(isthmus_\w+)` \|", guide, re.MULTILINE))
    metrics = every_metric()
    ours = {prometheus_name(metric) + ("_total" if metric.kind == "counter" else "") for metric in metrics}
    assert listed == ours | {"isthmus_build_info"}
