"""A control plane in a process of its own, for whoever measures it, and the pipe through which it is told what to do.

The process starts as `isthmus run` would, on directories, with listeners on free ports of loopback. What it can be told
beyond serving is up to a class of Commands: each of its public methods is one, called with what was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from aggregator.app.main import ControlPlane

PATIENCE = 120.0
"""Seconds after which a process that says nothing is given up."""


class Commands:
    """What a control plane can be told through its pipe; here only to stop."""

    def __init__(self, plane: ControlPlane, pipe: Connection) -> None:
        self.plane = plane
        self.pipe = pipe
        self.tasks = asyncio.TaskGroup()
        self._ended = asyncio.Event()

    def ready(self) -> object:
        """What the process says first, once it serves: the port for plaintext."""
        assert self.plane.ports is not None
        return self.plane.ports.plaintext

    async def obey(self) -> None:
        """Carry out what comes, until told to stop."""
        loop = asyncio.get_running_loop()
        async with self.tasks:
            loop.add_reader(self.pipe.fileno(), self._hear)
            try:
                await self._ended.wait()
            finally:
                loop.remove_reader(self.pipe.fileno())

    def stop(self) -> None:
        """The end."""
        self._ended.set()

    def _hear(self) -> None:
        name, *arguments = self.pipe.recv()
        getattr(self, name)(*arguments)


class Questions:
    """What a process can be asked through its pipe, one question after the other: each public method is one, called
    with what was sent, and what it returns is sent back; None is the end.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    async def serve(self) -> None:
        """Until told to stop."""
        while (question := await asyncio.to_thread(self._pipe.recv)) is not None:
            name, *arguments = question
            self._pipe.send(await getattr(self, name)(*arguments))


def serve(
    pipe: Connection,
    sources: list[tuple[str, Path]],
    commands: Callable[[ControlPlane, Connection], Commands],
    remotes: Path | None = None,
    **fields: Any,
) -> None:
    """The life of such a process; the first source is home, `remotes` a directory of kubeconfigs of more clusters;
    `fields` are further ones of Settings.
    """
    began = time.monotonic()
    from aggregator.app import memory
    from aggregator.app.main import ControlPlane
    from aggregator.app.setting_values import Address, ClusterSource
    from aggregator.app.settings import Settings

    logging.disable(logging.WARNING)
    memory.prepare()
    loopback = Address("127.0.0.1", 0)
    clusters = [ClusterSource(name, path) for name, path in sources]
    settings = Settings(
        local=clusters[0],
        remote=tuple(clusters[1:]),
        remotes=remotes,
        xds=loopback,
        xds_plaintext=loopback,
        xds_mtls=None,
        health=loopback,
        admin=loopback,
        drain=0.0,
        **fields,
    )

    async def run() -> None:
        plane = ControlPlane(settings)
        async with memory.tended():
            await live(plane)

    async def live(plane: ControlPlane) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            running = asyncio.create_task(plane.run(began, when_serving=memory.set_aside))
            serving = asyncio.create_task(plane.serving.wait())
            await asyncio.wait((running, serving), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        told = commands(plane, pipe)
        pipe.send(told.ready())
        await told.obey()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(run())


@contextlib.contextmanager
def process(name: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """A process that runs a function of a module, and the pipe that it is given first; ends with the context."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    child = context.Process(target=name, args=(theirs, *arguments))
    child.start()
    theirs.close()
    try:
        yield pipe
    finally:
        child.join(10)
        if child.is_alive():
            child.kill()
            child.join()
        pipe.close()


def received(pipe: Connection) -> Any:
    """What a process says next; raises TimeoutError if it says nothing, EOFError if it has ended."""
    if not pipe.poll(PATIENCE):
        raise TimeoutError(f"nothing was said for {PATIENCE:g} s")
    return pipe.recv()


class Questioned:
    """A process that answers Questions, while the context is open. Whoever asks gets EOFError if it ended, with its
    reason on stderr.
    """

    def __init__(self, life: Callable[..., None], *arguments: object) -> None:
        """`life` is given the pipe and the arguments, says that it is ready, and serves Questions."""
        self._process = process(life, *arguments)
        self._pipe: Any = None

    def __enter__(self) -> Self:
        self._pipe = self._process.__enter__()
        received(self._pipe)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._pipe.send(None)
        self._process.__exit__(kind, error, traceback)

    def _ask(self, *question: object) -> Any:
        self._pipe.send(question)
        return received(self._pipe)
