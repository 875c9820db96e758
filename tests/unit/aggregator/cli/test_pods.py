from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from aggregator.cli.main import app
from aggregator.operate.cluster_list import ClusterList
from tests.kit.clusters import cluster
from tests.kit.kubeconfigs import kubeconfig
from watchers.kubernetes.operator_access import Operator
from watchers.kubernetes.pod_pages import PodPage


@pytest.fixture
def pods(monkeypatch: pytest.MonkeyPatch) -> list[PodPage]:
    """What the pods of namespace mesh answer."""
    answers: list[PodPage] = []

    async def pages(_there: Operator, namespace: str, _path: str) -> list[PodPage]:
        assert namespace == "mesh"
        return answers

    monkeypatch.setattr("aggregator.cli.pods.pod_pages", pages)
    return answers


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "config"
    file.write_bytes(kubeconfig("http://127.0.0.1:1"))
    return str(file)


def test_all_pods_of_a_control_plane_are_asked_through_their_cluster(pods: list[PodPage], config: str) -> None:
    pods += [
        PodPage(name, 200, msgspec.json.encode(ClusterList(items=(cluster("west", replica=name),))))
        for name in ("isthmus-0", "isthmus-1")
    ]
    done = CliRunner().invoke(app, ["clusters", "--no-headers", "--kubeconfig", config, "-n", "mesh"])
    assert done.exit_code == 0, done.stderr
    assert [line.split()[-2] for line in done.stdout.splitlines()] == ["isthmus-0", "isthmus-1"]


def test_a_pod_that_cannot_be_asked_is_told_beside_the_others(pods: list[PodPage], config: str) -> None:
    pods += [
        PodPage("isthmus-0", 200, msgspec.json.encode(ClusterList(items=(cluster("west"),)))),
        PodPage("isthmus-1", problem="cannot ask pod isthmus-1: it is forbidden"),
    ]
    done = CliRunner().invoke(app, ["clusters", "--no-headers", "--kubeconfig", config, "-n", "mesh"])
    assert (done.exit_code, len(done.stdout.splitlines())) == (69, 1)
    assert done.stderr == "isthmus: cannot ask pod isthmus-1: it is forbidden\n"


def test_a_kubeconfig_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["clusters", "--kubeconfig", str(tmp_path / "nowhere")])
    assert (done.exit_code, done.stdout) == (65, "")
    assert done.stderr.startswith("isthmus: --kubeconfig: there is no ")
    assert done.stderr.count("\n") == 1
