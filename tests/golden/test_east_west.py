"""What an east-west gateway is told, case by case.

As an istio-proxy it is held to the peer's record; as a stock Envoy there is no peer, and all that can be held to is our
own record of the last time. `make golden` writes our own records (cases/<name>/isthmus/eastwest.json) anew and removes
those of cases that are gone.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from aggregator.views import east_west_gateway
from aggregator.views.view import View
from tests.kit import golden
from tests.kit.world import World, world_of
from xds.messages.hbone import Profile

KIND = "eastwest"
CASES = [name for name in golden.names() if KIND in golden.load(name).compared]
SECTIONS = ("cds", "eds", "lds")


def views_of(scenario: golden.Scenario, profile: Profile) -> dict[str, View]:
    """By section, what the scenario's gateway would be told with a proxy of this profile."""
    probe = scenario.probes[KIND]
    found = {
        section: east_west_gateway.view_of(
            golden.TYPE_URLS[section],
            gateway=f"{probe['namespace']}/{probe['gateway']}",
            bind="0.0.0.0",
            network=probe["network"],
            profile=profile,
        )
        for section in SECTIONS
    }
    return {section: view for section, view in found.items() if view is not None}


def gateway_world(scenario: golden.Scenario) -> World:
    """The scenario's world with both kinds of gateways in it."""
    world = world_of(scenario)
    world.ask(*(view for profile in Profile for view in views_of(scenario, profile).values()))
    world.step()
    return world


def told(world: World, views: dict[str, View]) -> dict[str, dict[str, Any]]:
    return {section: world.told(view) for section, view in views.items()}


@pytest.mark.parametrize("name", CASES)
def test_an_istio_proxy_is_told_what_the_peer_tells_it_apart_from_declared_improvements(name: str) -> None:
    scenario = golden.load(name)
    ours = told(gateway_world(scenario), views_of(scenario, Profile.ISTIO))
    comparison = golden.compare(ours, scenario.record(KIND), scenario.improvements_of(KIND))
    assert comparison.clean, f"\n{comparison.report()}"


@pytest.mark.parametrize("name", CASES)
def test_both_profiles_findings_and_versions_equal_our_own_record(name: str) -> None:
    scenario = golden.load(name)
    world = gateway_world(scenario)
    ours: dict[str, Any] = {"findings": [str(finding) for finding in world.findings()], "versions": {}}
    for profile in Profile:
        views = views_of(scenario, profile)
        ours[profile.value] = told(world, views)
        ours["versions"][profile.value] = {section: world.versions(view) for section, view in views.items()}
    path = scenario.directory / "isthmus" / f"{KIND}.json"
    text = json.dumps(ours, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("ISTHMUS_GOLDEN") == "rewrite":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_our_own_records_are_of_cases_that_are_compared() -> None:
    kept = {path.parents[1].name: path for path in golden.CASES.glob(f"*/isthmus/{KIND}.json")}
    orphans = [path for name, path in kept.items() if name not in CASES]
    if os.environ.get("ISTHMUS_GOLDEN") == "rewrite":
        for path in orphans:
            path.unlink()
    assert orphans == [] or os.environ.get("ISTHMUS_GOLDEN") == "rewrite"
