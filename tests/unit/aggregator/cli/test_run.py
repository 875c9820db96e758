from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import types
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from aggregator.admin.server import ListenError
from aggregator.app.settings import Settings, SettingsError
from aggregator.cli.main import app
from aggregator.cli.run import event_loop, sort_failures, until_signalled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.fixture
def control_plane(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Settings], Awaitable[None]]], None]:
    """Puts a function in the place of the control plane that `isthmus run` runs."""

    def replace(run: Callable[[Settings], Awaitable[None]]) -> None:
        module = types.ModuleType("aggregator.app.main")
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "aggregator.app.main", module)

    return replace


def taken_port() -> ListenError:
    return ListenError("--health", "0.0.0.0", 8080, OSError(98, "Address already in use"))


def test_the_control_plane_gets_the_settings_of_flags_and_variables(
    control_plane: Callable[[Callable[[Settings], Awaitable[None]]], None],
) -> None:
    got: list[Settings] = []

    async def run(settings: Settings) -> None:
        got.append(settings)

    control_plane(run)
    arguments = ["run", "--local", "west=w", "--remote", "east=e", "--remote", "north=n"]
    done = CliRunner().invoke(app, arguments, env={"ISTHMUS_DRAIN": "1s"})
    assert done.exit_code == 0, done.stderr
    assert ([source.name for source in got[0].remote], got[0].drain) == (["east", "north"], 1.0)


def test_the_start_logs_every_setting_with_its_origin_and_misspelt_variables(
    control_plane: Callable[[Callable[[Settings], Awaitable[None]]], None],
) -> None:
    async def run(settings: Settings) -> None:
        pass

    control_plane(run)
    done = CliRunner().invoke(app, ["run", "--local", "west=w"], env={"ISTHMUS_DRIAN": "1s"})
    assert ' info  setting name=local value="west=w" origin=--local\n' in done.stderr
    assert " info  setting name=identities value=off origin=default\n" in done.stderr
    assert " warning unknown variable name=ISTHMUS_DRIAN nearest=ISTHMUS_DRAIN\n" in done.stderr


def test_a_failure_with_a_cure_is_one_line_and_exit_code_1(
    control_plane: Callable[[Callable[[Settings], Awaitable[None]]], None],
) -> None:
    async def run(settings: Settings) -> None:
        async with asyncio.TaskGroup():
            raise taken_port()

    control_plane(run)
    done = CliRunner().invoke(app, ["run", "--local", "west=w", "--log-level", "error"])
    assert done.exit_code == 1
    assert done.stderr.startswith("isthmus: --health: cannot listen on 0.0.0.0:8080: Address already in use; ")
    assert done.stderr.count("\n") == 1


def test_a_failure_nobody_foresaw_is_logged_with_its_traceback_and_exit_code_1(
    control_plane: Callable[[Callable[[Settings], Awaitable[None]]], None],
) -> None:
    async def run(settings: Settings) -> None:
        raise ZeroDivisionError("boom")

    control_plane(run)
    done = CliRunner().invoke(app, ["run", "--local", "west=w"])
    assert done.exit_code == 1
    assert "unexpected failure, please report it" in done.stderr
    assert "ZeroDivisionError: boom" in done.stderr


def test_a_build_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aggregator.app.main", types.ModuleType("aggregator.app.main"))
    done = CliRunner().invoke(app, ["run", "--local", "west=w", "--log-level", "error"])
    assert done.exit_code == 1
    assert done.stderr.startswith("isthmus: cannot import name 'run'")


def test_failures_of_nested_groups_are_sorted_and_told_once() -> None:
    boom = ZeroDivisionError()
    group = ExceptionGroup(
        "", [taken_port(), ExceptionGroup("", [SettingsError("--a", "is bad", "mend it"), boom, taken_port()])]
    )
    known, unknown = sort_failures(group)
    assert known == [str(taken_port()), "--a: is bad; mend it"]
    assert unknown == [boom]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_cancels_the_control_plane_which_may_drain(signum: signal.Signals) -> None:
    drained = False

    async def main() -> None:
        nonlocal drained
        os.kill(os.getpid(), signum)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            drained = True

    await until_signalled(main())
    assert drained


async def test_after_the_first_signal_the_next_one_kills() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    await until_signalled(main())
    assert signal.getsignal(signal.SIGTERM) in (before, signal.SIG_DFL)


async def test_a_failure_while_draining_is_not_hidden_by_the_signal() -> None:
    async def main() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await until_signalled(main())


@pytest.mark.parametrize(
    ("arguments", "on"), [([], False), (["--istio-classes"], True), (["--no-istio-classes"], False)]
)
def test_a_switch_needs_no_value(
    control_plane: Callable[[Callable[[Settings], Awaitable[None]]], None], arguments: list[str], on: bool
) -> None:
    seen: list[bool] = []

    async def run(settings: Settings) -> None:
        seen.append(settings.istio_classes)

    control_plane(run)
    CliRunner().invoke(app, ["run", "--local", "west=w", *arguments])
    assert seen == [on]


def test_the_event_loop_is_uvloops_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = types.SimpleNamespace(__version__="0.1", new_event_loop=object())
    monkeypatch.setitem(sys.modules, "uvloop", uvloop)
    assert event_loop() is uvloop.new_event_loop


def test_the_event_loop_is_asyncios_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop() is asyncio.new_event_loop
