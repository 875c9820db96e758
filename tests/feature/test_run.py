"""`isthmus run` as its users see it: what it prints and answers, how it ends, and what it says when it cannot start."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from aggregator.admin.server import ListenError
from aggregator.app.setting_values import address
from aggregator.app.settings import SettingsError
from aggregator.cli.run import sort_failures
from tests.kit import manifests as m
from tests.kit.certificates import Issuer, private_pem, write_cacerts
from tests.kit.eventually import eventually, eventually_awaited
from tests.kit.manifests import write_manifests
from tests.kit.pages import page
from tests.kit.plane import Clock, Plane, write_identities
from tests.kit.process import ANY_PORT, Isthmus, run_arguments, running
from tests.kit.ztunnel import StreamEnd, Ztunnel, ZtunnelClient
from tests.kit.ztunnel.grpc_transport import GrpcDialer

TOKEN = "a-token-nobody-may-see"


@pytest.fixture
def west(tmp_path: Path) -> Path:
    """A home cluster: one service, two pods, and the address of one pod that is none."""
    write_manifests(
        tmp_path / "west",
        m.namespace("shop"),
        m.service("shop/cart", "10.96.0.1", selector={"app": "cart"}),
        m.pod("shop/cart-1", "10.10.0.1", labels={"app": "cart"}),
        m.pod("shop/cart-2", "10.10.0.2", labels={"app": "cart"}),
    )
    write_manifests(tmp_path / "west", m.pod("shop/odd", "10.10.0.300"), file="odd.yaml")
    return tmp_path / "west"


@pytest.fixture
def east(tmp_path: Path) -> Path:
    """A remote cluster of one pod."""
    write_manifests(tmp_path / "east", m.namespace("shop"), m.pod("shop/pay-1", "10.10.1.1"))
    return tmp_path / "east"


@pytest.fixture
def taken() -> Iterator[str]:
    """An address somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


class Connected:
    """A ztunnel that is connected to a process, in plaintext."""

    def __init__(self, process: Isthmus) -> None:
        self._dialer = GrpcDialer(process.target("xds plaintext"))
        self.client = ZtunnelClient(Ztunnel().machine)

    async def __aenter__(self) -> asyncio.Task[StreamEnd]:
        stream = asyncio.create_task(self.client.run(await self._dialer.open()))
        await self.client.until(lambda machine: machine.ready)
        return stream

    async def __aexit__(self, *error: object) -> None:
        await self._dialer.close()


# It runs.


async def test_it_serves_answers_and_stops(west: Path, east: Path, tmp_path: Path) -> None:
    """One life of a process, told in order, since each start costs a second of CPU."""
    root, config = tmp_path / "root.pem", tmp_path / "isthmus.yaml"
    identities = write_identities(tmp_path / "identities.json", {TOKEN: ("istio-system/ztunnel", "")})
    identities.write_text(identities.read_text().replace("cluster.local", "example.org"))
    config.write_text("local: {west: west}\nremote: {east: ./east}\nidentities: identities.json\ndrain: 3s\n")
    ports = [word for flag in ("--xds", "--xds-mtls", "--health", "--admin") for word in (flag, ANY_PORT)]
    arguments = [*ports, "--drain", "1s", "--root-cert-out", str(root), "--log-level", "debug", "--log-format", "json"]
    variables = {"ISTHMUS_TRUST_DOMAIN": "example.org", "ISTHMUS_DRAIN": "2s"}
    async with running("run", "--config", config, *arguments, environ=variables) as process:
        line = await process.ready()
        assert re.fullmatch(r"ready in \d+\.\d\d s: 2 clusters, 1 services, 3 workloads, 0 domains", line)

        health, admin = process.ports["health"], process.ports["admin"]
        ready = await page(health, "/ready")
        assert (ready.status, ready.json()) == (200, {"ready": True, "waiting": [], "unsettled": []})
        assert (await page(health, "/live")).status == 200
        index = (await page(admin, "/")).json()
        assert {"/metrics", "/version", "/clusters", "/findings"} <= set(index)
        clusters = (await page(admin, "/clusters")).json()["items"]
        assert [(one["cluster"], one["state"], one["home"]) for one in clusters] == [
            ("west", "Synced", True),
            ("east", "Synced", False),
        ]
        (finding,) = (await page(admin, "/findings")).json()
        assert finding.startswith("Pod shop/odd in west: ")

        dialer = GrpcDialer(process.target("xds"), root=root.read_bytes(), token=TOKEN, hostname="localhost")
        client = ZtunnelClient(Ztunnel().machine)
        stream = asyncio.create_task(client.run(await dialer.open()))
        await client.until(lambda machine: machine.ready)

        async def metrics() -> str:
            text = (await page(admin, "/metrics")).text
            # A push is counted once it is written, which the client may know first.
            return text if re.search(r'isthmus_xds_push_bytes_total\{type="Address"\} [1-9]', text) else ""

        told = await eventually_awaited(metrics)
        assert 'isthmus_cluster_state{cluster="east",state="synced"} 1.0' in told
        assert 'isthmus_xds_streams{kind="delta"} 1.0' in told

        process.signal(signal.SIGTERM)
        end = await asyncio.wait_for(stream, 10)
        await dialer.close()
        assert (end.code, end.details) == (
            "UNAVAILABLE",
            "server is draining: connect again, to another replica if there is one",
        )
        assert await process.ended() == 0
    assert process.answers == [line]

    events = [json.loads(line) for line in process.lines]
    assert all({"time", "level", "event"} <= set(event) for event in events)
    assert [event["event"] for event in events if event["level"] not in ("debug", "info")] == [
        "signing with a root of its own"
    ]
    settings = {event["name"]: (event["value"], event["origin"]) for event in events if event["event"] == "setting"}
    assert settings["drain"] == ("1s", "--drain")
    assert settings["trust-domain"] == ("example.org", "ISTHMUS_TRUST_DOMAIN")
    assert settings["remote"] == (f"east={east}", f"{config} line 2, key remote")
    assert settings["remote-timeout"] == ("30s", "default")
    assert TOKEN not in process.said
    assert "-----BEGIN" not in process.said


async def test_a_second_signal_kills_what_is_still_draining(west: Path) -> None:
    arguments = [*run_arguments(f"west={west}", plaintext=True), "--drain", "60s"]
    async with running(*arguments) as process:
        await process.ready()
        async with Connected(process) as first, Connected(process) as second:
            process.signal(signal.SIGTERM)
            done, open_still = await asyncio.wait((first, second), timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == len(open_still) == 1  # they end one by one, over a minute
            ready = await page(process.ports["health"], "/ready")
            assert (ready.status, ready.json()["waiting"]) == (503, ["the process is stopping"])
            process.signal(signal.SIGTERM)
            assert await process.ended() == -signal.SIGTERM
            await asyncio.wait(open_still, timeout=10)


# It cannot start.


async def refused(*arguments: str | Path) -> tuple[int, list[str]]:
    """Exit code and what was said of a process that does not start, its log left out."""
    async with running(*arguments, "--log-level", "error") as process:
        code = await process.ended()
    assert process.answers == []
    return code, process.lines


async def test_an_unknown_flag_is_wrong_usage() -> None:
    code, lines = await refused("run", "--locals", "west=west")
    assert code == 2
    assert lines[-1].startswith("Error: No such option: --locals")
    assert "--local" in lines[-1]


async def test_a_kubeconfig_that_cannot_be_used_is_a_failure_that_names_its_flag(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("kind: Config\n")
    assert await refused("run", "--local", f"west={kubeconfig}") == (
        1,
        [
            "isthmus: --local: cluster 'west': current-context is missing; name the context that is to be used",
        ],
    )


async def test_two_clusters_of_one_name_are_wrong_usage(west: Path, east: Path) -> None:
    assert await refused(*run_arguments(f"west={west}", f"west={east}")) == (
        2,
        ["isthmus: --remote: cluster 'west' is given twice; give every cluster its own name"],
    )


async def test_a_directory_that_is_missing_is_a_failure_that_names_its_flag_and_cluster(west: Path) -> None:
    gone = west.parent / "gone"
    assert await refused(*run_arguments(f"west={west}", f"north={gone}")) == (
        1,
        [f"isthmus: --remote: cluster 'north': {gone} does not exist; create it, or correct the path of the source"],
    )


async def test_a_port_that_is_taken_is_a_failure_that_names_its_flag(west: Path, taken: str) -> None:
    code, lines = await refused(*run_arguments(f"west={west}"), "--xds", taken)
    assert code == 1
    assert lines == [
        (
            f"isthmus: --xds: cannot listen on {taken}: Address already in use; stop what listens there, or choose "
            "another address or port"
        )
    ]


async def test_a_token_file_that_cannot_be_used_is_a_failure_that_names_flag_file_and_entry(west: Path) -> None:
    identities = west.parent / "identities.json"
    identities.write_text(json.dumps({TOKEN: {"identity": "shop/cart"}}))
    code, (line,) = await refused(*run_arguments(f"west={west}"), "--identities", identities)
    assert code == 1
    assert line == (
        f"isthmus: --identities: token file {identities}: entry 1: field identity: 'shop/cart' is not of the form "
        "spiffe://<trust domain>/ns/<namespace>/sa/<service account>"
    )


async def test_a_ca_that_cannot_sign_is_a_failure_that_names_flag_and_file(west: Path) -> None:
    root, other = Issuer("root"), Issuer("other")
    cacerts = write_cacerts(west.parent / "cacerts", root, roots=[root], key=private_pem(other.key))
    code, lines = await refused(*run_arguments(f"west={west}"), "--cacerts", cacerts)
    assert code == 1
    assert lines == [
        (
            f"isthmus: --cacerts: {cacerts}/ca-key.pem: not the key of the first certificate in ca-cert.pem; give the "
            "pair"
        )
    ]


def listening() -> set[int]:
    """The ports this process listens on."""
    own = {str(descriptor.readlink()) for descriptor in Path("/proc/self/fd").iterdir() if descriptor.is_symlink()}
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


@pytest.mark.parametrize("name", ["health", "admin", "xds", "xds_plaintext"])
async def test_a_port_that_is_taken_is_told_by_flag_and_leaves_nothing_bound(west: Path, taken: str, name: str) -> None:
    before, settings = listening(), cast("dict[str, Any]", {name: address(taken)})
    with pytest.raises((ListenError, SettingsError)) as caught:
        async with Plane(west, **settings):
            pass
    flag = f"--{name.replace('_', '-')}"
    assert str(caught.value).startswith(f"{flag}: cannot listen on {taken}: Address already in use; ")
    assert listening() == before


async def test_a_directory_that_is_missing_leaves_nothing_bound(west: Path) -> None:
    before = listening()
    with pytest.raises(ExceptionGroup) as caught:
        async with Plane(west, west.parent / "gone"):
            pass
    assert sort_failures(caught.value)[0] == [
        f"--remote: cluster 'gone': {west.parent}/gone does not exist; create it, or correct the path of the source"
    ]
    assert listening() == before


async def test_a_root_certificate_that_cannot_be_written_is_told_by_flag_and_leaves_nothing_bound(west: Path) -> None:
    before = listening()
    root = west.parent / "no" / "root.pem"
    with pytest.raises(SettingsError) as caught:
        async with Plane(west, root_cert_out=root):
            pass
    assert str(caught.value) == (
        f"--root-cert-out: {root} cannot be written: No such file or directory; check path and permissions"
    )
    assert listening() == before


# It says what it waits for.


async def test_it_is_not_ready_before_home_is_read_whatever_the_time(west: Path, east: Path) -> None:
    clock = Clock()
    async with Plane(west, east, held=["west"], now=clock, remote_timeout=0.02) as plane:
        await eventually(lambda: plane.cluster("east").state == "synced")
        clock.now += 3600
        ready = await plane.health("/ready")
        assert ready.status == 503
        assert ready.json()["waiting"] == [
            "cluster west is connecting",
            "the first complete pass is not published yet",
        ]
        plane.release("west")
        await plane.serving()
        assert (await plane.health("/ready")).status == 200


async def test_it_waits_for_a_remote_and_is_ready_once_it_is_read(
    west: Path, east: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Plane(west, east, held=["east"]) as plane:
        await eventually(plane.control.aggregator.complete.is_set)
        ready = await plane.health("/ready")
        assert (ready.status, ready.json()) == (
            503,
            {"ready": False, "waiting": ["cluster east is connecting"], "unsettled": ["cluster east is connecting"]},
        )
        assert capsys.readouterr().out == ""
        plane.release("east")
        await plane.serving()
        assert (await plane.health("/ready")).json() == {"ready": True, "waiting": [], "unsettled": []}
        assert capsys.readouterr().out.endswith(": 2 clusters, 1 services, 3 workloads, 0 domains\n")


async def test_a_remote_that_is_not_read_in_time_is_told_and_not_waited_for(west: Path, east: Path) -> None:
    clock = Clock()
    async with Plane(west, east, held=["east"], now=clock, remote_timeout=0.02) as plane:
        await eventually(plane.control.aggregator.complete.is_set)
        assert (await plane.health("/ready")).status == 503
        clock.now += 1
        await plane.serving()
        ready = await plane.health("/ready")
        assert (ready.status, ready.json()) == (
            200,
            {"ready": True, "waiting": [], "unsettled": ["cluster east is connecting"]},
        )
        assert (await plane.admin("/clusters/east")).json()["state"] == "Connecting"
        assert 'isthmus_cluster_state{cluster="east",state="connecting"} 1.0' in (await plane.admin("/metrics")).text
