"""What the commands that ask a control plane have in common: their options, and how they ask.

In: options. Out: answers of replicas, notes about those that gave none, and the ends of a command (see exits). What is
asked with is imported when it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from aggregator.app import setting_values
from aggregator.cli.exits import UNREADABLE, USAGE
from aggregator.cli.output import Format, note, printable

if TYPE_CHECKING:
    from aggregator.cli.control_plane import Answer, Replicas

MISSING = 404
"""The status of an answer about something there is not."""
_UNKNOWN = 401
_REFUSED = (400, _UNKNOWN, 403, 503)

Output = Annotated[Format | None, typer.Option("-o", "--output", help="How to print them. [table]")]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Leave out the headers of tables.")]
NoColour = Annotated[bool, typer.Option("--no-color", help="No colours; so does the variable NO_COLOR.")]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait for an answer. [10s]")]
Admin = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        metavar="HOST:PORT|URL",
        help="The admin port of a replica; may be repeated. ISTHMUS_ADMIN names several with commas. [127.0.0.1:15014]",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A token of a service account of the control plane's namespace, for an --admin port that is not reached "
        "over loopback. The port has no TLS: whoever is on the way can read it.",
    ),
]
Kubeconfig = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Your own kubeconfig, to ask all replicas through their cluster.")
]
Context = Annotated[
    str | None,
    typer.Option("--context", metavar="CONTEXT", help="The context that leads to that cluster. [the current one]"),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Where the replicas run there. [istio-system]")
]


class Options(msgspec.Struct):
    """What was asked for, before or behind `get`."""

    output: Format | None = None
    no_headers: bool = False
    no_colour: bool = False
    timeout: str = ""
    admin: list[str] | None = None
    token_file: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None

    def over(self, other: Options) -> Options:
        """These, and where nothing is said the other's."""
        fields = self.__struct_fields__
        return Options(**{name: getattr(self, name) or getattr(other, name) for name in fields})

    @property
    def format(self) -> Format:
        """The format to print."""
        return self.output or Format.TABLE


def replicas_of(options: Options) -> Replicas:
    """Those that the options name. Ends the command where they name none that could be asked."""
    from aggregator.cli.control_plane import DEFAULT_ADDRESS, AdminPorts, InvalidAddress, admin_port

    try:
        seconds = setting_values.duration(options.timeout or "10s")
    except setting_values.ValueProblem as problem:
        fail(USAGE, f"--timeout: {problem}")
    if options.kubeconfig or options.context or options.namespace:
        if options.admin:
            fail(USAGE, "--admin: names replicas, as --kubeconfig, --context and -n do; leave out one of both")
        if options.token_file:
            fail(USAGE, "--token-file: goes with --admin; with --kubeconfig, --context and -n no token is needed")
        # The official client costs most of a second.
        from aggregator.cli.pods import PodReplicas

        namespace = options.namespace or "istio-system"
        return PodReplicas(options.kubeconfig, options.context, namespace, timeout=seconds)
    variable = [text.strip() for text in os.environ.get("ISTHMUS_ADMIN", "").split(",") if text.strip()]
    try:
        ports = [admin_port(text) for text in options.admin or variable or [DEFAULT_ADDRESS]]
    except InvalidAddress as error:
        fail(USAGE, f"{'--admin' if options.admin else 'ISTHMUS_ADMIN'}: {error}")
    return AdminPorts(ports, timeout=seconds, token_file=options.token_file)


def asked(replicas: Replicas, path: str) -> list[Answer]:
    """What each replica answers to a page."""
    from aggregator.cli.control_plane import UnreadableInput

    try:
        return replicas.ask(path)
    except UnreadableInput as error:
        fail(UNREADABLE, str(error))


def told(answers: Sequence[Answer]) -> bool:
    """Says of every replica without an answer why, and whether there are such."""
    problems = [answer.problem or _unusable(answer) for answer in answers if answer.status not in (200, MISSING)]
    for problem in problems:
        note(f"isthmus: {problem}")
    return bool(problems)


def _unusable(answer: Answer) -> str:
    """What a control plane says of a question that it does not answer."""
    if answer.status in _REFUSED:
        try:
            error = msgspec.json.decode(answer.body, type=_Refused).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            cure = "; --token-file sends a token" if answer.status == _UNKNOWN else ""
            return printable(f"{answer.where}: {error}{cure}")
    return f"{answer.where} answers {answer.status}: is that the admin port (15014) of a control plane?"


class _Refused(msgspec.Struct):
    error: str


def document(content: msgspec.Struct, form: Format) -> str:
    """The content as JSON or YAML."""
    if form is Format.JSON:
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    import yaml

    return yaml.safe_dump(msgspec.to_builtins(content), sort_keys=False, width=1000)


def fail(code: int, line: str) -> NoReturn:
    """End the command with a line on stderr."""
    note(f"isthmus: {line}")
    raise typer.Exit(code)
