"""What suites of this directory need besides the tests' kit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import envoy


@pytest.fixture(scope="session")
def binary() -> Path:
    """An Envoy."""
    try:
        return envoy.binary()
    except envoy.EnvoyUnavailable as error:
        pytest.skip(str(error))
