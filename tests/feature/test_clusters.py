"""`isthmus clusters` against a control plane whose clusters are API servers: what it shows is what is so."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec import Struct
from typer.testing import CliRunner

from aggregator.cli.main import app
from aggregator.cli.output import Format
from aggregator.operate.cluster_list import schema
from tests.kit.eventually import eventually
from tests.kit.kube_api import Hang
from tests.kit.plane import Plane
from tests.kit.process import run_arguments, running
from tests.kit.two_api_servers import TwoApiServers


class Done(Struct):
    """How a command ended and what it said."""

    code: int
    out: str
    notes: str


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[TwoApiServers]:
    both = TwoApiServers(tmp_path)
    async with both.served():
        yield both


async def isthmus(admin: int, *words: str) -> Done:
    """`isthmus clusters`, in a thread, since the control plane it asks is in this loop."""
    words = ("clusters", "--admin", f"127.0.0.1:{admin}", *words)
    done = await asyncio.to_thread(CliRunner().invoke, app, words)
    return Done(done.exit_code, done.stdout, done.stderr)


async def shown(plane: Plane, cluster: str = "beta") -> dict[str, Any]:
    """One cluster as JSON."""
    done = await isthmus(plane.control.admin.port, "get", cluster, "-o", "json")
    found: dict[str, Any] = json.loads(done.out)
    return found


def black_hole(servers: TwoApiServers) -> float:
    """From now on nothing comes from beta any more; returns now."""
    servers.beta.freeze()
    servers.beta.script(Hang(), times=None)
    return time.time()


async def state(plane: Plane, wanted: str) -> None:
    """Waits until beta is in a state of its fact."""
    await eventually(lambda: plane.cluster("beta").state == wanted, 15.0)


async def test_clusters_of_a_process_are_shown_with_what_the_mesh_has_of_them(servers: TwoApiServers) -> None:
    servers.register()
    async with running(*run_arguments(f"alpha={servers.write(servers.alpha)}")) as process:
        await process.ready()
        command = ("clusters", "--admin", process.target("admin"))
        async with running(*command) as table:
            assert await table.ended() == 0, table.said
        assert [line.split()[:7] for line in table.answers] == [
            ["CLUSTER", "NETWORK", "STATE", "LAG", "SERVICES", "ENDPOINTS", "TOKEN-EXPIRES"],
            ["alpha", "net1", "Synced", table.answers[1].split()[3], "1", "2", "-"],
            ["beta", "net2", "Synced", table.answers[2].split()[3], "1", "3", "-"],
        ]
        async with running(*command, "get", "beta") as one:
            assert await one.ended() == 0, one.said
        said = {line[:20].strip(): line[20:] for line in one.answers}
        assert said["registered by"] == "Secret istio-system/far"
        assert said["reading"].startswith("dns ok | tcp ok | tls ok | auth ok | rbac ok ")
        assert said["server"].endswith("uid uid-of-beta")


@pytest.mark.parametrize("seconds", [0.0, 1.5, 4.0])
async def test_the_lag_of_a_silent_api_server_is_within_a_second_of_the_truth(
    servers: TwoApiServers, seconds: float
) -> None:
    servers.register()
    async with servers.plane() as plane:
        await state(plane, "synced")
        began = black_hole(servers)
        await asyncio.sleep(seconds)  # What is shown is how long it lasts.
        found = await shown(plane)
        truth = datetime.fromisoformat(found["observed"]).timestamp() - began
        assert abs(found["lag"] - truth) < 1.0
        assert found["state"] == "Stale"


async def test_every_format_ends_with_2_while_a_cluster_is_stale_and_json_keeps_to_its_schema(
    servers: TwoApiServers,
) -> None:
    servers.register()
    async with servers.plane() as plane:
        await state(plane, "synced")
        black_hole(servers)
        await state(plane, "stale")
        for form in Format:
            done = await isthmus(plane.control.admin.port, "-o", form)
            assert (done.code, done.notes) == (2, "1 of 2 clusters needs attention (exit 2)\n")
            if form is Format.JSON:
                jsonschema.validate(json.loads(done.out), schema(), format_checker=jsonschema.FormatChecker())
        assert "answer FAIL" in (await isthmus(plane.control.admin.port, "get", "beta")).out


async def test_a_revoked_token_is_denied_where_the_credential_is_checked(servers: TwoApiServers) -> None:
    servers.register("t2")
    async with servers.plane() as plane:
        await state(plane, "synced")
        servers.beta.tokens = {"t1"}
        found = await shown(plane)
        assert (found["state"], found["services"], found["endpoints"]) == ("Denied", 1, 3)
        done = await isthmus(plane.control.admin.port, "get", "beta")
        assert done.code == 2
        assert "dns ok | tcp ok | tls ok | auth FAIL (401 Unauthorized" in done.out


async def test_a_new_credential_that_does_not_work_is_pending_while_the_old_one_reads(servers: TwoApiServers) -> None:
    servers.register("t1")
    async with servers.plane() as plane:
        await state(plane, "synced")
        servers.register("t9")
        await eventually(lambda: "the new credential" in plane.cluster("beta").reason)
        found = await shown(plane)
        assert (found["state"], found["services"]) == ("UpdatePending", 1)
        assert found["lag"] < 1.0
        assert (await isthmus(plane.control.admin.port)).code == 2


async def test_a_cluster_that_was_removed_is_shown_for_a_while_and_needs_no_attention(servers: TwoApiServers) -> None:
    servers.register()
    async with servers.plane() as plane:
        await state(plane, "synced")
        servers.alpha.delete("Secret", "istio-system/far")
        await eventually(lambda: [name for name, _ in plane.control.clusters.states()] == ["alpha"])
        found = await shown(plane)
        assert (found["state"], found["services"], found["endpoints"]) == ("Removed", 0, 0)
        assert (await isthmus(plane.control.admin.port)).code == 0


async def test_a_name_there_is_not_is_answered_with_those_there_are(servers: TwoApiServers) -> None:
    servers.register()
    async with servers.plane() as plane:
        await state(plane, "synced")
        assert (await plane.admin("/clusters/gamma")).status == 404
        done = await isthmus(plane.control.admin.port, "get", "gamma")
        assert done.code == 64
        assert done.notes.endswith("no cluster gamma; there are: alpha, beta\n")
