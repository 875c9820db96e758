"""API servers for benchmarks, in a process of their own: what they cost is none of what is measured.

`ApiServers` starts them and tells them what to do: `fakekube`, which is compiled where Go is at hand and kept below
~/.cache/isthmus-tests, or else the fake of the tests, which is slower, in a Python process that obeys the same commands
(`python -m tests.bench.api_servers`). The commands are described in fakekube/main.go. Every server has a port of its
own and TLS.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from tests.kit.envoy import cache
from tests.kit.kube_api import KubeApi, KubeCluster, Lines, Scripted, error_event
from tests.kit.kube_store import RESOURCES
from tests.kit.kubeconfigs import kubeconfig
from tests.kit.manifests import Manifest

SOURCES = Path(__file__).parent / "fakekube"
GO = ("go", "/usr/local/go/bin/go")
"""Where Go is looked for: it is seldom in the PATH of what is not a login shell."""

ROOTS = {resource.kind: resource.root for resource in RESOURCES}


def fakekube() -> Path | None:
    """The compiled servers, by the content of their sources; None where there is no Go and they were never compiled."""
    sources = [*sorted(SOURCES.glob("*.go")), SOURCES / "go.mod"]
    content = hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()
    binary = cache() / f"fakekube-{content[:16]}"
    go = next((found for name in GO if (found := shutil.which(name))), None)
    if binary.exists() or go is None:
        return binary if binary.exists() else None
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as directory:
        built = Path(directory, "fakekube")
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-trimpath"}
        subprocess.run([go, "build", "-o", built, "."], cwd=SOURCES, env=environment, check=True)
        built.replace(binary)
    return binary


class ApiServers:
    """API servers, by the name of their cluster, while the context is open."""

    def __init__(self) -> None:
        binary = fakekube()
        self.compiled = binary is not None
        """Whether they are those made for benchmarks."""
        command = [str(binary)] if binary else [sys.executable, "-m", "tests.bench.api_servers"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1 << 20)
        self._ports: dict[str, int] = {}
        self._ca = ""

    def __enter__(self) -> ApiServers:
        self._ca = self._heard()["ca"]
        for kind, root in ROOTS.items():
            self._say("resource", next(one.api_version for one in RESOURCES if one.kind == kind), kind, root)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, cluster: str, objects: Iterable[Manifest]) -> None:
        """A server that holds these objects."""
        self._say("cluster", cluster)
        self._ports[cluster] = self._heard()["port"]
        for one in objects:
            self._write("put", cluster, one)
        self.stats()

    def kubeconfig(self, cluster: str, token: str = "token") -> bytes:
        """What leads to it; any token is accepted."""
        return kubeconfig(f"https://localhost:{self._ports[cluster]}", token, self._ca.encode())

    def change(self, changes: Sequence[tuple[str, Manifest]], gaps: Sequence[float] = ()) -> list[int]:
        """Objects change, each as many seconds after the one before as `gaps` say, or as fast as that goes.

        Returns when each did, in nanoseconds of `time.monotonic_ns`.
        """
        for cluster, one in changes:
            self._write("stage", cluster, one)
        self._say("run", ",".join(str(int(1e9 * gap)) for gap in gaps))
        at: list[int] = self._heard()["at"]
        return at

    def streamed(self, cluster: str, *, on: bool) -> None:
        """Whether its lists may be asked for as a watch, as API servers allow since 1.34, or are read in pages."""
        self._say("streamed", cluster, "on" if on else "off")

    def storm(self, cluster: str, *, on: bool) -> None:
        """Every watch of it is answered with 410 Gone."""
        self._say("storm", cluster, "on" if on else "off")

    def stats(self) -> dict[str, dict[str, int]]:
        """Of each cluster how many lists and watches it was asked for, and how many watches are open."""
        self._say("stats")
        stats: dict[str, dict[str, int]] = self._heard()
        return stats

    def _write(self, command: str, cluster: str, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        document = {**manifest, "metadata": {**metadata, "resourceVersion": "0"}}
        data = msgspec.json.encode(document).decode()
        place = metadata.get("namespace") or "-"
        self._say(command, cluster, ROOTS[manifest["kind"]], place, metadata["name"], data)

    def _say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(words) + "\n").encode())

    def _heard(self) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline())


class Fallback:
    """The tests' API servers, which obey the same commands."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._clusters: dict[str, KubeCluster] = {}
        self._storms: dict[str, Scripted] = {}
        self._staged: list[tuple[str, Manifest]] = []

    async def obey(self, line: str) -> object:
        """Carries out a command; returns the answer, None if it asks for none."""
        name, *words = line.split(" ", 1)
        rest = words[0] if words else ""
        match name:
            case "resource":
                pass
            case "cluster":
                cluster = self._clusters[rest] = KubeCluster(rest)
                await self._api.start(cluster)
                return {"port": int(cluster.url.rpartition(":")[2])}
            case "put" | "stage":
                of, _, _, _, document = rest.split(" ", 4)
                self._staged.append((of, msgspec.json.decode(document)))
                if name == "put":
                    await self._run("")
            case "run":
                return {"at": await self._run(rest)}
            case "stats":
                return {of: self._counts(cluster) for of, cluster in self._clusters.items()}
            case _:
                self._turn(name, *rest.split(" "))
        return None

    async def _run(self, gaps: str) -> list[int]:
        staged, self._staged = self._staged, []
        waits = [int(gap) / 1e9 for gap in gaps.split(",") if gap]
        at = []
        due = time.monotonic()
        for number, (of, document) in enumerate(staged):
            if number < len(waits):
                due += waits[number]
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            elif number % 100 == 99:
                await asyncio.sleep(0)
            at.append(time.monotonic_ns())
            self._clusters[of].apply(document)
        return at

    def _turn(self, name: str, of: str, how: str) -> None:
        cluster, on = self._clusters[of], how == "on"
        if name == "streamed":
            cluster.watch_list = on
        elif name == "storm" and on:
            gone = Lines((error_event(410, "Expired"),))
            self._storms[of] = cluster.script(gone, verb="watch", times=None)
            cluster.end_watches()
        elif name == "storm":
            self._storms.pop(of).withdraw()
        else:
            raise ValueError(f"{name!r} is no command")

    def _counts(self, cluster: KubeCluster) -> dict[str, int]:
        streamed = sum(1 for one in cluster.requests if one.verb == "watch" and "sendInitialEvents" in one.query)
        listed = sum(1 for one in cluster.requests if one.verb == "list" and "continue" not in one.query)
        return {"lists": streamed + listed, "watches": cluster.count("watch"), "open": cluster.watches()}


async def _fall_back() -> None:
    """Obeys the commands on standard input until it ends."""
    first = KubeCluster("first")

    def tell(answer: object) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()

    async with KubeApi(first, tls=True) as api:
        tell({"ca": first.ca.decode()})
        servers = Fallback(api)
        read: Callable[[], str] = sys.stdin.readline
        while line := await asyncio.to_thread(read):
            answer = await servers.obey(line.rstrip("\n"))
            if answer is not None:
                tell(answer)


if __name__ == "__main__":
    asyncio.run(_fall_back())
