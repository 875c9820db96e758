"""Processes of the demo: each with a log of its own, ended in order, and none that outlives the demo.

In: a command line. Out: a Child that is waited for, read and stopped. A child has a session of its own, so that Ctrl-C
in a terminal reaches only the demo, which then ends its children; one that goes on when the demo itself was killed is
told to stop by the kernel.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

GRACE: Final = 5.0
"""Seconds a child has to end after it was told to, before it is killed."""

# Replaces itself with the command, which the kernel tells to stop when this process's parent has died
# (prctl(PR_SET_PDEATHSIG), which an exec keeps). Checks that it has not died already.
_BOUND_TO_PARENT: Final = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ChildFailed(Exception):
    """A process that has ended, or did not come up; the text says which and quotes its last words."""


class Child:
    """A running process. `name` is what people call it; `output` and `log` hold its stdout and stderr."""

    def __init__(self, name: str, process: Process, output: Path, log: Path) -> None:
        self.name = name
        self.output = output
        self.log = log
        self._process = process

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str | Path], *, directory: Path, environ: Mapping[str, str] | None = None
    ) -> Self:
        """Starts `command` (a path and arguments), with its logs in `directory`."""
        output, log = directory / f"{name}.out", directory / f"{name}.log"
        words = [sys.executable, "-S", "-c", _BOUND_TO_PARENT, str(os.getpid()), *map(str, command)]
        with output.open("ab") as stdout, log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True, env=environ
            )
        return cls(name, process, output, log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str, deadline: float = 20.0) -> None:
        """Waits until `holds` is true. Raises ChildFailed after `deadline` seconds, or when the process has ended."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        while not await holds():
            if not self.running:
                raise ChildFailed(f"{self.name} ended with exit code {self._process.returncode}{self._quote()}")
            if loop.time() > end:
                raise ChildFailed(f"{self.name} was not {what} within {deadline:g} s{self._quote()}")
            await asyncio.sleep(0.01)

    async def ended(self) -> str:
        """Waits for its end; returns what to say of it."""
        code = await self._process.wait()
        return f"{self.name} ended with exit code {code}{self._quote()}"

    async def stop(self, grace: float = GRACE) -> None:
        """Tells it to stop and waits for its end; after `grace` seconds it is killed."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """Ends it at once."""
        if self.running:
            self._process.kill()

    def _quote(self, lines: int = 8) -> str:
        """The end of its log, for people."""
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "; its log ends with:\n" + "\n".join(f"  {line[:300]}" for line in text) if text else ""
