from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import pytest

from tests.kit.clock import virtual_time
from tests.kit.kubeconfigs import kubeconfig
from watchers.kubernetes.kubeconfig import NO_ALLOWANCES, ApiServer, InvalidKubeconfig, read_kubeconfig, with_token
from watchers.kubernetes.session import Broken, Reply
from watchers.kubernetes.token_renewal import Lives, TokenRenewal, warn
from watchers.registration import Claim, Origin

SERVER = "https://east.example"
SECRET = "/api/v1/namespaces/istio-system/secrets/far"
TOKENS = "/api/v1/namespaces/mesh/serviceaccounts/eyes/token"
LENGTH = 3600.0


def token(issued: float, *, serial: str = "old", **claims: Any) -> str:
    said = {"iat": issued, "exp": issued + LENGTH, "sub": "system:serviceaccount:mesh:eyes", "aud": ["api"], **claims}
    parts = ({"alg": "none"}, said, serial)
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


class World:
    """Home with one Secret, and one remote, east; what each was asked, and how each fails.

    Its time is `now`, or, `passing`, that of the loop.
    """

    def __init__(self, *, passing: bool = False) -> None:
        self.passing = passing
        self.claim = Claim("east", kubeconfig(SERVER, token(0.0)), Origin.SECRET, "far", "istio-system", "2026")
        self.held = self.claim.kubeconfig
        self.version = "7"
        self.to_home: list[tuple[str, str, Any]] = []
        self.to_remote: list[tuple[str, str, Any]] = []
        self.opened: list[ApiServer] = []
        self.closed = 0
        self.remote: int | Broken = 201
        self.home = 200
        self.leads = True
        self.now = 0.0
        self.renewed = 0

    def renewal(self) -> TokenRenewal:
        return TokenRenewal(
            Home(self),
            Lives(lambda: {"east": self.claim}, NO_ALLOWANCES),
            leads=lambda: self.leads,
            wall=self.wall,
            chance=lambda: 1.0,
            open_session=self.open,
        )

    def wall(self) -> float:
        return asyncio.get_running_loop().time() if self.passing else self.now

    def open(self, server: ApiServer) -> Remote:
        self.opened.append(server)
        return Remote(self)


class Home:
    def __init__(self, world: World) -> None:
        self.world = world

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes = b"",
        *,
        content_type: str = "",
        seconds: float,
    ) -> Reply:
        world = self.world
        sent: Any = json.loads(body) if body else None
        world.to_home.append((method, path, sent))
        if method == "GET":
            data = {"east": b64encode(world.held).decode()}
            return Reply(200, {}, json.dumps({"metadata": {"resourceVersion": world.version}, "data": data}).encode())
        if world.home == 200:
            assert content_type == "application/merge-patch+json"
            world.held = b64decode(sent["data"]["east"])
            world.renewed += 1
        return Reply(world.home, {}, b"{}")


class Remote:
    def __init__(self, world: World) -> None:
        self.world = world

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes = b"",
        *,
        content_type: str = "",
        seconds: float,
    ) -> Reply:
        world = self.world
        world.to_remote.append((method, path, json.loads(body)))
        if isinstance(world.remote, Broken):
            raise world.remote
        made = token(world.wall(), serial="new")
        return Reply(world.remote, {}, json.dumps({"status": {"token": made}}).encode())

    async def close(self) -> None:
        self.world.closed += 1


@pytest.fixture
def world() -> World:
    return World()


def told(caplog: pytest.LogCaptureFixture, message: str) -> int:
    return sum(record.getMessage() == message for record in caplog.records)


async def test_nothing_is_asked_before_two_thirds_of_a_tokens_life(world: World) -> None:
    world.now = 2390.0
    await world.renewal().renew_due()
    assert (world.to_home, world.to_remote) == ([], [])


async def test_a_new_token_is_asked_for_with_the_old_one_for_as_long_and_for_the_same_audience(world: World) -> None:
    world.now = 2400.0
    await world.renewal().renew_due()
    ((method, path, request),) = world.to_remote
    assert (method, path) == ("POST", TOKENS)
    assert request["spec"] == {"expirationSeconds": 3600, "audiences": ["api"]}
    assert world.opened[0].token == read_kubeconfig(world.claim.kubeconfig).token
    assert world.closed == 1


async def test_it_is_written_to_the_version_of_the_secret_that_was_read(world: World) -> None:
    world.now = 2400.0
    await world.renewal().renew_due()
    (read, _, _), (method, path, change) = world.to_home
    assert (read, method, path) == ("GET", "PATCH", SECRET)
    assert change["metadata"] == {"resourceVersion": "7"}
    assert list(change["data"]) == ["east"]


async def test_nothing_of_the_kubeconfig_changes_but_the_token(world: World) -> None:
    world.now = 2400.0
    await world.renewal().renew_due()
    before, after = json.loads(world.claim.kubeconfig), json.loads(world.held)
    assert before["users"][0]["user"].pop("token") != after["users"][0]["user"].pop("token")
    assert before == after


async def test_a_secret_that_has_changed_meanwhile_is_left_alone_and_no_token_is_made(world: World) -> None:
    world.now = 2400.0
    world.held = kubeconfig(SERVER, "another")
    await world.renewal().renew_due()
    assert world.to_remote == []
    assert world.renewed == 0


async def test_a_process_that_leads_no_more_writes_nothing(world: World) -> None:
    world.now = 2400.0
    world.leads = False
    await world.renewal().renew_due()
    assert world.renewed == 0


@pytest.mark.parametrize("origin", [Origin.FILE, Origin.SETTING])
async def test_what_no_secret_registers_is_not_renewed(world: World, origin: Origin) -> None:
    world.now = 2400.0
    world.claim = Claim("east", world.claim.kubeconfig, origin, "east.yaml")
    await world.renewal().renew_due()
    assert world.to_home == []


@pytest.mark.parametrize("text", ["opaque", "a.b.c", token(0.0, sub="someone"), token(0.0, exp=None)])
async def test_tokens_that_do_not_say_when_they_end_are_left_alone(world: World, text: str) -> None:
    world.now = 2400.0
    world.claim = Claim("east", kubeconfig(SERVER, text), Origin.SECRET, "far", "istio-system")
    await world.renewal().renew_due()
    assert world.to_home == []


@pytest.mark.parametrize("failure", [403, 401, 500, Broken("connect", "refused")])
async def test_a_renewal_that_fails_is_told_once_with_its_cause_and_writes_nothing(
    world: World, failure: int | Broken, caplog: pytest.LogCaptureFixture
) -> None:
    world.now = 2400.0
    world.remote = failure
    renewal = world.renewal()
    for _ in range(3):
        await renewal.renew_due()
        world.now += 200.0
    assert len(world.to_remote) > 1
    assert world.renewed == 0
    assert told(caplog, "token not renewed") == 1


async def test_no_token_is_in_any_line_or_repr(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world.now = 2400.0
    lives = Lives(lambda: {"east": world.claim}, NO_ALLOWANCES)
    await world.renewal().renew_due()
    text = f"{[vars(record) for record in caplog.records]} {lives.now()}"
    assert told(caplog, "token renewed") == 1
    assert not any(read_kubeconfig(data).token in text for data in (world.claim.kubeconfig, world.held))


@virtual_time
async def test_over_eight_hours_a_token_of_an_hour_is_renewed_every_forty_minutes() -> None:
    world = World(passing=True)

    async def registered() -> None:
        while True:  # As the watch of home would: what was written is what counts.
            await asyncio.sleep(20.0)
            world.claim = Claim("east", world.held, Origin.SECRET, "far", "istio-system")

    tasks = [asyncio.create_task(world.renewal().run()), asyncio.create_task(registered())]
    await asyncio.sleep(28_800.0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert 10 <= world.renewed <= 12


@virtual_time
async def test_a_renewal_that_is_granted_later_is_made_within_an_hour_and_before_the_end() -> None:
    world = World(passing=True)
    world.remote = 403
    running = asyncio.create_task(world.renewal().run())
    await asyncio.sleep(3000.0)
    assert world.renewed == 0
    world.remote = 201
    await asyncio.sleep(500.0)
    assert world.renewed == 1
    running.cancel()
    await asyncio.wait([running])


@virtual_time
async def test_what_nobody_renews_is_warned_of_until_it_has_ended() -> None:
    world = World(passing=True)
    heard: list[str] = []

    class Hearer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    log = logging.getLogger("watchers.kubernetes.token_renewal")
    hearer = Hearer()
    log.addHandler(hearer)
    warning = asyncio.create_task(warn(Lives(lambda: {"east": world.claim}, NO_ALLOWANCES), world.wall))
    try:
        await asyncio.sleep(2 * LENGTH)
    finally:
        log.removeHandler(hearer)
        warning.cancel()
        await asyncio.wait([warning])
    assert heard == ["credential ends", "credential ends", "credential has ended"]


def test_only_a_user_that_has_a_token_gets_another_one() -> None:
    with pytest.raises(InvalidKubeconfig, match="has no token"):
        with_token(kubeconfig(SERVER, user={}), "new")


def test_the_token_of_the_current_context_is_replaced_and_that_of_no_other() -> None:
    document = json.loads(kubeconfig(SERVER, "old"))
    document["users"].append({"name": "other", "user": {"token": "kept"}})
    document["contexts"].append({"name": "more", "context": {"cluster": "cluster", "user": "other"}})
    made = json.loads(with_token(json.dumps(document).encode(), "new"))
    assert [entry["user"]["token"] for entry in made["users"]] == ["new", "kept"]
