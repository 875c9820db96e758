"""`isthmus demo`: two clusters on this machine, their control planes, real Envoys, and a request from one to the other.

In: an Envoy binary and the example manifests. Out: what happens, step by step, and an exit code: with --once the
demo ends after its steps, 0 if each showed what it should, 1 with the reason if not; without it everything stays up, to
be tried. However it ends, no process and no file of it stays behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from aggregator.cli.run import FAILED, until_signalled

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from aggregator.demo.journey import Journey
    from aggregator.demo.scenario import Scenario

INTERRUPTED = 130
"""What a shell says of a command that was ended by Ctrl-C (128 + SIGINT)."""
EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples" / "two-clusters"


def demo(
    *,
    once: Annotated[bool, typer.Option("--once", help="End after the last step, with an exit code.")] = False,
    envoy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An Envoy binary, 1.40 or newer; that of PATH unless given.")
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The manifests of both clusters; those of the checkout.")
    ] = None,
) -> None:
    """Show a request that crosses from one cluster into another, on this machine alone."""
    from rich.console import Console

    from aggregator.demo.envoy import EnvoyMissing, find
    from aggregator.demo.ports import Taken
    from aggregator.demo.processes import ChildFailed
    from aggregator.demo.scenario import StepFailed
    from aggregator.demo.stage import StageError

    console = Console(highlight=False)
    ended: list[bool] = []

    async def perform() -> None:
        await _perform(find(envoy).path, examples or EXAMPLES, console, once=once)
        ended.append(True)

    try:
        asyncio.run(until_signalled(perform()))
    except (EnvoyMissing, Taken, StageError, StepFailed, ChildFailed) as error:
        _fail(str(error))
    if not ended:
        raise typer.Exit(INTERRUPTED)


async def _perform(envoy: Path, examples: Path, console: Console, *, once: bool) -> None:
    """All of it, from the first file to the last process. Returns when it was told to stop after the last step, or at
    once after it; is cancelled when it was told to stop before.
    """
    from aggregator.demo.ports import only_one
    from aggregator.demo.scenario import Scenario
    from aggregator.demo.stage import Stage

    lock = Path(tempfile.gettempdir()) / f"isthmus-demo-{os.getuid()}.lock"
    with only_one(lock), tempfile.TemporaryDirectory(prefix="isthmus-demo-") as directory:
        stage = Stage(Path(directory))
        stage.set(examples)
        with console.status("") as status:
            scenario = Scenario(stage, envoy, ConsoleShow(console, status))
            scenario.check_addresses()
            try:
                await _while_alive(scenario, scenario.run())
                status.stop()
                if not once:
                    console.print(_invitation(scenario), soft_wrap=True)
                    with suppress(asyncio.CancelledError):
                        await _while_alive(scenario, asyncio.Event().wait())
            finally:
                status.update("Everything is ended")
                await scenario.close()


async def _while_alive(scenario: Scenario, work: Any) -> None:
    """Awaits `work`. Raises ChildFailed as soon as a process of the scenario has ended by itself."""
    from aggregator.demo.processes import ChildFailed

    task = asyncio.ensure_future(work)
    death = asyncio.ensure_future(scenario.first_death())
    try:
        await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ChildFailed(death.result())
        task.result()
    finally:
        for each in (task, death):
            each.cancel()
        await asyncio.wait((task, death))


class ConsoleShow:
    """A Show on a terminal, or in a log without colours. Satisfies `aggregator.demo.scenario.Show`."""

    def __init__(self, console: Console, status: Status) -> None:
        self._console = console
        self._status = status
        self._steps = 0

    def step(self, title: str) -> None:
        """A heading, and what is waited for below it."""
        self._steps += 1
        self._console.print(f"\n[bold]{self._steps}. {title}[/bold]")
        self._status.update(title)

    def tell(self, text: str) -> None:
        """A line."""
        self._console.print(f"   {text}", markup=False, soft_wrap=True)

    def journey(self, journey: Journey) -> None:
        """A line for each hop, with milliseconds since the visitor began."""
        width = max(len(hop.name) for hop in journey.hops)
        for hop in journey.hops:
            milliseconds = (hop.at - journey.answer.asked) * 1000
            self.tell(f"{milliseconds:6.1f} ms  {hop.name:{width}}  {hop.what}")

    def log_line(self, name: str, line: dict[str, Any]) -> None:
        """A line of an access log, as it is."""
        self._console.print(f"   {name}: {json.dumps(line)}", markup=False, style="cyan", soft_wrap=True)


def _invitation(scenario: Scenario) -> str:
    """What there is to try."""
    from aggregator.demo.control import PAGES_PORT
    from aggregator.demo.stage import HOST, HTTPS_PORT

    stage, ingress = scenario.stage, scenario.traveller.ingress
    ask = f"curl --cacert {stage.credentials.web_root} --resolve {HOST}:{HTTPS_PORT}:{ingress.bind}"
    return f"""
[bold]All of it stays up until Ctrl-C. Try:[/bold]
   {ask} https://{HOST}:{HTTPS_PORT}/
   {ask} https://{HOST}:{HTTPS_PORT}/orders
   Edit and save {stage.east.manifests}/catalog.yaml: make pods unready, and see who answers.
   Edit and save {stage.west.manifests}/ingress.yaml: add paths or hosts (a host with TLS needs a Secret).
   What the control planes know: http://{stage.west.xds.host}:{PAGES_PORT}/ and http://{stage.east.xds.host}:{PAGES_PORT}/
   What gateways know: http://{ingress.admin}/config_dump
   What everybody says: {stage.logs}"""


def _fail(text: str) -> NoReturn:
    print(f"isthmus: {text}", file=sys.stderr)
    raise typer.Exit(FAILED)
