"""Programs in Go that tests and benchmarks compile themselves, once for each content, below ~/.cache/isthmus-tests.

`built` finds one or builds it: into a directory beside, then renamed, so that nobody ever sees half of one, and under a
lock, so that of several runs one builds. Go's own caches are below the same directory: what is kept of it is enough.
`module` are the sources of a module, for what they hold besides Go. Go checks both against its sum database.
"""

from __future__ import annotations

import fcntl
import json
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
    go = _go()
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Given back by the system if this process dies.
        if not path.exists():  # Else another run has built it while this one waited.
            with tempfile.TemporaryDirectory(dir=cache(), prefix=f"{name}-") as scratch:
                staged = Path(scratch, "bin")
                staged.mkdir()
                words = [str(word).replace("{bin}", str(staged)) for word in command]
                _run([go, *words], directory, {**_environment(flags), "GOBIN": str(staged)})
                (made,) = staged.iterdir()
                made.rename(path)
    return path


def module(name: str) -> Path:
    """Where the sources of a module, `path@version` in small letters, are, downloaded if need be. Raises NoProgram."""
    present = cache() / "go" / "mod" / name
    if present.is_dir():
        return present
    go = _go()
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), prefix="module-") as elsewhere:  # No go.mod of ours has a say.
        said = _run([go, "mod", "download", "-json", name], Path(elsewhere), _environment("-mod=mod"))
    return Path(json.loads(said)["Dir"])


def tidy(directory: Path) -> None:
    """Completes the go.mod there with the versions that all of its modules need. Raises NoProgram."""
    _run([_go(), "mod", "tidy"], directory, _environment("-mod=mod"))


def _go() -> str:
    go = next((found for place in PLACES if (found := shutil.which(place))), None)
    if go is None:
        raise NoProgram("it is built with Go, which is not here")
    return go


def _run(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    """What Go says on stdout."""
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    try:
        done = subprocess.run(
            [*nice, *command],
            cwd=directory,
            env={**os.environ, **environment},
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
    return done.stdout


def _environment(flags: str) -> Mapping[str, str]:
    return {
        "CGO_ENABLED": "0",
        "GOCACHE": str(cache() / "go" / "build"),
        "GOFLAGS": f"-buildvcs=false -trimpath -p=2 {flags}".strip(),
        "GOMODCACHE": str(cache() / "go" / "mod"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
