"""Programs in Go that tests and benchmarks compile themselves, once for each content, below ~/.cache/isthmus-tests.

`built` finds one or builds it: into a directory beside, then renamed, so that nobody ever sees half of one, and under a
lock, so that of several runs one builds. Go's own caches are below the same directory: what is kept of it is enough.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kit.envoy import cache

PLACES = ("go", "/usr/local/go/bin/go")
"""Where Go is looked for: it is seldom in the PATH of what is not a login shell."""
WITHIN = 3000.0
"""Seconds: a large program takes ten minutes of two cores when nothing of it is cached."""


class NoProgram(Exception):
    """A program cannot be had here; the text says why."""


def built(name: str, command: Sequence[str | Path], directory: Path, *, flags: str = "") -> Path:
    """The program of that name, by `go <command>`, which leaves it in the directory that GOBIN says, or as its `-o`.

    `{bin}` in the command is that directory; `flags` go to GOFLAGS. Raises NoProgram, with the last that Go said.
    """
    path = cache() / name
    if path.exists():
        return path
    go = next((found for place in PLACES if (found := shutil.which(place))), None)
    if go is None:
        raise NoProgram("it is built with Go, which is not here")
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Given back by the system if this process dies.
        if not path.exists():  # Else another run has built it while this one waited.
            _build(go, command, directory, flags, path)
    return path


def _build(go: str, command: Sequence[str | Path], directory: Path, flags: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache(), prefix=f"{path.name}-") as scratch:
        staged = Path(scratch, "bin")
        staged.mkdir()
        words = [str(word).replace("{bin}", str(staged)) for word in command]
        nice = ["nice", "-n", "10"] if shutil.which("nice") else []
        try:
            done = subprocess.run(
                [*nice, go, *words],
                cwd=directory,
                env={**os.environ, **_environment(staged, flags)},
                capture_output=True,
                text=True,
                check=False,
                timeout=WITHIN,
            )
        except subprocess.TimeoutExpired:
            raise NoProgram(f"its build was not done within {WITHIN:.0f} s") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise NoProgram(f"it cannot be built here; Go said last: {last}")
        (made,) = staged.iterdir()
        made.rename(path)


def _environment(staged: Path, flags: str) -> Mapping[str, str]:
    return {
        "CGO_ENABLED": "0",
        "GOBIN": str(staged),
        "GOCACHE": str(cache() / "go" / "build"),
        "GOFLAGS": f"-buildvcs=false -trimpath -p=2 {flags}".strip(),
        "GOMODCACHE": str(cache() / "go" / "mod"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
