"""What a ztunnel is told equals the peer's record, but for the improvements declared beside each case."""

from __future__ import annotations

import pytest

from tests.kit import golden
from tests.kit.world import world_of

CASES = [name for name in golden.names() if "ztunnel" in golden.load(name).compared]


@pytest.mark.parametrize("name", CASES)
def test_addresses_equal_the_record_apart_from_declared_improvements(name: str) -> None:
    scenario = golden.load(name)
    comparison = golden.compare(
        {"address": world_of(scenario).addresses()}, scenario.record("ztunnel"), scenario.improvements
    )
    assert comparison.clean, f"\n{comparison.report()}"
