"""Who is asked whose token it is."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from aggregator.app.reviewers import ClusterReviewer, reviewer
from aggregator.app.setting_values import ClusterSource
from aggregator.app.settings import Settings
from tests.kit.plane import write_identities
from watchers.kubernetes.remote_tokens import RemoteAccount
from watchers.kubernetes.token_reviews import Account
from xds.server.authentication import Identity

ACCOUNT = Account("shop", "cart", "cart-1", "n1", "u1")


class Known:
    """Home and the clusters beta, of a trust domain of its own, and gamma, of home's; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def home(self, token: str) -> Account | None:
        self.asked.append((token, "home"))
        return ACCOUNT if token == "of-home" else None

    async def review(self, token: str, cluster: str) -> RemoteAccount | None:
        self.asked.append((token, cluster))
        found = {("of-beta", "beta"): "beta.example", ("of-gamma", "gamma"): ""}.get((token, cluster))
        return None if found is None else RemoteAccount(ACCOUNT, found)


class Home:
    def __init__(self, known: Known) -> None:
        self.review = known.home


async def trust_domain() -> str:
    return "alpha.example"


def judge(known: Known, *, home: bool = True, remote: bool = True) -> ClusterReviewer:
    whole: Any = known
    reviews: Any = Home(known) if home else None
    return ClusterReviewer("alpha", trust_domain, reviews, whole if remote else None)


@pytest.mark.parametrize("cluster", ["", "alpha"])
async def test_a_token_of_home_is_judged_at_home_alone(cluster: str) -> None:
    known = Known()
    assert await judge(known).review("of-home", cluster) == Identity(
        "alpha.example", "shop", "cart", pod="cart-1", node="n1", pod_uid="u1"
    )
    assert await judge(known).review("of-beta", cluster) is None
    assert {place for _, place in known.asked} == {"home"}


async def test_a_token_of_a_remote_is_judged_by_that_remote_alone() -> None:
    known = Known()
    for token in ("of-home", "of-gamma"):
        assert await judge(known).review(token, "beta") is None
    found = await judge(known).review("of-beta", "beta")
    assert str(found) == "spiffe://beta.example/ns/shop/sa/cart"
    assert found is not None
    assert (found.cluster, found.pod, found.pod_uid, found.node) == ("beta", "cart-1", "u1", "n1")
    assert {place for _, place in known.asked} == {"beta"}


async def test_a_remote_that_names_no_trust_domain_is_of_homes() -> None:
    assert str(await judge(Known()).review("of-gamma", "gamma")) == "spiffe://alpha.example/ns/shop/sa/cart"


async def test_whoever_cannot_be_asked_accepts_nothing() -> None:
    known = Known()
    assert await judge(known, home=False).review("of-home", "") is None
    assert await judge(known, remote=False).review("of-beta", "beta") is None
    assert known.asked == []
    assert await judge(known, home=False).review("of-beta", "beta") is not None


class Directories:
    home_session = None
    remote_tokens = None


def settings(path: Path, **given: Any) -> Settings:
    return Settings(local=ClusterSource("alpha", path), **given)


async def test_where_all_clusters_are_directories_nobody_is_accepted_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    nobody = reviewer(settings(tmp_path), Directories(), lambda: 0.0, trust_domain)
    for cluster in ("", "alpha", "beta"):
        assert await nobody.review("of-home", cluster) is None
    assert [record.getMessage() for record in caplog.records] == ["no token of home is accepted"]


async def test_a_file_of_identities_holds_for_every_cluster_and_nobody_else_is_asked(tmp_path: Path) -> None:
    file = write_identities(tmp_path / "identities", {"t1": ("shop/cart", "n1")})
    by_file = reviewer(settings(tmp_path, identities=file), Directories(), lambda: 0.0, trust_domain)
    for cluster in ("", "alpha", "beta"):
        assert str(await by_file.review("t1", cluster)) == "spiffe://cluster.local/ns/shop/sa/cart"
        assert await by_file.review("t2", cluster) is None
