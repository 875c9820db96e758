"""Fixtures of suites that need a real Envoy: import what is wanted into their conftest.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import envoy


@pytest.fixture(scope="session")
def binary() -> Path:
    """An Envoy; without one tests are skipped, with the reason."""
    try:
        return envoy.binary()
    except envoy.EnvoyUnavailable as error:
        pytest.skip(str(error))
