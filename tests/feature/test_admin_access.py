"""Who may read which page of a running control plane, over real sockets: every page, from here and from elsewhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aggregator.admin.pages import FIXED
from aggregator.cli.main import app
from tests.kit import manifests as m
from tests.kit.manifests import write_manifests
from tests.kit.pages import Page, page
from tests.kit.plane import Plane, write_identities
from tests.kit.two_clusters import TwoClusters

TOKENS = {"of-system": "istio-system/watcher", "of-ops": "ops/dashboard", "of-shop": "shop/cart"}
OPEN = ("/", "/metrics")
HERE = "127.0.0.1"
ELSEWHERE = "127.0.0.6"
"""The one address of this machine that counts as another's: sidecars pass on from it what comes from anywhere."""


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    identities = write_identities(tmp_path / "identities.json", {token: (who, "") for token, who in TOKENS.items()})
    (tmp_path / "manifests").mkdir()
    two = TwoClusters(tmp_path / "manifests")
    # What pages call alpha: a cluster, and a host.
    write_manifests(two.alpha, m.ingress("shop/front", "alpha", "cart"), file="ingress.yaml")
    async with Plane(two.alpha, two.beta, identities=identities, admin_namespaces=("ops",)) as plane:
        yield plane


async def ask(plane: Plane, path: str, source: str, token: str = "", **headers: str) -> Page:
    given = {"host": "localhost", **({"authorization": f"Bearer {token}"} if token else {}), **headers}
    return await page(plane.control.admin.port, path, source=source, headers=tuple(given.items()))


def pages(plane: Plane) -> list[str]:
    """Every page there is, those for names with one that there is."""
    return [path.replace("{name}", "alpha") for path in ("/", *FIXED, *plane.control.pages.index())]


async def test_every_page_is_for_loopback_and_for_tokens_of_some_namespaces_but_two_that_are_for_all(
    plane: Plane,
) -> None:
    asking = {
        "loopback": (HERE, "", 200),
        "loopback, by a token that is wrong": (HERE, "forged", 200),
        "elsewhere, without a token": (ELSEWHERE, "", 401),
        "elsewhere, by a token that is wrong": (ELSEWHERE, "forged", 401),
        "elsewhere, by a token of another namespace": (ELSEWHERE, "of-shop", 403),
        "elsewhere, by a token of the system namespace": (ELSEWHERE, "of-system", 200),
        "elsewhere, by a token of a namespace that was named": (ELSEWHERE, "of-ops", 200),
    }
    told = pages(plane)
    assert {"/", "/metrics", "/version", "/clusters", "/clusters/alpha", "/domains/alpha", "/findings"} <= set(told)
    for path in told:
        for who, (source, token, status) in asking.items():
            answer = await ask(plane, path, source, token)
            assert answer.status == (200 if path in OPEN else status), f"{path}: {who}"
            if answer.status in (401, 403):
                assert b"alpha" not in answer.body and b"forged" not in answer.body


async def test_no_header_makes_another_of_a_peer(plane: Plane) -> None:
    for name in ("x-forwarded-for", "forwarded", "x-real-ip"):
        assert (await ask(plane, "/clusters", ELSEWHERE, **{name: HERE})).status == 401
        assert (await ask(plane, "/clusters", HERE, **{name: "192.0.2.7"})).status == 200


async def test_what_is_open_names_no_object_of_any_cluster(plane: Plane) -> None:
    facts = [key for key, _ in plane.control.tables.facts.scan() if key[1] not in ("Cluster", "Answered")]
    names = {part for key in facts for part in key[2:] if part}
    assert {"shop", "cart"} <= names
    metrics = (await ask(plane, "/metrics", ELSEWHERE)).text
    values = set(re.findall(r'="([^"]*)"', metrics))
    assert "alpha" in values
    assert not values & names
    assert not re.findall(r"cart|shop", metrics + (await ask(plane, "/", ELSEWHERE)).text)


async def test_the_command_needs_no_token_over_loopback(plane: Plane) -> None:
    here = f"127.0.0.1:{plane.control.admin.port}"
    done = await asyncio.to_thread(CliRunner().invoke, app, ["clusters", "--admin", here, "-o", "name"])
    assert (done.exit_code, done.stdout.splitlines()) == (0, ["alpha", "beta"])
