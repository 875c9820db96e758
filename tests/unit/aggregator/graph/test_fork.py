"""A fork tries a change: it tells what the next pass would, and its base never hears of it."""

from __future__ import annotations

import pytest

from aggregator.graph import GraphError
from tests.kit.toy_graph import Cluster, Pod, ToyMesh, cluster_contents, run, snapshot


@pytest.fixture
def mesh() -> ToyMesh:
    mesh = ToyMesh()
    run(mesh.graph, cluster_contents(mesh, "west") | {mesh.views: {"v": ("all",)}}, 10.0)
    return mesh


def test_a_fork_publishes_what_the_next_pass_does(mesh: ToyMesh) -> None:
    inputs = cluster_contents(mesh, "east") | {mesh.clusters: {"west": Cluster("red")}}
    tried = run(mesh.graph.fork(), inputs, 20.0)
    assert tried.published
    assert tried == run(mesh.graph, inputs, 20.0)


def test_a_fork_leaves_its_base_as_it_was(mesh: ToyMesh) -> None:
    before, counters = snapshot(mesh.graph), dict(mesh.graph.withheld)
    fork = mesh.graph.fork()
    run(fork, {source: dict.fromkeys(mesh.graph.values(source)) for source in mesh.sources}, 1e12)
    assert snapshot(mesh.graph) == before
    assert mesh.graph.withheld == counters
    assert mesh.graph.now == 10.0
    assert mesh.graph.next_moment() == 1e9


def test_a_fork_can_run_several_passes(mesh: ToyMesh) -> None:
    fork = mesh.graph.fork()
    before = snapshot(fork)
    joined = cluster_contents(mesh, "east")
    run(fork, joined)
    run(fork, {source: dict.fromkeys(changes) for source, changes in joined.items()})
    assert snapshot(fork) == before


def test_a_fork_costs_only_the_change(mesh: ToyMesh) -> None:
    done = run(mesh.graph.fork(), {mesh.pods: {("west", "pod-0"): Pod("web", "node-1", ready=False)}})
    assert done.evaluated < 10


def test_a_graph_is_forked_between_passes_only(mesh: ToyMesh) -> None:
    mesh.graph.begin({})
    with pytest.raises(GraphError, match="fork between passes"):
        mesh.graph.fork()


def test_a_fork_is_of_no_use_once_its_base_has_moved_on(mesh: ToyMesh) -> None:
    fork, other = mesh.graph.fork(), mesh.graph.fork()
    other.begin({mesh.views: {"v": None}})
    run(mesh.graph, {})
    with pytest.raises(GraphError, match="fork it again"):
        fork.begin({})
    with pytest.raises(GraphError, match="fork it again"):
        other.run()


def test_a_failed_fork_does_not_break_its_base(mesh: ToyMesh) -> None:
    fork = mesh.graph.fork()
    with pytest.raises(GraphError):
        fork.begin({mesh.hosts: {}})
    fork.begin({mesh.clusters: {"west": None}})
    fork.run(2)
    assert run(mesh.graph, {mesh.views: {"w": ("all",)}}).published
