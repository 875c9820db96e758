"""Control planes that are measured beside each other: processes started as their operators would, asked by xDS alone.

Isthmus and istiod read the same home cluster by a kubeconfig and find the others in Secrets there. What is known of one
while it runs is what any process shows (its CPU time, its memory, its end) and what its clients are sent: nothing here
looks into either.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from tests.bench.memory import Used, cpu_time, used
from tests.kit.go_builds import NoProgram
from tests.kit.istiod import VERSION, Istiod, answer, binary
from tests.kit.ports import free_ports
from tests.kit.spawned import Spawned

REPOSITORY = Path(__file__).parents[2]


class ControlPlane(Protocol):
    """A process that serves proxies while its context is open."""

    pid: int
    xds: int
    """Its port for xDS in plaintext."""
    secure: int
    """Its port for xDS with TLS and tokens."""

    def ready(self, deadline: float = 120.0) -> None:
        """Waits until it says that it is ready. Raises TimeoutError with what it said."""

    def is_ready(self) -> bool:
        """Whether it says so now."""

    def troubled(self, cluster: str) -> bool:
        """Whether it tells its operators now that it cannot read a cluster."""

    def collect_garbage(self) -> None:
        """Tells it to, if that can be told from outside."""

    def terminate(self) -> None:
        """Tells it to end, as Kubernetes does first."""

    def ended(self) -> bool:
        """Whether it has."""

    def log(self) -> str:
        """What it said."""


Starter = Callable[[str, bytes], AbstractContextManager[ControlPlane]]
"""Starts one on a home cluster: its name, its kubeconfig."""


class Isthmus(Spawned):
    """A process of `isthmus run` while the context is open; with more flags than it takes to be asked."""

    def __init__(self, cluster: str, kubeconfig: bytes, *flags: str) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="isthmus-bench-")
        home = Path(scratch.name, "kubeconfig")
        home.write_bytes(kubeconfig)
        self.xds, self.secure, self._health, self._admin = ports = free_ports(4)
        command = [sys.executable, "-m", "aggregator.cli.main", "run", "--local", f"{cluster}={home}", *flags]
        for flag, port in zip(("xds-plaintext", "xds", "health", "admin"), ports, strict=True):
            command += [f"--{flag}", f"127.0.0.1:{port}"]
        command += ["--xds-mtls", "off"]
        log = Path(scratch.name, "log").open("w+")  # noqa: SIM115 - the process writes to it
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
        )
        super().__init__(process, scratch, log)
        self._lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def ready(self, deadline: float = 120.0) -> None:
        """Waits until it says so. Raises TimeoutError with the end of its log."""
        end = time.monotonic() + deadline
        while not any(re.match(r"ready in ", line) for line in self._lines):
            if self._process.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"Isthmus is not ready; it said:\n{self.log()[-3000:]}")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """By its readiness probe."""
        return answer(f"http://127.0.0.1:{self._health}/ready") is not None

    def troubled(self, cluster: str) -> bool:
        """By its page of clusters."""
        page = answer(f"http://127.0.0.1:{self._admin}/clusters")
        states = {one["cluster"]: one["state"] for one in msgspec.json.decode(page)["items"]} if page else {}
        return states.get(cluster, "Synced") in ("Connecting", "Stale", "Denied", "UpdatePending")

    def collect_garbage(self) -> None:
        """It does as it likes."""

    def metrics(self) -> str:
        """Its counters and gauges, as Prometheus reads them."""
        return (answer(f"http://127.0.0.1:{self._admin}/metrics") or b"").decode()

    def log(self) -> str:
        """All that it said."""
        return "".join(self._lines) + Path(self._log.name).read_text(errors="replace")

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines.extend(iter(self._process.stdout.readline, ""))


def peers(*, build: bool) -> dict[str, Starter]:
    """What there is to be measured, by name; unless `build`, istiod only if it was built before. Says if it is not."""
    some: dict[str, Starter] = {"isthmus": Isthmus}
    try:
        binary(build=build)
    except NoProgram as error:
        print(f"# peer=none: istiod {VERSION} is absent: {error}", flush=True)
    else:
        print(f"# the peer is istiod {VERSION}", flush=True)
        some["istiod"] = Istiod
    return some


def quiet(plane: ControlPlane, *, seconds: float = 1.5, below: float = 0.025, deadline: float = 120.0) -> Used:
    """Waits until it has used less than `below` of a core for that long (longer if it never does, until the deadline);
    returns what it has used by then.
    """
    end = time.monotonic() + deadline
    calm = 0.0
    while calm < seconds and time.monotonic() < end:
        before = cpu_time(plane.pid)
        time.sleep(0.5)
        calm = calm + 0.5 if cpu_time(plane.pid) - before < below * 0.5 else 0.0
    return used(plane.pid)


def cpu_during(plane: ControlPlane, during: Callable[[], object]) -> float:
    """CPU while something happens, in percent of a core."""
    before, began = used(plane.pid).cpu, time.monotonic()
    during()
    return 100 * (used(plane.pid).cpu - before) / (time.monotonic() - began)


