"""`isthmus domains` with a real Envoy: what it says of a gateway is what the gateway does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from aggregator.cli.main import app
from tests.kit.eventually import eventually
from tests.kit.ingress_gateway import IngressGateway


async def isthmus(gateway: IngressGateway, *words: str) -> Any:
    command = ("domains", f"--admin=127.0.0.1:{gateway.plane.control.admin.port}", *words)
    return await asyncio.to_thread(CliRunner().invoke, app, command)


async def test_a_domain_that_is_said_to_be_acknowledged_is_answered(tmp_path: Path, binary: Path) -> None:
    async with IngressGateway(tmp_path, binary) as gateway:
        gateway.apply(*gateway.secured("a.example.org"))
        found: dict[str, Any] = {}

        async def acknowledged() -> bool:
            nonlocal found
            done = await isthmus(gateway, "a.example.org", "-o", "json")
            found = json.loads(done.stdout)["items"][0] if done.exit_code == 0 else {}
            return found.get("acknowledged") == 1

        await gateway.envoy.until(acknowledged, "seen to acknowledge the domain")
        assert (found["state"], found["gateways"]) == ("Served", 1)
        assert 0 < found["activation"] < 5
        assert await gateway.status("a.example.org") == 200
        done = await isthmus(gateway, "get", "a.example.org")
        assert done.exit_code == 0
        assert "1 of 1 have acknowledged" in done.stdout
        await gateway.envoy.stop()
        await eventually(lambda: len(gateway.plane.control.streams) == 0)
        done = await isthmus(gateway, "a.example.org", "-o", "json")
        assert json.loads(done.stdout)["items"][0]["gateways"] == 0
