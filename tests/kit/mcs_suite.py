"""The conformance suite of the Multi-Cluster Services API, built from its Go module; what clusters need to take it.

`suite` finds or builds the program. `Workers` stand in for the parts of two clusters that a bare API server has not:
a pod runs as soon as it is made, and a namespace that is deleted goes with all that is in it. No container ever runs,
so nothing can be executed in a pod.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.kit.envoy import cache
from tests.kit.go_builds import built
from tests.kit.kube_apiserver import KubeServer
from tests.kit.kube_binaries import MCS_API

MODULE = "sigs.k8s.io/mcs-api/conformance"
VERSION = "v0.0.0-20260507113920-ded161af6ea9"
"""The suite has no releases of its own: this is a commit of its repository, as Go writes it."""
CHECKOUT = "mcs-api"
"""A checkout of that commit below the cache is used instead of the module, where the module cannot be fetched."""

_EXEC_IN_PODS = "should be inaccessible"
_EVERY = 0.5
_CONTENTS = (
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/services",
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/multicluster.x-k8s.io/v1beta1/namespaces/{}/serviceexports",
    "/apis/multicluster.x-k8s.io/v1beta1/namespaces/{}/serviceimports",
)


class Spec(NamedTuple):
    """How one test of the suite ended; `message` tells why it failed."""

    name: str
    state: str
    message: str


def suite() -> Path:
    """The program. Raises NoProgram."""
    checkout = cache() / CHECKOUT
    api, _, version = MCS_API.partition("@")
    lines = ["module tests.local/mcs", "", "go 1.26.0", "", f"require {MODULE} {VERSION}"]
    if checkout.is_dir():
        lines += [f"replace {MODULE} => {checkout / 'conformance'}", f"replace {api} => {api} {version}"]
    with tempfile.TemporaryDirectory(prefix="mcs-") as scratch:
        Path(scratch, "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = ["test", "-c", "-ldflags", "-s -w", "-o", "{bin}/mcs", MODULE]
        return built(f"mcs-conformance-{VERSION}", command, Path(scratch), flags="-mod=mod")


async def followed(program: Path, directory: Path, servers: Sequence[KubeServer], within: float) -> list[Spec]:
    """Runs on the clusters what needs no command in a pod, of the Required tests and those of exported labels; how each
    ended.

    The directory, which exists, is for what it leaves behind.
    """
    kubeconfigs = ":".join(str(server.kubeconfig(directory)) for server in servers)
    report = directory / "report.json"
    words = [
        *("-contexts", ",".join(server.name for server in servers)),
        *("-ginkgo.label-filter", "Required || ExportedLabels", "-ginkgo.skip", _EXEC_IN_PODS),
        *("-ginkgo.no-color", "-ginkgo.json-report", str(report)),
    ]
    process = await asyncio.create_subprocess_exec(
        program,
        *words,
        cwd=directory,
        env={"KUBECONFIG": kubeconfigs, "HOME": str(directory)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), within)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _specs(report, said.decode())


def _specs(report: Path, said: str) -> list[Spec]:
    assert report.exists(), said
    (run,) = json.loads(report.read_text(encoding="utf-8"))
    return [_spec(one) for one in run["SpecReports"] if one["LeafNodeType"] == "It"]


def _spec(report: Any) -> Spec:
    words = [*(report.get("ContainerHierarchyTexts") or ()), report["LeafNodeText"]]
    message = (report.get("Failure") or {}).get("Message", "")
    return Spec(" ".join(word for word in words if word), report["State"], message)


class Workers:
    """The kubelets and the namespace controllers of clusters, for as long as the context lasts."""

    def __init__(self, *servers: KubeServer) -> None:
        self._servers = servers
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._work(server), name=server.name) for server in self._servers]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        failures = [task.exception() for task in self._tasks if not task.cancelled()]
        assert not failures, failures

    async def _work(self, server: KubeServer) -> None:
        number = 0
        while True:
            _, pods = await server.ask("GET", "/api/v1/pods?fieldSelector=status.phase%3DPending")
            for pod in pods["items"]:
                number += 1
                await _run(server, pod, f"10.240.{number // 250}.{1 + number % 250}")
            _, namespaces = await server.ask("GET", "/api/v1/namespaces")
            for namespace in namespaces["items"]:
                if namespace["status"].get("phase") == "Terminating":
                    await _empty(server, namespace["metadata"]["name"])
            await asyncio.sleep(_EVERY)


async def _run(server: KubeServer, pod: Any, address: str) -> None:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]}
    await server.ask("PATCH", path, {"status": status}, content_type="application/merge-patch+json")


async def _empty(server: KubeServer, namespace: str) -> None:
    for path in _CONTENTS:
        await server.ask("DELETE", path.format(namespace), {"gracePeriodSeconds": 0})
    await server.delete("Namespace", namespace)
