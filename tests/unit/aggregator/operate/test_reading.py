from __future__ import annotations

from typing import Any, Literal

import pytest

from aggregator.operate.cluster_list import Cluster, Kind
from aggregator.operate.reading import stages
from tests.kit.clusters import cluster, kind, unread


def told(one: Cluster) -> str:
    return " | ".join(f"{stage.name} {stage.state} {stage.detail}".rstrip() for stage in stages(one))


def connecting(reason: str, **fields: Any) -> Cluster:
    return cluster(state="Connecting", reason=reason, lag=None, kinds=(unread("Service"), unread("Pod")), **fields)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("Name or service not known", "dns FAIL"),
        ("Temporary failure in name resolution", "dns FAIL"),
        ("Connection refused", "dns ok | tcp FAIL"),
        ("Connect call failed ('10.9.0.4', 6443)", "dns ok | tcp FAIL"),
        ("no connection within the time given to it", "dns ok | tcp/tls FAIL"),
        ("its certificate was refused: certificate has expired", "dns ok | tcp ok | tls FAIL"),
        ("401 Unauthorized", "dns ok | tcp ok | tls ok | auth FAIL"),
    ],
)
def test_a_reason_tells_where_reading_stops_and_what_came_before(reason: str, shown: str) -> None:
    assert told(connecting(reason)) == f"{shown} {reason}"


def test_an_address_needs_no_name_to_be_found() -> None:
    assert told(connecting("Connection refused", server="10.9.0.4:6443")) == "tcp FAIL Connection refused"
    assert told(connecting("Connection refused", server="[fd00::1]:6443")) == "tcp FAIL Connection refused"


def test_tls_is_not_said_to_be_well_where_no_certificate_was_seen() -> None:
    shown = told(connecting("401 Unauthorized", server_certificate_expires=None))
    assert shown == "dns ok | tcp ok | tls unknown | auth FAIL 401 Unauthorized"


def test_silence_leaves_open_where_it_is() -> None:
    shown = told(connecting("nothing was heard for too long"))
    assert shown == "dns unknown | tcp unknown | tls unknown | answer FAIL nothing was heard for too long"


@pytest.mark.parametrize("reason", ["503 ServiceUnavailable", "the API server answers 503"])
def test_an_answer_that_is_no_good_one_has_come_over_a_connection_that_is(reason: str) -> None:
    assert told(connecting(reason)).startswith("dns ok | tcp ok | tls ok | auth unknown")


@pytest.mark.parametrize(
    ("state", "reason", "shown"),
    [
        ("Stale", "no answer for 1.2 s", "answer FAIL no answer for 1.2 s"),
        ("Stale", "the API server cannot be reached: Connection refused", "dns ok | tcp FAIL"),
        ("Denied", "401 Unauthorized: the API server does not accept the credential", "tls ok | auth FAIL 401"),
    ],
)
def test_what_is_wrong_with_the_server_counts_for_more_than_what_kinds_said_last(
    state: Literal["Stale", "Denied"], reason: str, shown: str
) -> None:
    assert shown in told(cluster(state=state, reason=reason))


def test_kinds_that_may_not_be_read_are_counted_and_named() -> None:
    kinds = (kind("Pod"), unread("Gateway", "denied", "403 Forbidden"))
    assert told(cluster(kinds=kinds)) == (
        "dns ok | tcp ok | tls ok | auth ok | rbac FAIL 1/2 Gateway: 403 Forbidden | list ok 1/1 | watch ok 1/1"
    )


def test_where_nothing_may_be_read_the_credential_is_good_all_the_same() -> None:
    kinds = (unread("Pod", "denied", "403 Forbidden"), unread("Service", "denied", "403 Forbidden"))
    denied = cluster(state="Denied", reason="Pod: 403 Forbidden; Service: 403 Forbidden", kinds=kinds)
    assert told(denied).startswith("dns ok | tcp ok | tls ok | auth ok | rbac FAIL 0/2 ")


def test_a_list_that_fails_is_told_from_a_watch_that_does() -> None:
    kinds = (kind("Pod"), unread("Service", "stale", "500 InternalError"), kind("Node", "stale", "timed out"))
    assert told(cluster(kinds=kinds)).endswith(
        "list FAIL 2/3 Service: 500 InternalError | watch FAIL 1/2 Node: timed out"
    )


@pytest.mark.parametrize("kinds", [(), (kind("Pod", "absent"),), (unread("Pod"),)])
def test_whatever_kinds_there_are_stages_are_told(kinds: tuple[Kind, ...]) -> None:
    assert [stage.name for stage in stages(cluster(kinds=kinds))][-4:] == ["auth", "rbac", "list", "watch"]


def test_directories_and_removed_clusters_have_no_stages() -> None:
    assert stages(cluster(server="")) == stages(cluster(state="Removed")) == []
