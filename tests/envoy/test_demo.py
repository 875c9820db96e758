"""`isthmus demo`: its steps show what they say, and however it ends it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aggregator.demo.journey import Journey
from aggregator.demo.ports import Taken, check_free
from aggregator.demo.scenario import Scenario, StepFailed
from aggregator.demo.stage import Stage
from aggregator.operate.bootstrap import SocketAddress
from tests.kit.eventually import eventually
from tests.kit.mesh import free_stage
from tests.kit.process import REPOSITORY


class Notes:
    """A Show that takes down what is shown."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.told: list[str] = []
        self.journeys: list[Journey] = []
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def step(self, title: str) -> None:
        self.steps.append(title)

    def tell(self, text: str) -> None:
        self.told.append(text)

    def journey(self, journey: Journey) -> None:
        self.journeys.append(journey)

    def log_line(self, name: str, line: dict[str, Any]) -> None:
        self.lines.append((name, line))


async def test_every_step_shows_what_it_says(tmp_path: Path, binary: Path) -> None:
    notes = Notes()
    scenario = Scenario(free_stage(tmp_path), binary, notes)
    try:
        await scenario.run()
    finally:
        await scenario.close()
    assert len(notes.steps) == 5
    (journey,) = notes.journeys
    assert [hop.name for hop in journey.hops][:3] == ["visitor", "visitor", "west-ingress-1"]
    assert [name for name, _ in notes.lines] == ["east-east-west-1", "east-ztunnel"]
    for said in ("no request failed", "are given two and one", "new.example"):
        assert any(said in one for one in notes.told), said


async def test_a_step_that_shows_something_else_says_which_and_what(tmp_path: Path, binary: Path) -> None:
    stage = free_stage(tmp_path)
    (stage.east.manifests / "catalog.yaml").unlink()
    scenario = Scenario(stage, binary, Notes())
    try:
        with pytest.raises(StepFailed, match=r"A request for a service that is only in east: GET .* was answered 503"):
            await scenario.run()
    finally:
        await scenario.close()


# As a process, on the addresses it always has.


@pytest.fixture
def addresses(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "probe")
    try:
        check_free([SocketAddress(site.address("0.1"), 15012) for site in stage.sites])
    except Taken as error:
        pytest.skip(f"a demo runs on this machine: {error}")


@asynccontextmanager
async def demo(directory: Path, binary: Path, *options: str) -> AsyncIterator[Process]:
    """`isthmus demo`, with its files below `directory`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aggregator.cli.main", "demo", "--envoy", str(binary), *options),
        stdout=PIPE,
        stderr=PIPE,
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(directory)},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line(process: Process, wanted: str) -> str:
    """Reads its output up to a line."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        async for each in process.stdout:
            if wanted in each.decode():
                return each.decode()
    assert process.stderr is not None
    raise AssertionError(f"it ended without {wanted!r}: {(await process.stderr.read()).decode()}")


def left_behind(directory: Path) -> list[str]:
    """Directories of a demo, and processes that were started with one of them."""
    running = [command for _, command in processes() if f"{directory}/isthmus-demo-" in command]
    return [*map(str, directory.glob("isthmus-demo-*/")), *running]


def processes() -> Iterator[tuple[int, str]]:
    """(process id, command) of all other processes."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue  # It has just ended.
            yield int(process.name), command.replace(b"\0", b" ").decode(errors="replace")


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize("step", ["1. Two clusters start", "3. A pod is no longer ready"])
async def test_ctrl_c_ends_it_in_any_step_and_leaves_nothing_behind(tmp_path: Path, binary: Path, step: str) -> None:
    async with demo(tmp_path, binary, "--once") as process:
        await line(process, step)
        assert left_behind(tmp_path)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    assert left_behind(tmp_path) == []


@pytest.mark.usefixtures("addresses")
async def test_without_once_it_stays_up_until_it_is_told_to_stop(tmp_path: Path, binary: Path) -> None:
    async with demo(tmp_path, binary) as process:
        said = await line(process, "https://shop.example:8443/\n")
        assert "--resolve shop.example:8443:127.1.0.20" in said
        process.terminate()
        assert await process.wait() == 0
    assert left_behind(tmp_path) == []


@pytest.mark.usefixtures("addresses")
async def test_a_process_that_dies_ends_it_with_the_reason(tmp_path: Path, binary: Path) -> None:
    async with demo(tmp_path, binary) as process:
        await line(process, "https://shop.example:8443/\n")
        (victim,) = (pid for pid, command in processes() if f"{tmp_path}/" in command and "ingress-1.json" in command)
        os.kill(victim, signal.SIGKILL)
        assert await process.wait() == 1
        assert process.stderr is not None
        assert "west-ingress-1 ended with exit code -9" in (await process.stderr.read()).decode()
    assert left_behind(tmp_path) == []


@pytest.mark.usefixtures("addresses")
async def test_no_process_outlives_a_demo_that_was_killed(tmp_path: Path, binary: Path) -> None:
    async with demo(tmp_path, binary) as process:
        await line(process, "2. A request")
        process.kill()
        await process.wait()
    await eventually(lambda: not [one for one in left_behind(tmp_path) if not one.startswith(str(tmp_path))])
