"""When absence from a view means anything: once every cluster has been read, or was waited for long enough."""

from __future__ import annotations

import pytest

from aggregator.pipeline import SETTLED
from tests.kit.world import World


def completeness(state: str, *, unconfirmed: float = 0.0, waited: float = 0.0, cluster: str = "beta") -> set[str]:
    """How complete views are while a cluster beside home, which is read, is in a state; its limit is after 30 s."""
    world = World()
    world.cluster("alpha")
    world.cluster(cluster, state, deadline=world.now + 30.0, unconfirmed=unconfirmed)
    world.step()
    world.wait(waited)
    return set(world.published.get(SETTLED, {}).values())


@pytest.mark.parametrize("state", ["connecting", "syncing", "denied"])
def test_a_cluster_that_was_not_read_leaves_views_partial_until_its_limit(state: str) -> None:
    assert completeness(state, waited=29.9) == {"partial"}
    assert completeness(state, waited=30.0) == {"settled"}


@pytest.mark.parametrize("state", ["synced", "stale"])
def test_a_cluster_that_was_read_settles_views(state: str) -> None:
    assert completeness(state) == {"settled"}


def test_a_cluster_that_was_read_and_is_refused_now_unsettles_nothing() -> None:
    assert completeness("denied", unconfirmed=1_000.0) == {"settled"}


@pytest.mark.parametrize("state", ["connecting", "syncing", "denied"])
def test_nobody_is_told_anything_before_home_is_read_however_long_that_takes(state: str) -> None:
    assert completeness(state, waited=1e6, cluster="alpha") == set()
