"""Control planes with a stock Envoy behind each as its ingress gateway: how they are started, and what they count.

`served` starts one on a home cluster that it reads by a kubeconfig, and the Envoy, which reaches it by TLS with a
token that the cluster reviews. What a control plane costs is what its process shows, what it does what its own metrics
count. Envoy's main thread is apart from its workers: it alone takes in what it is told.

By its own switches istiod is told to leave out what a stock Envoy lacks: the two filters that only Istio's build knows
(metadata exchange, ALPN), and TLS to backends in the mesh, of which there are none, with keys that only Istio's agent
hands out. That is less than it would have to do for its own proxies; the rest is what it sends any ingress gateway.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from aggregator.operate.bootstrap import Document, GatewayProxy, SocketAddress, bootstrap
from tests.bench.hosting import GATEWAY, HOME, NAMESPACE, TOKEN, Ports
from tests.bench.peers import ControlPlane, Isthmus
from tests.kit import certificates as c
from tests.kit.envoy import binary
from tests.kit.istiod import Istiod, answer
from tests.kit.ports import free_port
from tests.kit.spawned import Spawned

_WITHOUT: Final = {
    "PILOT_ENABLE_METADATA_EXCHANGE": "false",
    "PILOT_ENABLE_ALPN_FILTER": "false",
    "PILOT_ENABLE_AMBIENT": "false",
    "AMBIENT_ENABLE_MULTI_NETWORK": "false",
    "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS": "false",
}
_PLAIN: Final = "enableAutoMtls: false\n"


class Counts(msgspec.Struct, frozen=True):
    """What a control plane has done so far, by its own metrics: bytes sent to proxies, functions run, digests taken;
    None what it does not count.
    """

    sent: float
    functions: float | None = None
    hashed: float | None = None

    def since(self, before: Counts) -> Counts:
        """What it has done meanwhile."""
        return Counts(
            self.sent - before.sent, _less(self.functions, before.functions), _less(self.hashed, before.hashed)
        )


def _less(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before


class Mode(msgspec.Struct, frozen=True):
    """One way of serving domains: flags of `isthmus run`, and what Envoy's node says besides."""

    name: str
    flags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = {}


ON_DEMAND: Final = Mode("on_demand")
MODES: Final = {mode.name: mode for mode in (ON_DEMAND,)}
"""Isthmus' own. Another is one more line."""
ISTIOD: Final = "istiod"


class Gateway(Spawned):
    """An Envoy while the context is open."""

    def __init__(self, config: Document, log_level: str = "warning") -> None:
        scratch = tempfile.TemporaryDirectory(prefix="isthmus-envoy-")
        path = Path(scratch.name, "envoy.json")
        path.write_text(json.dumps(config))
        log = Path(scratch.name, "log").open("w+")  # noqa: SIM115 - the process writes to it
        command = [binary(), "--config-path", path, "--use-dynamic-base-id", "--drain-time-s", "5"]
        # One worker: the machine's two cores or so are for the control plane and the visitors as well.
        command += ["--concurrency", "1"]
        process = subprocess.Popen(
            [*map(str, command), "--log-level", log_level], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        super().__init__(process, scratch, log)
        place = config["admin"]["address"]["socket_address"]
        self._admin = f"http://{place['address']}:{place['port_value']}"

    def get(self, path: str) -> str:
        """A page of its admin interface, "" if it does not answer."""
        return (answer(self._admin + path) or b"").decode()

    def ready(self, deadline: float = 120.0) -> None:
        """Waits until it is. Raises TimeoutError with the end of its log."""
        end = time.monotonic() + deadline
        while not self.get("/ready").startswith("LIVE"):
            if self.ended() or time.monotonic() > end:
                raise TimeoutError(f"Envoy is not ready; it said:\n{self.log()[-3000:]}")
            time.sleep(0.05)

    def log(self) -> str:
        """All that it said."""
        return Path(self._log.name).read_text(errors="replace")

    @property
    def main_thread(self) -> float:
        """Seconds of CPU of its main thread."""
        return _seconds(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat"))


class Served(msgspec.Struct, frozen=True):
    """A control plane and its gateway. `began` is when the control plane was started (time.monotonic), `counts` asks
    its metrics.
    """

    plane: ControlPlane
    gateway: Gateway
    began: float
    counts: Callable[[], Counts]

    @property
    def cpu(self) -> float:
        """Seconds of CPU of the control plane."""
        return sum(_seconds(task / "schedstat") for task in Path(f"/proc/{self.plane.pid}/task").iterdir())


def _seconds(schedstat: Path) -> float:
    try:
        return int(schedstat.read_text().split()[0]) / 1e9
    except FileNotFoundError:  # A thread that has ended meanwhile.
        return 0.0


class Hosts:
    """Where control planes of one run are started: their home's kubeconfig, the authority they sign with, the gateway's
    ports.
    """

    def __init__(self, directory: Path, kubeconfig: bytes, ports: Ports) -> None:
        self._kubeconfig = kubeconfig
        self._ports = ports
        root = c.Issuer("the mesh")
        self.cacerts = c.write_cacerts(directory / "cacerts", c.Issuer("the control plane", root), roots=(root,))
        (directory / "token").write_text(TOKEN)
        self._token = str(directory / "token")

    @contextmanager
    def isthmus(self, mode: Mode = ON_DEMAND) -> Iterator[Served]:
        """As `isthmus run` would be, with a gateway that serves nothing yet."""
        began = time.monotonic()
        flags = ("--istio-classes", "--cacerts", str(self.cacerts), *mode.flags)
        with Isthmus(HOME, self._kubeconfig, *flags) as plane:
            plane.ready()
            config = self.bootstrap(plane.secure)
            config["node"]["metadata"] |= mode.metadata
            with Gateway(config) as gateway:
                yield Served(plane, gateway, began, lambda: _isthmus_counts(plane.metrics()))

    @contextmanager
    def istiod(self) -> Iterator[Served]:
        """The peer, with its defaults, but for what a stock Envoy lacks."""
        began = time.monotonic()
        with Istiod(HOME, self._kubeconfig, environ=_WITHOUT, mesh=_PLAIN, cacerts=self.cacerts) as plane:
            plane.ready()
            with Gateway(_for_istiod(self.bootstrap(plane.secure))) as gateway:
                yield Served(plane, gateway, began, lambda: _istiod_counts(plane.metrics()))

    def bootstrap(self, port: int) -> Document:
        """Of an Envoy that is the gateway, by the control plane on a port of this machine."""
        return bootstrap(
            GatewayProxy(
                role="ingress",
                xds=SocketAddress("localhost", port),
                root_certificates=str(self.cacerts / "root-cert.pem"),
                token=self._token,
                pod="ingress-1",
                namespace=NAMESPACE,
                service_account="ingress",
                cluster=HOME,
                network="net-west",
                address=GATEWAY,
                bind=GATEWAY,
                http_port=self._ports.http,
                https_port=self._ports.https,
                admin=SocketAddress(GATEWAY, free_port(GATEWAY)),
                status=SocketAddress(GATEWAY, free_port(GATEWAY)),
            )
        )


def _for_istiod(config: Document) -> Document:
    """The same Envoy as istiod knows its gateways."""
    labels = {"istio": "ingressgateway", "app": "ingress"}
    config["node"]["metadata"] |= {"LABELS": labels, "ISTIO_VERSION": "1.31.0", "NODE_NAME": "node-1"}
    service = config["dynamic_resources"]["ads_config"]["grpc_services"][0]["google_grpc"]
    name = {"string_value": "istiod.istio-system.svc"}
    service["channel_args"]["args"]["grpc.ssl_target_name_override"] = name
    return config


def metrics(text: str) -> dict[str, float]:
    """Of a page for Prometheus the sum over all labels, by name."""
    sums: dict[str, float] = {}
    for match in re.finditer(r"^(\w+)(?:\{[^\n]*\})? ([^\s]+)", text, re.MULTILINE):
        sums[match[1]] = sums.get(match[1], 0.0) + float(match[2])
    return sums


def _isthmus_counts(text: str) -> Counts:
    some = metrics(text)
    sent = some.get("isthmus_xds_push_bytes_total", 0.0)
    return Counts(sent, some["isthmus_aggregate_functions_total"], some.get("isthmus_xds_digests_total"))


def _istiod_counts(text: str) -> Counts:
    return Counts(metrics(text).get("pilot_xds_config_size_bytes_sum", 0.0))
