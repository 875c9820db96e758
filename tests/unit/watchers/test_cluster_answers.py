"""What others wait for of a cluster is told as soon as it stands in the table, and not before."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.clock import virtual_time
from tests.unit.watchers.test_cluster import EXTRAS, NAMESPACES, NODES, Kind, Stage, running
from watchers.facts import Answered
from watchers.generation import KindState

MESH_CONFIGS = Kind("MeshConfig", required=False)
IMPORTS = Kind("ServiceImport", required=False)


def answers(stage: Stage) -> tuple[str, ...]:
    found = stage.table.get(("mesa", "Answered", "", "mesa"))
    return found.kinds if isinstance(found, Answered) else ()


@virtual_time
async def test_namespaces_and_the_mesh_config_are_answered_before_all_is_read() -> None:
    stage = Stage(NAMESPACES, MESH_CONFIGS, NODES, EXTRAS)
    async with running(stage):
        stage.watch.use("one")
        await asyncio.sleep(1)
        assert answers(stage) == ()
        stage.made["one"].holds("Node", "n")
        assert answers(stage) == ()
        stage.made["one"].holds("Namespace", "shop")
        assert answers(stage) == ("Namespace",)
        stage.made["one"].holds("MeshConfig")
        assert answers(stage) == ("MeshConfig", "Namespace")


@pytest.mark.parametrize("state", ["absent", "denied"])
def test_what_is_not_there_and_what_may_not_be_read_is_an_answer(state: KindState) -> None:
    @virtual_time
    async def run() -> None:
        stage = Stage(NAMESPACES, MESH_CONFIGS)
        async with running(stage):
            stage.watch.use("one")
            await asyncio.sleep(1)
            stage.made["one"].reports["MeshConfig"](state, "")
            assert answers(stage) == ("MeshConfig",)

    run()


@virtual_time
async def test_what_a_new_credential_has_read_aside_is_no_answer_until_it_takes_over() -> None:
    stage = Stage(NAMESPACES, NODES)
    async with running(stage):
        stage.watch.use("one")
        await asyncio.sleep(1)
        stage.made["one"].holds("Node", "n")
        stage.watch.use("two")
        await asyncio.sleep(1)
        stage.made["two"].holds("Namespace", "shop")
        assert answers(stage) == ()
        stage.made["two"].holds("Node", "n")
        assert answers(stage) == ("Namespace",)


def read(stage: Stage) -> tuple[str, ...]:
    found = stage.table.get(("mesa", "Answered", "", "mesa"))
    return found.read if isinstance(found, Answered) else ()


@virtual_time
async def test_a_kind_that_is_made_is_read_while_its_objects_are_known() -> None:
    stage = Stage(NAMESPACES, IMPORTS)
    async with running(stage):
        stage.watch.use("one")
        await asyncio.sleep(1)
        report = stage.made["one"].reports["ServiceImport"]
        outcomes: list[tuple[KindState, tuple[str, ...]]] = [
            ("absent", ()),
            ("synced", ("ServiceImport",)),
            ("stale", ("ServiceImport",)),
            ("denied", ()),
        ]
        for state, expected in outcomes:
            report(state, "")
            assert read(stage) == expected, state


@virtual_time
async def test_a_new_credential_that_may_not_see_what_is_made_ends_its_making() -> None:
    stage = Stage(NAMESPACES, IMPORTS)
    async with running(stage):
        for credential, state in (("one", "synced"), ("two", "denied")):
            stage.watch.use(credential)
            await asyncio.sleep(1)
            stage.made[credential].reports["ServiceImport"](state, "")  # type: ignore[arg-type]
            stage.made[credential].holds("Namespace", "shop")
            assert read(stage) == (("ServiceImport",) if state == "synced" else ())


@virtual_time
async def test_the_answers_of_a_removed_cluster_go_with_it() -> None:
    stage = Stage(NAMESPACES)
    async with running(stage):
        stage.watch.use("one")
        await asyncio.sleep(1)
        stage.made["one"].holds("Namespace", "shop")
        assert answers(stage)
        stage.watch.remove()
        assert not list(stage.table.scan(("mesa",)))
