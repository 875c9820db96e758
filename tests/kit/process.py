"""`isthmus run` as a process of its own, as its users start it: settings in, lines and an exit code out.

`running` starts one and takes its lines as they come; whoever tests waits on `until`, which is woken by every line and
by the end. A process that still runs at the end of the context is told to stop, and killed, by its own id, if it does
not. For what needs no process of its own `tests.kit.plane` is quicker.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
AUDITED = Path(__file__).with_name("audited.py")
ANY_PORT = "127.0.0.1:0"

_LISTENING = re.compile(r' info  listening name=(?P<quote>"?)(?P<name>[a-z ]+)(?P=quote) host=\S+ port=(?P<port>\d+)$')


class Isthmus:
    """A process of `isthmus run`. `lines` is its stderr, `answers` its stdout, both line by line; `pid` its id."""

    def __init__(self, process: Process) -> None:
        self.lines: list[str] = []
        self.answers: list[str] = []
        self.pid = process.pid
        self._process = process
        self._change = asyncio.Event()
        self._readers = [
            asyncio.create_task(self._read(stream, lines), name=f"lines of process {process.pid}")
            for stream, lines in ((process.stderr, self.lines), (process.stdout, self.answers))
        ]
        for reader in self._readers:
            reader.add_done_callback(self._wake)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative is the signal that killed it."""
        return self._process.returncode

    @property
    def ports(self) -> dict[str, int]:
        """The ports it listens on, by the names in its log (xds, xds mtls, xds plaintext, health, admin), in either
        format.
        """
        found: dict[str, int] = {}
        for line in self.lines:
            if line.startswith("{"):
                fields = json.loads(line)
                if fields["event"] == "listening":
                    found[fields["name"]] = fields["port"]
            elif match := _LISTENING.search(line):
                found[match["name"]] = int(match["port"])
        return found

    def target(self, name: str) -> str:
        """Host and port of a listener."""
        return f"127.0.0.1:{self.ports[name]}"

    async def until(self, holds: Callable[[Isthmus], object], deadline: float = 20.0) -> None:
        """Waits until `holds` is true. Raises TimeoutError, with all that the process said, after `deadline` seconds or
        as soon as the process has ended without it.
        """
        async with self._deadline(deadline):
            while not holds(self):
                if all(reader.done() for reader in self._readers):
                    raise TimeoutError("it has ended")
                await self._change.wait()

    async def ready(self, deadline: float = 20.0) -> str:
        """Waits until it serves; returns the line that says so."""
        await self.until(lambda process: process.answers, deadline)
        return self.answers[0]

    def signal(self, signum: signal.Signals) -> None:
        """Sends it a signal."""
        self._process.send_signal(signum)

    async def ended(self, deadline: float = 20.0) -> int:
        """Waits for its end, with all its lines read; returns the exit code."""
        async with self._deadline(deadline):
            code = await self._process.wait()
            await asyncio.wait(self._readers)
            return code

    async def stop(self, deadline: float = 20.0) -> int:
        """Tells it to stop and waits for its end; returns the exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended(deadline)

    async def close(self) -> None:
        """Ends it, if need be by force."""
        if self.exit_code is None:
            try:
                await self.stop(5.0)
            except TimeoutError:
                self._process.kill()
        await self.ended()

    @property
    def said(self) -> str:
        """Everything it has said so far."""
        return "\n".join([*self.answers, *self.lines])

    @asynccontextmanager
    async def _deadline(self, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError with all that the process said."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            why = str(error) or f"not within {seconds} s"
            raise TimeoutError(f"process {self.pid}: {why}; it said:\n{self.said}") from None

    async def _read(self, stream: asyncio.StreamReader | None, lines: list[str]) -> None:
        assert stream is not None, "started with pipes"
        async for line in stream:
            lines.append(line.decode().rstrip("\n"))
            self._wake()

    def _wake(self, _: object = None) -> None:
        self._change.set()
        self._change = asyncio.Event()


@asynccontextmanager
async def running(
    *arguments: str | Path,
    environ: Mapping[str, str] | None = None,
    hash_seed: int | None = None,
    audit: Path | None = None,
) -> AsyncIterator[Isthmus]:
    """A process of `isthmus` with these arguments, for as long as the context lasts.

    Of the environment of the tests it sees only what Python needs, and `environ`; `hash_seed` fixes the order of its
    sets. With `audit` everything it opens and starts goes to that file (`tests.kit.audited`).
    """
    variables = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    if hash_seed is not None:
        variables["PYTHONHASHSEED"] = str(hash_seed)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", *([AUDITED, audit] if audit else ["-m"]), "aggregator.cli.main", *map(str, arguments)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=REPOSITORY,
        env={**variables, **(environ or {})},
    )
    isthmus = Isthmus(process)
    try:
        yield isthmus
    finally:
        await isthmus.close()


def run_arguments(local: str, *remote: str, plaintext: bool = False) -> Sequence[str]:
    """The usual command line: sources as `NAME=DIRECTORY`, every listener on a free port of loopback, a short drain."""
    arguments = ["run", "--local", local]
    for source in remote:
        arguments += ["--remote", source]
    for flag in ("--xds", "--xds-mtls", "--health", "--admin", *(["--xds-plaintext"] if plaintext else [])):
        arguments += [flag, ANY_PORT]
    return [*arguments, "--drain", "1s"]
