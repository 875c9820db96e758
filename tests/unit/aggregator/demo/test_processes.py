from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from aggregator.demo.processes import Child, ChildFailed
from tests.kit.eventually import eventually

SLEEP = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()",
]


async def up(child: Child) -> Child:
    async def said() -> bool:
        return child.output.read_text() == "up\n"

    await child.until(said, "up")
    return child


async def test_a_child_is_told_to_stop_and_waited_for(tmp_path: Path) -> None:
    child = await up(await Child.start("sleeper", SLEEP, directory=tmp_path))
    assert child.running
    await child.stop()
    assert not child.running


async def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    child = await up(await Child.start("stubborn", STUBBORN, directory=tmp_path))
    await child.stop(grace=0.05)
    assert not child.running


async def test_a_child_that_ends_while_it_is_waited_for_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no port is free')"]
    child = await Child.start("broken", command, directory=tmp_path)

    async def never() -> bool:
        return False

    with pytest.raises(ChildFailed, match="broken ended with exit code 1; its log ends with:\n  no port is free"):
        await child.until(never, "ready")


async def test_a_child_that_takes_too_long_is_told_with_what_was_waited_for(tmp_path: Path) -> None:
    child = await Child.start("slow", SLEEP, directory=tmp_path)

    async def never() -> bool:
        return False

    with pytest.raises(ChildFailed, match=r"slow was not ready within 0\.01 s"):
        await child.until(never, "ready", 0.01)
    await child.stop()


async def test_a_child_is_out_of_reach_of_the_terminal(tmp_path: Path) -> None:
    child = await Child.start("sleeper", SLEEP, directory=tmp_path)
    assert os.getsid(child.pid) == child.pid
    await child.stop()


async def test_no_child_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from aggregator.demo.processes import Child
async def main():
    child = await Child.start("sleeper", sys.argv[2:], directory=Path(sys.argv[1]))
    print(child.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, tmp_path, *SLEEP, stdout=PIPE)
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()
    await eventually(lambda: _ended(pid))


def _ended(pid: int) -> bool:
    """Gone, or left for a parent that does not collect it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
