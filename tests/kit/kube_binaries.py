"""etcd and kube-apiserver for tests, built from their Go modules, once per version, below ~/.cache/isthmus-tests.

Nobody publishes either where tests may fetch it, but their sources are Go modules, which the Go command checks against
its sum database. The Go caches are below the same directory, so that what CI keeps of it is enough. `binaries` finds or
builds both, `crds` is a module's definitions of its kinds, out of the cache of modules and never committed;
`python -m tests.kit.kube_binaries` does the same and prints where. What runs them is tests.kit.kube_apiserver.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.kit.envoy import cache

KUBERNETES = "1.36.1"
ETCD = "3.6.8"
GATEWAY_API = "sigs.k8s.io/gateway-api@v1.6.0"

_SERVER = "k8s.io/kubernetes/cmd/kube-apiserver"
_ETCD = "go.etcd.io/etcd/server/v3"
_STAGED = re.compile(r"^\s*(k8s\.io/\S+) => \./staging/", re.MULTILINE)
_WITHIN = 3000.0  # A cold build takes 8 to 15 minutes of two cores.


class KubeUnavailable(Exception):
    """No API server can be had here; the text says why."""


class Binaries(NamedTuple):
    """Paths of both."""

    kube_apiserver: Path
    etcd: Path


def binaries() -> Binaries:
    """Both, built if they are not there yet. Raises KubeUnavailable."""
    home = cache() / f"kubernetes-{KUBERNETES}-etcd-{ETCD}"
    if not home.exists():
        go = _go()
        with _locked("kubernetes"):
            if not home.exists():  # Else another run has built them while this one waited.
                _build(go, home)
    return Binaries(home / "kube-apiserver", home / "etcd")


def crds(module: str = GATEWAY_API, within: str = "config/crd/standard") -> list[Path]:
    """A module's files with CustomResourceDefinitions, by name. Raises KubeUnavailable."""
    directory = _download(_go(), module) / within
    return sorted(path for path in directory.glob("*.yaml") if "kustomization" not in path.name)


def _go() -> str:
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        raise KubeUnavailable(f"kube-apiserver {KUBERNETES} is built with Go, and there is no `go` in PATH")
    return found


def _build(go: str, home: Path) -> None:
    """Into a directory beside, then renamed: nobody sees half a one."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="kubernetes-") as scratch:
        module, staged = Path(scratch) / "module", Path(scratch) / "staged"
        module.mkdir()
        staged.mkdir()
        staging = (_download(go, f"k8s.io/kubernetes@v{KUBERNETES}") / "go.mod").read_text(encoding="utf-8")
        replaced = [f"{name} => {name} v0.{KUBERNETES.partition('.')[2]}" for name in _STAGED.findall(staging)]
        required = [f"k8s.io/kubernetes v{KUBERNETES}", f"{_ETCD} v{ETCD}"]
        lines = ["module tests.local/kubernetes", "go 1.26.0", _block("require", required), _block("replace", replaced)]
        (module / "go.mod").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
        imports = "\n".join(f'import _ "{name}"' for name in (_SERVER, _ETCD))
        (module / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}\n", encoding="utf-8")
        version = "k8s.io/component-base/version"
        major, minor, _ = KUBERNETES.split(".")
        named = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        flags = " ".join(["-s", "-w", *(f"-X {version}.{name}={value}" for name, value in named.items())])
        _run([go, "mod", "tidy"], module)
        _run([go, "build", "-p", "2", "-trimpath", "-ldflags", flags, "-o", f"{staged}/", _SERVER, _ETCD], module)
        (staged / "server").rename(staged / "etcd")  # By its package path, less the version.
        staged.rename(home)


def _block(verb: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{verb} (", *(f"\t{line}" for line in lines), ")"])


def _download(go: str, module: str) -> Path:
    """Where the sources of a module are."""
    with tempfile.TemporaryDirectory() as elsewhere:  # No go.mod of ours has a say.
        said = json.loads(_run([go, "mod", "download", "-json", module], Path(elsewhere)))
    return Path(said["Dir"])


def _run(command: Sequence[str], directory: Path) -> str:
    """A Go command's stdout. Raises KubeUnavailable with the last that it said."""
    places = {"GOMODCACHE": str(cache() / "go" / "mod"), "GOCACHE": str(cache() / "go" / "build")}
    environ = {**os.environ, **places, "GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0", "GOWORK": "off"}
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    what = " ".join(command[1:3])
    try:
        done = subprocess.run(
            [*nice, *command], cwd=directory, env=environ, capture_output=True, text=True, check=False, timeout=_WITHIN
        )
    except subprocess.TimeoutExpired:
        raise KubeUnavailable(f"go {what} was not done within {_WITHIN:.0f} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise KubeUnavailable(f"go {what} failed: {last}")
    return done.stdout


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """One run of the tests at a time; the system gives the lock back if that run dies."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    started = time.monotonic()
    try:
        found = binaries()
    except KubeUnavailable as error:
        sys.exit(str(error))
    sys.stdout.write(f"{found.kube_apiserver}\n{found.etcd}\n")
    sys.stderr.write(f"after {time.monotonic() - started:.0f} s\n")
