"""A process with a directory and a log of its own, which ends with a context: killed by its id, whatever it does."""

from __future__ import annotations

import signal
import subprocess
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, Any, Self


class Spawned:
    """The process, once it was started; `pid` is its id."""

    def __init__(self, process: subprocess.Popen[Any], scratch: TemporaryDirectory[str], log: IO[str]) -> None:
        self.pid = process.pid
        self._process = process
        self._scratch = scratch
        self._log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        self._scratch.cleanup()

    def terminate(self) -> None:
        """Tells it to end, as Kubernetes does first."""
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> bool:
        """Whether it has."""
        return self._process.poll() is not None
