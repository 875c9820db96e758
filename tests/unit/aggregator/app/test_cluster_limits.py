"""A cluster past its limit is told once in the log, and again when what is done about it changes."""

from __future__ import annotations

import logging

import pytest

from aggregator.app.cluster_limits import ClusterLimits
from aggregator.cache.table import Table
from aggregator.mesh.standing import PastLimit
from watchers.facts.keys import ObjectKey

MESA = ("mesa", "Cluster", "", "mesa")


@pytest.fixture
def table() -> Table[ObjectKey, PastLimit]:
    return Table("clusters past their limit")


def test_each_step_is_one_line_that_says_what_it_does(
    table: Table[ObjectKey, PastLimit], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    limits = ClusterLimits(table)
    table.apply([(MESA, PastLimit("reduced", 10.0))])
    table.apply([(MESA, PastLimit("reduced", 10.0))])
    table.apply([(MESA, PastLimit("withdrawn", 10.0))])
    assert set(limits.past) == {"mesa"}
    table.apply([(MESA, None)])
    assert set(limits.past) == set()
    assert [(record.levelname, record.message, record.__dict__.get("effect")) for record in caplog.records] == [
        ("WARNING", "cluster past its limit", "its endpoints behind gateways count half"),
        ("WARNING", "cluster past its limit", "its endpoints are withdrawn"),
        ("INFO", "cluster within its limit again", None),
    ]


def test_what_was_past_its_limit_before_is_known_at_once(table: Table[ObjectKey, PastLimit]) -> None:
    table.apply([(MESA, PastLimit("full", 10.0))])
    assert set(ClusterLimits(table).past) == {"mesa"}
