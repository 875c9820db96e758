"""Scenarios: what is written wrong is refused with its place, and what is looked up is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import scenarios


def test_a_field_that_there_is_not_is_refused_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "SCENARIOS", tmp_path)
    (tmp_path / "wrong.yaml").write_text("about: x\nsteps: [{does: y, adresses: {}}]\n")
    with pytest.raises(ValueError, match=r"wrong.yaml.*adresses"):
        scenarios.load("wrong")


def test_bases_of_scenarios_exist() -> None:
    assert {scenarios.load(name).base for name in scenarios.names()} - {""} <= set(scenarios.names())


def test_a_place_is_looked_for_inside_the_workload_or_service() -> None:
    resource = {"workload": {"services": {"shop/cart": {"ports": [1]}}}}
    assert scenarios.value_at(resource, "services[shop/cart].ports") == [1]
    assert scenarios.value_at(resource, "capacity") is None
    assert scenarios.value_at(resource, "") == resource
    assert scenarios.value_at(None, "") is None
    assert scenarios.value_at({"name": "deny"}, "name") == "deny"
