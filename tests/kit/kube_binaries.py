"""etcd and kube-apiserver for tests, built from their Go modules, and definitions of kinds out of such modules.

Nobody publishes either program where tests may fetch it, but their sources are Go modules. `binaries` finds or builds
both, once for each version; `crds` is what a module defines, never committed. `python -m tests.kit.kube_binaries` does
the same and prints where. What runs them is tests.kit.kube_apiserver.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.kit.envoy import cache
from tests.kit.go_builds import NoProgram, built, module, tidy

KUBERNETES = "1.36.1"
ETCD = "3.6.8"
GATEWAY_API = "sigs.k8s.io/gateway-api@v1.6.0"
ISTIO_API = "istio.io/api@v1.27.3"
MCS_API = "sigs.k8s.io/mcs-api@v0.5.2"

_SERVER = "k8s.io/kubernetes/cmd/kube-apiserver"
_ETCD = "go.etcd.io/etcd/server/v3"
_STAGED = re.compile(r"^\s*(k8s\.io/\S+) => \./staging/", re.MULTILINE)


class Binaries(NamedTuple):
    """Paths of both."""

    kube_apiserver: Path
    etcd: Path


@once
def binaries() -> Binaries:
    """Both. To build them takes eight minutes of two cores when nothing is cached. Raises NoProgram."""
    names = f"kube-apiserver-{KUBERNETES}", f"etcd-{ETCD}"
    found = Binaries(*(cache() / name for name in names))
    if all(path.exists() for path in found):
        return found
    with tempfile.TemporaryDirectory(prefix="kubernetes-") as scratch:
        directory = Path(scratch)
        (directory / "go.mod").write_text(_go_mod(), encoding="utf-8")
        imports = "".join(f'import _ "{name}"\n' for name in (_SERVER, _ETCD))
        (directory / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{imports}", encoding="utf-8")
        tidy(directory)
        version = "k8s.io/component-base/version"
        major, minor, _ = KUBERNETES.split(".")
        named = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        link = " ".join(["-s", "-w", *(f"-X {version}.{name}={value}" for name, value in named.items())])
        server = ["build", "-ldflags", link, "-o", "{bin}/kube-apiserver", _SERVER]
        etcd = ["build", "-ldflags", link, "-o", "{bin}/etcd", _ETCD]
        for name, command in zip(names, (server, etcd), strict=True):
            built(name, command, directory, flags="-mod=mod")
    return found


@once
def crds(of: str = GATEWAY_API, within: str = "config/crd/standard") -> Sequence[Path]:
    """A module's files with CustomResourceDefinitions, by name. Raises NoProgram."""
    files = sorted((module(of) / within).glob("*.yaml"))
    return [file for file in files if "kind: CustomResourceDefinition" in file.read_text(encoding="utf-8")]


def _go_mod() -> str:
    """A module that needs both, with the parts of Kubernetes that its own go.mod takes from beside it."""
    staging = (module(f"k8s.io/kubernetes@v{KUBERNETES}") / "go.mod").read_text(encoding="utf-8")
    replaced = [f"{name} => {name} v0.{KUBERNETES.partition('.')[2]}" for name in _STAGED.findall(staging)]
    required = [f"k8s.io/kubernetes v{KUBERNETES}", f"{_ETCD} v{ETCD}"]
    blocks = [_block("require", required), _block("replace", replaced)]
    return "\n\n".join(["module tests.local/kubernetes", "go 1.26.0", *blocks]) + "\n"


def _block(verb: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{verb} (", *(f"\t{line}" for line in lines), ")"])


def istio_crds(*names: str) -> list[dict[str, Any]]:
    """The definitions of Istio's kinds of these full names, which stand in one file. Raises NoProgram."""
    (file,) = crds(ISTIO_API, "kubernetes")
    documents = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    return [one for one in documents if one and one["metadata"]["name"] in names]


def mcs_crds() -> Sequence[Path]:
    """The definitions of ServiceExport and ServiceImport. Raises NoProgram."""
    return crds(MCS_API, "config/crd")


if __name__ == "__main__":
    try:
        sys.stdout.write("".join(f"{path}\n" for path in binaries()))
    except NoProgram as error:
        sys.exit(str(error))
