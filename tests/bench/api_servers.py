"""API servers for benchmarks, in a process of their own: what they cost is none of what is measured.

`ApiServers` starts them and tells them what to do: `fakekube`, which is compiled where Go is at hand and kept below
~/.cache/isthmus-tests, or else the fake of the tests, which is slower, in a Python process that obeys the same commands
(`python -m tests.bench.api_servers`). The commands are described in fakekube/main.go. Every server has a port of its
own and TLS, and serves all kinds that Isthmus or istiod reads.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from tests.kit.go_builds import NoProgram, built
from tests.kit.kube_api import KubeApi, KubeCluster, Lines, Scripted, error_event
from tests.kit.kube_store import RESOURCES as READ
from tests.kit.kube_store import Resource
from tests.kit.kubeconfigs import kubeconfig
from tests.kit.manifests import Manifest
from tests.kit.service_accounts import TokenIssuer
from watchers.facts.keys import ObjectKey

SOURCES = Path(__file__).parent / "fakekube"

Write = tuple[str, Manifest | ObjectKey]
"""Of which cluster an object is created or changed, or the key of which is deleted."""

_MORE = (
    *(("v1", "ServiceAccount Endpoints Event"), ("apps/v1", "DaemonSet Deployment ReplicaSet StatefulSet")),
    *(("autoscaling/v2", "HorizontalPodAutoscaler"), ("policy/v1", "PodDisruptionBudget")),
    *(("networking.k8s.io/v1", "NetworkPolicy"), ("coordination.k8s.io/v1", "Lease")),
    ("rbac.authorization.k8s.io/v1", "Role RoleBinding"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    *(("authentication.k8s.io/v1", "TokenReview"), ("authorization.k8s.io/v1", "SubjectAccessReview")),
)
"""Built-in kinds that only others than Isthmus read, by their API version."""
_MORE_CUSTOM = (
    ("gateway.networking.k8s.io/v1", "GRPCRoute TLSRoute TCPRoute BackendTLSPolicy ListenerSet"),
    ("gateway.networking.k8s.io/v1beta1", "ReferenceGrant"),
    ("networking.istio.io/v1", "DestinationRule Gateway Sidecar VirtualService WorkloadGroup"),
    *(("networking.istio.io/v1alpha3", "EnvoyFilter"), ("networking.istio.io/v1beta1", "ProxyConfig")),
    *(("security.istio.io/v1", "RequestAuthentication"), ("telemetry.istio.io/v1", "Telemetry")),
    ("extensions.istio.io/v1alpha1", "WasmPlugin TrafficExtension"),
)
"""The same of kinds that CustomResourceDefinitions define."""
_CLUSTER_SCOPED = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "CustomResourceDefinition"}
_CUSTOM = ("istio.io", "gateway.networking.k8s.io")


def _resources(more: Iterable[tuple[str, str]]) -> list[Resource]:
    return [
        Resource(kind, version, _plural(kind), namespaced=kind not in _CLUSTER_SCOPED)
        for version, kinds in more
        for kind in kinds.split()
    ]


def _plural(kind: str) -> str:
    name = kind.lower()
    return name if name == "endpoints" else f"{name[:-1]}ies" if name.endswith(("cy", "ry")) else f"{name}s"


RESOURCES = list({one.root: one for one in (*_resources(_MORE), *_resources(_MORE_CUSTOM), *READ)}.values())
"""All kinds that the compiled servers serve."""
ROOTS = {resource.kind: resource.root for resource in RESOURCES}
"""Where objects of a kind are; of the two kinds Gateway, Gateway API's."""


def definitions() -> Iterator[Manifest]:
    """The CustomResourceDefinitions of a cluster, without their schemas, which nobody here asks for."""
    for one in RESOURCES:
        group, _, version = one.api_version.partition("/")
        if group.endswith(_CUSTOM):
            yield {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": f"{one.plural}.{group}",
                    "annotations": {"gateway.networking.k8s.io/bundle-version": "v1.6.0"},
                },
                "spec": {
                    "group": group,
                    "names": {"kind": one.kind, "plural": one.plural},
                    "scope": "Namespaced" if one.namespaced else "Cluster",
                    "versions": [{"name": version, "served": True, "storage": True}],
                },
            }


def fakekube() -> Path:
    """The compiled servers, by the content of their sources. Raises NoProgram."""
    sources = [*sorted(SOURCES.glob("*.go")), SOURCES / "go.mod", SOURCES / "go.sum"]
    content = hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()
    return built(f"fakekube-{content[:16]}", ["build", "-ldflags=-s -w", "-o", "{bin}/fakekube", "."], SOURCES)


class ApiServers:
    """API servers, by the name of their cluster, while the context is open."""

    def __init__(self, *, protobuf: bool = False) -> None:
        """`protobuf`: they speak it to whoever prefers it, as API servers do."""
        command = [sys.executable, "-m", "tests.bench.api_servers"]
        self.compiled = True
        """Whether they are those made for benchmarks."""
        try:
            command = [str(fakekube()), *(["-protobuf"] if protobuf else [])]
        except NoProgram as error:
            self.compiled = False
            print(f"# the API servers are those of the tests, in Python, which take CPU time: of fakekube, {error}")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1 << 20)
        self._ports: dict[str, int] = {}
        self._ca = ""

    def __enter__(self) -> ApiServers:
        self._ca = self._heard()["ca"]
        for one in RESOURCES:
            self._say("resource", one.api_version, one.kind, one.root, str(one.namespaced).lower())
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
        self.put(cluster, *definitions())
        self.put(cluster, *objects)

    def kubeconfig(self, cluster: str, token: str = "token") -> bytes:
        """What leads to it; any token is accepted."""
        return kubeconfig(f"https://localhost:{self._ports[cluster]}", token, self._ca.encode())

    def put(self, cluster: str, *objects: Manifest) -> None:
        """Objects are created or changed; they are when this returns."""
        for one in objects:
            self._write((cluster, one))
        self.stats()

    def delete(self, cluster: str, *keys: ObjectKey) -> None:
        """Objects are deleted."""
        for key in keys:
            self._write((cluster, key))
        self.stats()

    def change(self, changes: Sequence[Write], gaps: Sequence[float] = ()) -> list[int]:
        """Objects change, each as many seconds after the one before as `gaps` say, or as fast as that goes.

        Returns when each did, in nanoseconds of `time.monotonic_ns`.
        """
        for one in changes:
            self._write(one, "stage")
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

    def down(self, cluster: str, *, on: bool) -> None:
        """Its connections are cut and its port refuses, until it is up again with all it held."""
        self._say("down", cluster, "on" if on else "off")
        self.stats()

    def deny(self, cluster: str, token: str, *, on: bool) -> None:
        """That token is answered with 401, and whoever watches with any is cut off once."""
        self._say("deny", cluster, token, "on" if on else "off")
        self._say("cut", cluster)
        self.stats()

    def _write(self, write: Write, *before: str) -> None:
        cluster, what = write
        if isinstance(what, tuple):
            _, kind, namespace, name = what
            self._say(*before, "delete", cluster, ROOTS[kind], namespace or "-", name)
            return
        metadata = what["metadata"]
        document = {**what, "metadata": {**metadata, "resourceVersion": "0"}}
        data = msgspec.json.encode(document).decode()
        place = metadata.get("namespace") or "-"
        self._say(*before, "put", cluster, ROOTS[what["kind"]], place, metadata["name"], data)

    def _say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(words) + "\n").encode())

    def _heard(self) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline())


class _Tokens(TokenIssuer):
    """Takes tokens as fakekube does: `sa:NAMESPACE:NAME` is that account's."""

    def review(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The status of a TokenReview."""
        kind, _, account = spec["token"].partition(":")
        if kind != "sa":
            return super().review(spec)
        user = {"username": f"system:serviceaccount:{account}", "groups": ["system:serviceaccounts"]}
        return {"authenticated": True, "audiences": ["istio-ca"], "user": user}


class Fallback:
    """The tests' API servers, which obey the same commands."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._clusters: dict[str, KubeCluster] = {}
        self._storms: dict[str, Scripted] = {}
        self._staged: list[tuple[str, Manifest | tuple[str, str, str]]] = []

    async def obey(self, line: str) -> object:
        """Carries out a command; returns the answer, None if it asks for none."""
        name, *words = line.split(" ", 1)
        rest = words[0] if words else ""
        match name:
            case "resource":
                pass
            case "cluster":
                cluster = self._clusters[rest] = KubeCluster(rest)
                cluster.accounts = _Tokens()
                await self._api.start(cluster)
                return {"port": int(cluster.url.rpartition(":")[2])}
            case "put" | "delete":
                self._stage(name, rest)
                await self._run("")
            case "stage":
                self._stage(*rest.split(" ", 1))
            case "run":
                return {"at": await self._run(rest)}
            case "stats":
                return {of: self._counts(cluster) for of, cluster in self._clusters.items()}
            case _:
                self._turn(name, *rest.split(" "))
        return None

    def _stage(self, name: str, rest: str) -> None:
        of, root, namespace, own, *document = rest.split(" ", 4)
        if name == "delete":
            self._staged.append((of, (root, namespace, own)))
        elif root in {one.root for one in READ}:
            self._staged.append((of, msgspec.json.decode(document[0])))

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
            if isinstance(document, tuple):
                root, namespace, own = document
                kind = next(kind for kind, place in ROOTS.items() if place == root)
                self._clusters[of].delete(kind, own if namespace == "-" else f"{namespace}/{own}")
            else:
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
