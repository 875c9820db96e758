"""A control plane when something is at fault: its files, its directories, its clock, its tokens, or itself."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.kit.certificates import signing_request
from tests.kit.eventually import eventually
from tests.kit.plane import Clock, Plane, learned, told, write_identities
from tests.kit.two_clusters import CART, CART_1, CART_2, CART_3, CLIENT, GATEWAY, TOKEN, WAY, TwoClusters
from tests.kit.ztunnel import ADDRESS_TYPE, AUTHORIZATION_TYPE, Ztunnel
from watchers import watching
from watchers.sink import Facts
from xds.client import StreamEnded
from xds.encoded import Encoded
from xds.messages import workload

ZTUNNEL = "spiffe://cluster.local/ns/istio-system/sa/ztunnel"
EVERYTHING = {CLIENT, CART_1, CART_2, CART, GATEWAY, WAY}


@pytest.fixture
def world(tmp_path: Path) -> TwoClusters:
    return TwoClusters(tmp_path)


# Files and directories.


def moved_away(directory: Path) -> Path:
    """Renames a directory, which is then gone in one step; returns where it is now."""
    return directory.rename(directory.with_name("elsewhere"))


@pytest.mark.parametrize("name", ["alpha", "beta"])
async def test_a_directory_that_goes_away_keeps_its_content_and_is_told_by_state(world: TwoClusters, name: str) -> None:
    directory = world.alpha if name == "alpha" else world.beta
    other, changed = (world.beta, WAY) if name == "alpha" else (world.alpha, CART_2)
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        seen = len(machine.received)
        moved_away(directory)
        await eventually(lambda: plane.cluster(name).state == "stale")
        assert plane.cluster(name).reason == f"{directory} cannot be read: No such file or directory"
        world.cart_pod(other, 2, ready=False)
        await told(client, changed)
        assert [(each.resources, each.removed) for each in list(machine.received)[seen:]] == [((changed,), ())]
        async with plane.connect(Ztunnel("net1")) as newcomer:
            assert set((await learned(newcomer)).held(ADDRESS_TYPE)) >= EVERYTHING
        assert (await plane.health("/ready")).status == 200


@pytest.mark.parametrize("name", ["alpha", "beta"])
async def test_a_directory_that_comes_back_brings_only_what_has_changed(world: TwoClusters, name: str) -> None:
    directory = world.alpha if name == "alpha" else world.beta
    changed = CART_2 if name == "alpha" else WAY
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        elsewhere = moved_away(directory)
        await eventually(lambda: plane.cluster(name).state == "stale")
        world.cart_pod(elsewhere, 2, ready=False)
        seen = len(machine.received)
        elsewhere.rename(directory)
        await told(client, changed)
        assert [(each.resources, each.removed) for each in list(machine.received)[seen:]] == [((changed,), ())]
        await eventually(lambda: plane.cluster(name).state == "synced")
        assert plane.cluster(name).reason == ""


async def test_a_directory_made_anew_withdraws_nothing_before_it_is_filled(world: TwoClusters) -> None:
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        seen = len(machine.received)
        elsewhere = moved_away(world.beta)
        world.beta.mkdir()
        await eventually(lambda: plane.cluster("beta").state == "stale")
        world.cart_pod(world.alpha, 3)
        await told(client, CART_3)
        assert [each.removed for each in list(machine.received)[seen:]] == [()]
        world.beta.rmdir()
        elsewhere.rename(world.beta)
        await eventually(lambda: plane.cluster("beta").state == "synced")


def endless(file: Path) -> None:
    """Text that unfolds to 2^40 words."""
    folds = "".join(f"f{n}: &f{n} [*f{n - 1}, *f{n - 1}]\n" for n in range(1, 40))
    file.write_text(f"apiVersion: v1\nkind: Pod\nf0: &f0 x\n{folds}")


def to_itself(file: Path) -> None:
    """A link that leads nowhere."""
    file.unlink()
    file.symlink_to(file)


def pipe(file: Path) -> None:
    """What would block whoever reads it."""
    file.unlink()
    os.mkfifo(file)


GARBAGE: dict[str, Callable[[Path], object]] = {
    "bytes": lambda file: file.write_bytes(bytes(range(256)) * 8),
    "half a character": lambda file: file.write_bytes(file.read_bytes() + "# ü".encode()[:-1]),
    "nothing": lambda file: file.write_bytes(b""),
    "endless": endless,
    "to itself": to_itself,
    "pipe": pipe,
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_a_file_that_turns_into_garbage_withdraws_nothing_and_is_told_until_it_is_mended(
    world: TwoClusters, kind: str
) -> None:
    file = world.alpha / "cart-1.yaml"
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        seen = len(machine.received)
        GARBAGE[kind](file)
        (finding,) = await eventually(plane.control.findings)
        assert finding.startswith("SourceFault cart-1.yaml in alpha: cart-1.yaml:")
        world.cart_pod(world.alpha, 2, ready=False)
        await told(client, CART_2)
        world.cart_pod(world.alpha, 1, ready=False)
        await told(client, CART_1)
        assert [(each.resources, each.removed) for each in list(machine.received)[seen:]] == [
            ((CART_2,), ()),
            ((CART_1,), ()),
        ]
        await eventually(lambda: not plane.control.findings())


# The control plane itself.


class Poison:
    """Makes the encoder of workloads fail for those of one name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = ""
        encode = workload.encode_workload

        def encode_unless_poisoned(message: workload.Workload) -> Encoded:
            if message.name == self.name:
                raise ZeroDivisionError("poisoned")
            return encode(message)

        monkeypatch.setattr(workload, "encode_workload", encode_unless_poisoned)


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Poison:
    return Poison(monkeypatch)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged as an error."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_an_object_that_makes_a_derivation_raise_is_withheld_alone_and_logged(
    world: TwoClusters, poison: Poison, caplog: pytest.LogCaptureFixture
) -> None:
    poison.name = "cart-1"
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        assert set(machine.held(ADDRESS_TYPE)) >= EVERYTHING - {CART_1}
        assert CART_1 not in machine.held(ADDRESS_TYPE)
        assert failures(caplog) == ["derivation failed, its item is withheld"]
        (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert "cart-1" in str(vars(record)["item"])
        assert vars(record)["cause"] == "ZeroDivisionError: poisoned"
        world.client(app="shopfront")
        await told(client, CLIENT)
        poison.name = ""
        world.cart_pod(world.alpha, 1, ready=False)
        assert (await told(client, CART_1)).resources == (CART_1,)


async def test_a_derivation_that_raises_after_an_edit_costs_that_object_alone(
    world: TwoClusters, poison: Poison, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        poison.name = "cart-1"
        world.cart_pod(world.alpha, 1, ready=False)
        change = await told(client, CART_1)
        assert (change.resources, change.removed) == ((), (CART_1,))
        assert failures(caplog) == ["derivation failed, its item is withheld"]
        world.client(app="shopfront")
        assert (await told(client, CLIENT)).resources == (CLIENT,)


async def test_a_watcher_that_dies_takes_the_process_down_with_its_reason_and_ends_streams_as_unavailable(
    world: TwoClusters,
) -> None:
    die = asyncio.Event()

    async def dies(cluster: str, path: Path, facts: Facts, **settings: Any) -> None:
        await die.wait()
        raise ZeroDivisionError("a defect of the watcher")

    async with world.plane(watches={"beta": dies}) as plane, plane.client() as client, client.delta() as stream:
        await stream.subscribe(AUTHORIZATION_TYPE)
        await stream.receive()
        die.set()
        failure = await plane.failure()
        with pytest.raises(StreamEnded) as caught:
            await stream.receive()
    assert isinstance(failure, ExceptionGroup)
    assert {repr(each) for each in failure.exceptions} == {"ZeroDivisionError('a defect of the watcher')"}
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


# Tokens and time.


async def status(plane: Plane, token: str) -> grpc.StatusCode | None:
    """What a stream with this token is refused with; None if it is served."""
    try:
        async with plane.client(token) as client:
            await client.create_certificate(signing_request(ZTUNNEL))
    except StreamEnded as ended:
        code: grpc.StatusCode = ended.code
        return code
    return None


async def test_tokens_that_come_and_go_in_the_file_count_from_the_next_call_on(world: TwoClusters) -> None:
    async with world.plane() as plane, plane.connect(Ztunnel("net1"), TOKEN) as client:
        await learned(client)
        write_identities(world.identities, {"new": ("istio-system/ztunnel", "alpha-1")})
        assert await status(plane, TOKEN) is grpc.StatusCode.UNAUTHENTICATED
        assert await status(plane, "new") is None
        world.cart_pod(world.alpha, 2, ready=False)  # the stream that was opened with the old one goes on
        await told(client, CART_2)


async def test_a_token_file_that_breaks_keeps_its_tokens_and_is_logged_once(
    world: TwoClusters, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.plane() as plane:
        world.identities.write_text("{ a secret: ")
        assert [await status(plane, TOKEN) for _ in range(3)] == [None, None, None]
        assert failures(caplog) == ["token file not usable, keeping its last good content"]
        assert "secret" not in caplog.text
        world.identities.unlink()
        assert await status(plane, TOKEN) is None
        write_identities(world.identities, {"new": ("istio-system/ztunnel", "alpha-1")})
        assert await status(plane, TOKEN) is grpc.StatusCode.UNAUTHENTICATED
        assert await status(plane, "new") is None


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
async def test_a_jump_of_the_clock_withdraws_nothing_and_changes_still_get_through(
    world: TwoClusters, jump: float
) -> None:
    clock = Clock()
    async with world.plane(now=clock) as plane, plane.connect(Ztunnel("net1")) as client:
        machine = await learned(client)
        seen = len(machine.received)
        clock.now += jump
        world.cart_pod(world.alpha, 2, ready=False)
        await told(client, CART_2)
        world.cart_pod(world.beta, 2, ready=False)
        await told(client, WAY)
        assert [(each.resources, each.removed) for each in list(machine.received)[seen:]] == [
            ((CART_2,), ()),
            ((WAY,), ()),
        ]
        assert (await plane.health("/ready")).status == 200


async def test_a_wall_clock_set_back_does_not_postpone_the_limit_of_an_unread_remote(
    world: TwoClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = time.time
    async with world.plane(held=["beta"], remote_timeout=0.2) as plane:
        monkeypatch.setattr(time, "time", lambda: wall() - 3600)
        world.cart_pod(world.alpha, 3)
        await plane.serving()


async def test_a_wall_clock_set_forward_does_not_let_the_limit_of_an_unread_remote_pass(
    world: TwoClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = time.time
    async with world.plane(held=["beta"], remote_timeout=3600) as plane, plane.connect(Ztunnel("net1")) as client:
        monkeypatch.setattr(time, "time", lambda: wall() + 7200)
        await learned(client)
        world.cart_pod(world.alpha, 3)
        await told(client, CART_3)
        assert plane.control.readiness().waiting == ("cluster beta is connecting",)


async def test_a_directory_that_is_lost_for_too_long_is_reported_and_withdrawn_where_that_is_asked_for(
    world: TwoClusters, caplog: pytest.LogCaptureFixture
) -> None:
    clock, away = Clock(), world.beta.with_name("away")
    settings: dict[str, Any] = {"stale_after": 60.0, "stale_ttl": 300.0}
    async with world.plane(now=clock, **settings) as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        world.beta.rename(away)
        await eventually(lambda: plane.cluster("beta").state == "stale")
        assert plane.control.readiness().unsettled == ()
        (_, status) = plane.control.clusters.statuses()
        assert (status.state, status.withdrawn) == ("Stale", plane.cluster("beta").unconfirmed + 300)
        clock.now += 70
        # Time is looked at with the next change.
        world.cart_pod(world.alpha, 3)
        await told(client, WAY)
        (line,) = plane.control.readiness().unsettled
        assert line.endswith("(for longer than --stale-after)")
        clock.now += 300
        (world.alpha / "cart-3.yaml").unlink()
        await client.until(lambda machine: WAY not in machine.held(ADDRESS_TYPE))
        assert [
            record.__dict__["effect"] for record in caplog.records if record.message == "cluster past its limit"
        ] == [
            "its endpoints behind gateways count half",
            "its endpoints are withdrawn",
        ]
        assert (await plane.health("/ready")).status == 200
        away.rename(world.beta)
        await client.until(lambda machine: WAY in machine.held(ADDRESS_TYPE))
        assert plane.control.readiness().unsettled == ()


# For long.


def own_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def resident() -> int:
    """Bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_three_hundred_rewrites_leave_tasks_descriptors_objects_and_memory_flat(
    world: TwoClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As quick as files can be noticed; the pause for slow writers is of no use to one that renames into place.
    monkeypatch.setattr(watching, "QUIET", 2)
    monkeypatch.setattr(watching, "LONGEST_BURST", 10)

    async def rewrite(times: int) -> tuple[int, int, int, int]:
        for number in range(times):
            world.cart_pod(world.alpha, 2, ready=number % 2 == 1)
            await told(client, CART_2)
        gc.collect()
        return len(asyncio.all_tasks()), own_descriptors(), len(gc.get_objects()), resident()

    async with world.plane() as plane, plane.connect(Ztunnel("net1")) as client:
        await learned(client)
        before = await rewrite(100)
        after = await rewrite(200)
    tasks, descriptors, objects, memory = (b - a for a, b in zip(before, after, strict=True))
    assert (tasks, descriptors) == (0, 0)
    # Two objects are kept for each change, in the ring of records, which is far from full.
    assert objects < 2000
    assert memory < 8 << 20
