from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aggregator.cli.main import app

ARGUMENTS = {
    "--role": "ingress",
    "--xds": "isthmus.istio-system.svc:15012",
    "--root-cert": "/etc/root-cert.pem",
    "--token-file": "/var/run/token",
    "--name": "door-1",
    "--namespace": "edge",
    "--cluster": "west",
    "--bind": "127.0.0.9",
}


def command(**changed: str) -> list[str]:
    given = ARGUMENTS | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    return ["bootstrap", *(word for option in given.items() for word in option)]


def test_the_bootstrap_is_json_on_stdout() -> None:
    done = CliRunner().invoke(app, command())
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["node"]["id"] == "router~127.0.0.9~door-1.edge~edge.svc.cluster.local"


def test_it_can_be_written_to_a_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, command(output=str(tmp_path / "envoy.json")))
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert json.loads((tmp_path / "envoy.json").read_text())["node"]["cluster"] == "door-1.edge"


def test_a_file_that_cannot_be_written_is_told_with_its_reason(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, command(output=str(tmp_path / "nowhere" / "envoy.json")))
    assert done.exit_code == 2
    assert "--output" in done.stderr
    assert "No such file or directory" in done.stderr


def test_files_are_named_by_whole_paths_since_envoy_may_start_elsewhere() -> None:
    done = CliRunner().invoke(app, command(token_file="token"))
    assert f'"{Path.cwd() / "token"}"' in done.stdout


def test_a_mode_is_said_only_if_it_is_given_and_is_one_of_two() -> None:
    assert "ISTHMUS_INGRESS_MODE" not in CliRunner().invoke(app, command()).stdout
    done = CliRunner().invoke(app, command(mode="compatible"))
    assert json.loads(done.stdout)["node"]["metadata"]["ISTHMUS_INGRESS_MODE"] == "compatible"
    assert CliRunner().invoke(app, command(mode="both")).exit_code == 2


def test_the_address_of_the_pod_is_asked_for_where_it_binds_to_all_addresses() -> None:
    done = CliRunner().invoke(app, command(bind="0.0.0.0"))
    assert done.exit_code == 2
    assert "--address" in done.stderr
    done = CliRunner().invoke(app, command(bind="0.0.0.0", address="10.0.0.5"))
    assert json.loads(done.stdout)["node"]["metadata"]["INSTANCE_IPS"] == "10.0.0.5"


@pytest.mark.parametrize(
    ("option", "value", "cause"),
    [
        ("xds", "isthmus.istio-system.svc", "no port"),
        ("xds", "isthmus.istio-system.svc:0", "no port"),
        ("xds", "::1:15012", "without brackets"),
        ("admin", "0.0.0.0:15000", "other machines"),
        ("admin", "localhost:15000", "no IP address"),
        ("status", "10.0.0.5:0", "no port"),
        ("bind", "door", "no IP address"),
        ("namespace", "Edge", "no namespace"),
        ("name", "a~b", "no name of a pod"),
        ("https_port", "70000", "no port"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_names_its_option(option: str, value: str, cause: str) -> None:
    done = CliRunner().invoke(app, command(**{option: value}))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"isthmus: --{option.replace('_', '-')}: ")
    assert cause in done.stderr
    assert done.stderr.count("\n") == 1
