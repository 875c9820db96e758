"""The graph under any changes: what it holds depends on what there is, never on how that came about."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.graph import Graph, Source
from aggregator.graph.fork import Overlay
from aggregator.graph.queries import reached
from tests.kit.toy_graph import (
    Cluster,
    Inputs,
    Pod,
    Service,
    Tables,
    ToyMesh,
    cluster_contents,
    random_inputs,
    run,
    snapshot,
)

CLUSTERS, NODES, APPS = ("west", "east"), ("n", "m"), ("web", "api", "broken")


class Step(NamedTuple):
    """One pass: changes as (source, key, value), the seconds since the last pass, and the size of its slices."""

    changes: list[tuple[str, Hashable, Any]]
    later: int
    budget: int | None


def change(source: str, keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(source), keys, st.none() | values)


CLUSTER = st.sampled_from(CLUSTERS)
CHANGES = st.one_of(
    change(
        "clusters",
        CLUSTER,
        st.builds(Cluster, st.sampled_from(["red", "blue", "nowhere"]), st.booleans(), st.integers(0, 8).map(float)),
    ),
    change("nodes", st.tuples(CLUSTER, st.sampled_from(NODES)), st.sampled_from(["zone-a", "zone-b"])),
    change(
        "pods",
        st.tuples(CLUSTER, st.sampled_from("pqr")),
        st.builds(Pod, st.sampled_from(APPS), st.sampled_from(NODES), st.booleans()),
    ),
    change(
        "services",
        st.tuples(CLUSTER, st.sampled_from(["web", "api"])),
        st.builds(
            Service,
            st.sampled_from(APPS),
            st.lists(st.sampled_from("abc"), max_size=3).map(tuple),
            st.sampled_from(["", "bad", "good", "better"]),
        ),
    ),
    change(
        "views",
        st.sampled_from(["v", "w", "blind", "broken"]),
        st.lists(st.sampled_from(["all", "red", "blue"]), max_size=3).map(tuple),
    ),
)
STEPS = st.lists(
    st.builds(Step, st.lists(CHANGES, max_size=8), st.integers(0, 3), st.none() | st.integers(1, 9)), max_size=12
)


def inputs_of(mesh: ToyMesh, changes: list[tuple[str, Hashable, Any]]) -> Inputs:
    inputs: Inputs = {}
    for name, key, value in changes:
        inputs.setdefault(getattr(mesh, name), {})[key] = value
    return inputs


def play(mesh: ToyMesh, steps: list[Step]) -> Tables:
    tables = Tables()
    now = 0
    for step in steps:
        now += step.later
        tables.apply(run(mesh.graph, inputs_of(mesh, step.changes), float(now), step.budget))
    return tables


def rebuilt(mesh: ToyMesh) -> tuple[ToyMesh, Tables]:
    """Another graph that is given all that `mesh` holds at once: its sources and what its latch keeps."""
    other, tables = ToyMesh(), Tables()
    inputs: Inputs = {
        other_source: dict(mesh.graph.values(source))
        for source, other_source in zip(mesh.sources, other.sources, strict=True)
    }
    inputs[other.graph.kept(other.certificates)] = mesh.kept()
    tables.apply(run(other.graph, inputs, mesh.graph.now))
    return other, tables


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_incremental_equals_rebuilt_reads_included(steps: list[Step]) -> None:
    mesh = ToyMesh()
    tables = play(mesh, steps)
    other, expected = rebuilt(mesh)
    assert snapshot(mesh.graph) == snapshot(other.graph)
    assert tables.filled() == expected.filled()
    assert mesh.graph.next_moment() == other.graph.next_moment()


@given(STEPS, st.lists(CHANGES, max_size=8), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_a_fork_publishes_what_the_next_pass_does_and_leaves_its_base_alone(
    steps: list[Step], changes: list[tuple[str, Hashable, Any]], later: int
) -> None:
    mesh = ToyMesh()
    play(mesh, steps)
    graph, inputs = mesh.graph, inputs_of(mesh, changes)
    before, moment = snapshot(graph), graph.next_moment()
    fork = graph.fork()
    tried = run(fork, inputs, graph.now + later, budget=3)
    assert (snapshot(graph), graph.next_moment()) == (before, moment)
    done = run(graph, inputs, graph.now + later)
    assert tried == done
    assert snapshot(fork) == snapshot(graph)
    assert fork.next_moment() == graph.next_moment()


@given(STEPS, st.lists(CHANGES, max_size=10), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_inputs_within_a_pass_does_not_matter(
    steps: list[Step], changes: list[tuple[str, Hashable, Any]], choice: random.Random
) -> None:
    passes, snapshots = [], []
    for shuffled in (False, True):
        mesh = ToyMesh()
        play(mesh, steps)
        inputs = inputs_of(mesh, changes)
        if shuffled:
            sources = list(inputs)
            choice.shuffle(sources)
            inputs = {
                source: dict(choice.sample(sorted(inputs[source].items()), len(inputs[source]))) for source in sources
            }
        passes.append(run(mesh.graph, inputs).published)
        snapshots.append(snapshot(mesh.graph))
    assert passes[0] == passes[1]
    assert snapshots[0] == snapshots[1]


@given(STEPS, CHANGES)
@settings(max_examples=100, deadline=None)
def test_whatever_the_change_of_a_source_item_changes_is_reached(
    steps: list[Step], one: tuple[str, Hashable, Any]
) -> None:
    mesh = ToyMesh()
    play(mesh, steps)
    source, key = getattr(mesh, one[0]), one[1]
    fork = mesh.graph.fork()
    done = run(fork, inputs_of(mesh, [one]))
    found = reached(mesh.graph, source, key, after=fork)
    for name, changes in done.published.items():
        if name != "findings":
            assert set(changes) <= found.get(name, set()), name


@given(STEPS)
@settings(max_examples=30, deadline=None)
def test_nothing_is_told_of_items_that_are_gone(steps: list[Step]) -> None:
    mesh = ToyMesh()
    tables = play(mesh, steps)
    empty = snapshot(ToyMesh().graph)
    everything: Inputs = {source: dict.fromkeys(mesh.graph.values(source)) for source in mesh.sources}
    everything[mesh.graph.kept(mesh.certificates)] = dict.fromkeys(mesh.kept())
    tables.apply(run(mesh.graph, everything))
    assert snapshot(mesh.graph) == empty
    assert not tables.filled()
    assert mesh.graph.next_moment() is None


@given(st.lists(st.dictionaries(st.integers(0, 4), st.none() | st.text("ab", max_size=2), max_size=5), max_size=8))
@settings(max_examples=100, deadline=None)
def test_of_many_that_produce_one_key_the_first_has_it(passes: list[dict[int, str | None]]) -> None:
    graph = Graph()
    words: Source[int, str] = graph.source("words")
    letters = graph.expand("letters", words, lambda at, key, word: ((letter, key) for letter in dict.fromkeys(word)))
    present: dict[int, str] = {}
    for changes in passes:
        run(graph, {words: changes})
        present = {key: word for key, word in {**present, **changes}.items() if word is not None}
        assert graph.values(letters) == {
            letter: min(key for key, word in present.items() if letter in word)
            for letter in set("".join(present.values()))
        }


def test_joins_and_leaves_of_a_cluster_leave_nothing_behind() -> None:
    mesh = ToyMesh()
    run(mesh.graph, cluster_contents(mesh, "home") | {mesh.views: {"v": ("all",), "w": ("blue",)}}, 100.0)
    before = snapshot(mesh.graph)

    def join_and_leave(times: range) -> None:
        for i in times:
            joined = cluster_contents(mesh, "remote", now=float(i))
            run(mesh.graph, joined, float(i))
            run(mesh.graph, {source: dict.fromkeys(changes) for source, changes in joined.items()}, i + 0.5)

    join_and_leave(range(100, 300))
    tracemalloc.start()
    try:
        gc.collect()
        start = tracemalloc.get_traced_memory()[0]
        join_and_leave(range(300, 1_300))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - start
    finally:
        tracemalloc.stop()
    assert snapshot(mesh.graph) == before
    assert len(mesh.graph.moments) < 50
    assert grown < 20_000


def test_nothing_depends_on_the_seed_of_hashes() -> None:
    def digest(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "tests.kit.toy_graph"]
        root = Path(__file__).parents[2]
        return subprocess.run(command, env=environment, cwd=root, check=True, capture_output=True, text=True).stdout

    first = digest("1")
    assert len(first) == 64
    assert first == digest("2")


def test_random_changes_reach_every_kind_of_defect() -> None:
    """The toy is worth nothing if its random changes never meet what it was built to meet."""
    mesh, choice = ToyMesh(), random.Random(11)
    failures: set[str] = set()
    findings = rivals = False
    for _ in range(60):
        done = run(mesh.graph, random_inputs(mesh, choice))
        failures.update(failure.error.split()[0] for failure in done.failures)
        findings |= bool(done.published.get("findings"))
        rivals |= any(mesh.graph.state.rivals)
    assert findings
    assert rivals
    assert {"ValueError:", "'a'"} <= failures
    assert {code for _, code in mesh.graph.withheld} >= {
        "CertificateUnusable",
        "ClusterUnknown",
        "ViewIsBlind",
        "InternalError",
    }


KEYS = st.integers(0, 4)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.none() | st.integers(0, 3)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("pop"), KEYS),
        st.tuples(st.just("setdefault"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("update"), st.dictionaries(KEYS, st.integers(0, 3), max_size=3)),
        st.tuples(st.just("clear")),
    ),
    max_size=12,
)


@given(st.dictionaries(KEYS, st.none() | st.integers(0, 3)), OPERATIONS, st.booleans())
@settings(max_examples=100, deadline=None)
def test_an_overlay_behaves_like_a_dict_and_never_touches_its_base(
    base: dict[int, Any], operations: list[tuple[Any, ...]], nested: bool
) -> None:
    untouched, model = dict(base), dict(base)
    overlay = Overlay(Overlay(base) if nested else base)
    for name, *arguments in operations:
        results: list[Any] = []
        for mapping in (model, overlay):
            try:
                if name == "set":
                    mapping[arguments[0]] = arguments[1]
                    results.append(None)
                elif name == "delete":
                    del mapping[arguments[0]]
                    results.append(None)
                else:
                    results.append(getattr(mapping, name)(*arguments))
            except KeyError:
                results.append(KeyError)
        assert results[0] == results[1]
        for key in range(5):
            assert (key in overlay) == (key in model)
            assert overlay.get(key) == model.get(key)
            assert overlay.get(key, "absent") == model.get(key, "absent")
            if key in model:
                assert overlay[key] == model[key]
            else:
                with pytest.raises(KeyError):
                    overlay[key]
        assert len(overlay) == len(model)
        assert bool(overlay) == bool(model)
        assert sorted(overlay) == sorted(model)
        assert dict(overlay) == {**overlay} == dict(overlay.items()) == model
        assert sorted(overlay.keys()) == sorted(model.keys())
        assert sorted(map(repr, overlay.values())) == sorted(map(repr, model.values()))
        assert overlay == model
    assert base == untouched
