"""`isthmus run`: reads the settings, sets up logging, runs the control plane until it is told to stop.

In: flags (made from the table of settings), the environment, signals. Out: an exit code and, when something went
wrong, one clear line on stderr for every cause. SIGTERM and SIGINT cancel the control plane, which then drains; a
second signal ends the process at once. Everything heavy is imported only after the settings were found good.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from aggregator import __version__
from aggregator.app.settings import TABLE, Setting, SettingsError, describe
from aggregator.app.settings_sources import load, unknown_variables
from aggregator.cli.reference import default_text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from aggregator.app.settings import Settings

FAILED = 1
USAGE = 2

logger = logging.getLogger("isthmus")


def run(**flags: str | list[str] | bool | None) -> None:
    """Run the control plane: read clusters, serve proxies over xDS, sign their certificates.

    The home cluster is --local, or the one this process runs in; further clusters of the mesh are --remote, the
    kubeconfigs in --remotes, and those that Secrets of the home cluster register. A source is a kubeconfig, or a
    directory of YAML or JSON manifests; all are watched.
    """
    try:
        settings = load(_texts(flags), os.environ)
    except SettingsError as error:
        _fail(USAGE, [str(error)])
    from aggregator.app import logs

    logs.configure(settings.log_format, settings.log_level)
    log_settings(settings)
    try:
        from aggregator.app.main import run as run_control_plane
    except ImportError as error:
        # A checkout that was not built, or protobuf without its fast backend: the text says what to do.
        _fail(FAILED, [str(error)])
    try:
        with asyncio.Runner(loop_factory=event_loop()) as runner:
            runner.run(until_signalled(run_control_plane(settings)))
    except Exception as error:
        known, unknown = sort_failures(error)
        for failure in unknown:
            logger.error("unexpected failure, please report it", exc_info=failure)
        _fail(FAILED, known or ([] if unknown else [str(error)]))


def event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the event loop: uvloop where it is installed (the extra of that name), else asyncio.

    A push to a proxy and its answer take a fifth less CPU with uvloop, a watch over TLS a quarter of a megabyte more.
    """
    try:
        loops: Any = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop
    logger.info("event loop", extra={"object_name": "uvloop", "value": loops.__version__})
    made: Callable[[], asyncio.AbstractEventLoop] = loops.new_event_loop
    return made


def _texts(flags: Mapping[str, str | list[str] | bool | None]) -> dict[str, str | list[str] | None]:
    """Flags as they would be written in a variable: those without a value too."""
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in flags.items()}


def log_settings(settings: Settings) -> None:
    """Every setting with its value and where it came from, and variables that look like settings but are none."""
    logger.info("starting", extra={"version": __version__})
    for setting in describe(settings):
        logger.info(
            "setting", extra={"object_name": setting.name, "value": setting.text or "off", "origin": setting.origin}
        )
    for variable, nearest in unknown_variables(os.environ):
        logger.warning("unknown variable", extra={"object_name": variable, "nearest": nearest or "none"})


async def until_signalled(main: Coroutine[Any, Any, None]) -> None:
    """Awaits `main`; the first SIGTERM or SIGINT cancels it, and when it has then ended, that is a good end."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(main, name="isthmus")
    told = False

    def stop(signum: signal.Signals) -> None:
        nonlocal told
        told = True
        logger.info("stopping", extra={"signal": signum.name})
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)  # the next one kills
        task.cancel()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop, each)
    try:
        await task
    except asyncio.CancelledError:
        if not told:
            raise


def sort_failures(error: BaseException) -> tuple[list[str], list[BaseException]]:
    """The failures a person can cure, as lines, and all others. Groups, as a TaskGroup raises them, are taken apart."""
    if isinstance(error, BaseExceptionGroup):
        known: list[str] = []
        unknown: list[BaseException] = []
        for part in error.exceptions:
            lines, others = sort_failures(part)
            known += [line for line in lines if line not in known]
            unknown += others
        return known, unknown
    return ([str(error)], []) if isinstance(error, _curable()) else ([], [error])


def _curable() -> tuple[type[BaseException], ...]:
    """The errors whose text is one line with a cure. Their modules are loaded by now, if the process came so far."""
    names = {
        "aggregator.admin.server": ("ListenError",),
        "watchers.watching": ("SourceError",),
        "xds.server.listener": ("ListenError",),
        "xds.server.authentication": ("TokenFileError",),
        "xds.server.certificate_authority": ("CertificateAuthorityError",),
    }
    found = [getattr(sys.modules.get(module), name, None) for module, each in names.items() for name in each]
    return (SettingsError, *(kind for kind in found if kind is not None))


def _fail(code: int, lines: list[str]) -> NoReturn:
    for line in lines:
        print(f"isthmus: {line}", file=sys.stderr)
    raise typer.Exit(code)


def _with_options(command: Callable[..., None]) -> None:
    """Gives the command an option for every setting, as if it had been written with them.

    All are texts here: settings_sources.py parses those of flags as it does those of variables and of the file.
    """
    parameters = [
        inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(setting))
        for setting in TABLE
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def _option(setting: Setting) -> Any:
    text = f"{setting.help} [{default_text(setting)}]"
    if setting.switch:
        names = f"{setting.flag}/--no-{setting.word}"
        return Annotated[bool | None, typer.Option(names, help=text, show_default=False)]
    option = typer.Option(setting.flag, metavar=setting.value, help=text, show_default=False)
    return Annotated[list[str] | None if setting.many else str | None, option]


_with_options(run)
