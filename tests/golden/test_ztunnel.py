"""What a ztunnel is told, case by case: held to the peer's record and to our own of the last time.

`make golden` writes our own records (cases/<name>/isthmus/ztunnel.json) anew and removes those of cases that are gone;
the change is then reviewed like any other.
"""

from __future__ import annotations

import json
import os

import pytest

from aggregator.views import ztunnel
from tests.kit import golden
from tests.kit.world import world_of

CASES = [name for name in golden.names() if "ztunnel" in golden.load(name).compared]


@pytest.mark.parametrize("name", CASES)
def test_what_ztunnels_are_told_equals_the_peers_record_apart_from_declared_improvements(name: str) -> None:
    scenario = golden.load(name)
    world = world_of(scenario)
    ours = {"address": world.addresses(), "authorization": world.told(ztunnel.AUTHORIZATIONS)}
    comparison = golden.compare(ours, scenario.record("ztunnel"), scenario.improvements_of("ztunnel"))
    assert comparison.clean, f"\n{comparison.report()}"


@pytest.mark.parametrize("name", CASES)
def test_what_ztunnels_are_told_findings_and_versions_equal_our_own_record(name: str) -> None:
    scenario = golden.load(name)
    world = world_of(scenario)
    ours = {
        "address": world.addresses(),
        "authorization": world.told(ztunnel.AUTHORIZATIONS),
        "findings": [str(finding) for finding in world.findings()],
        "versions": world.versions() | world.versions(ztunnel.AUTHORIZATIONS),
    }
    path = scenario.directory / "isthmus" / "ztunnel.json"
    text = json.dumps(ours, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("ISTHMUS_GOLDEN") == "rewrite":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_our_own_records_are_of_cases_that_are_compared() -> None:
    kept = {path.parents[1].name: path for path in golden.CASES.glob("*/isthmus/ztunnel.json")}
    orphans = [path for name, path in kept.items() if name not in CASES]
    if os.environ.get("ISTHMUS_GOLDEN") == "rewrite":
        for path in orphans:
            path.unlink()
    assert orphans == [] or os.environ.get("ISTHMUS_GOLDEN") == "rewrite"
