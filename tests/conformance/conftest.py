"""What suites of this directory need besides the tests' kit."""

from __future__ import annotations

from tests.kit.envoy_fixtures import binary

__all__ = ["binary"]
