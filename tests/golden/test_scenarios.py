"""Scenarios of the ambient mesh, step by step: exactly what is sent, no more and no less, and where istiod differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import golden, scenarios

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"


@pytest.mark.parametrize("name", scenarios.names())
def test_every_step_of_a_scenario_sends_what_it_should_and_nothing_else(name: str) -> None:
    for step, told in scenarios.follow(scenarios.load(name)):
        sent = {"addresses": told.addresses, "policies": told.policies}
        comparison = golden.compare(sent, {"addresses": step.addresses, "policies": step.policies})
        assert comparison.clean, f"{step.does}\n{comparison.report()}"
        assert told.findings == list(step.findings), step.does


@pytest.mark.parametrize("name", scenarios.names())
def test_where_istiod_is_said_to_differ_it_does(name: str) -> None:
    for step, told in scenarios.follow(scenarios.load(name)):
        for one in step.differs:
            assert one.reason.strip()
            assert scenarios.value_at(told.held.get(one.resource), one.path) != one.istiod, f"{step.does} {one}"


def test_every_scenario_and_every_difference_is_in_the_document() -> None:
    expected = []
    for name in scenarios.names():
        scenario = scenarios.load(name)
        reasons = dict.fromkeys(one.reason for step in scenario.steps for one in step.differs)
        expected.append(f"| {name} | {scenario.about} | {' '.join(reasons) or 'none'} |")
    section = DOCUMENT.read_text().split("### Scenarios", 1)[1].split("\n### ", 1)[0]
    assert [line for line in section.splitlines() if line.startswith("| ") and line[2].isdigit()] == expected
