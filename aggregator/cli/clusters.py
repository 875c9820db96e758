"""`isthmus clusters`: how the clusters are, asked of the control plane, which holds the watches.

In: options. Out: data on stdout in the format asked for, notes on stderr, and an exit code that is the same in every
format (see exits). What is asked with is imported when it is needed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import quote

import msgspec
import typer

from aggregator.app import setting_values
from aggregator.cli.exits import FINDINGS, UNREACHABLE, UNREADABLE, USAGE
from aggregator.cli.output import Format, colours_wanted, note, printable, table
from aggregator.cli.usage import AskingGroup

if TYPE_CHECKING:
    from aggregator.cli.control_plane import Answer, Replicas
    from aggregator.operate.cluster_list import Cluster

_COMPLETION_SECONDS = 1.0
_WATCH_SECONDS = 2.0
_UNKNOWN, _MISSING = 401, 404
_REFUSED = (_UNKNOWN, 403, 503)

app = typer.Typer(
    cls=AskingGroup,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

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


@app.callback(
    invoke_without_command=True,
    epilog="Exit codes: 0 all is well, 2 a cluster needs attention, 64 wrong usage, 65 an unusable kubeconfig, "
    "69 no control plane answers.",
)
def list_clusters(
    context: typer.Context,
    output: Output = None,
    no_headers: NoHeaders = False,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Go on, and print what changes.")] = False,
    no_colour: NoColour = False,
    timeout: Timeout = "",
    admin: Admin = None,
    token_file: TokenFile = None,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Show every registered cluster: its state, how far it lags, when its credentials expire, and what is wrong."""
    options = Options(output, no_headers, no_colour, timeout, admin, token_file, kubeconfig, kube_context, namespace)
    context.obj = options
    if context.invoked_subcommand is not None:
        if watch:
            _fail(USAGE, "--watch: goes with the list alone; leave out one of --watch and get")
        return
    replicas = _replicas(options)
    if watch:
        _watch(replicas, options)
    clusters, unreachable = _listed(replicas)
    sys.stdout.writelines(_shown(clusters, options, headers=not no_headers))
    _end(clusters, unreachable)


def known_names(incomplete: str) -> list[str]:
    """Names of clusters for completion in a shell, none if there is no answer at once."""
    try:
        answers = _replicas(Options(timeout=f"{_COMPLETION_SECONDS}s")).ask("/clusters")
        clusters = [one for answer in answers if answer.status == 200 for one in _decoded(answer)]
    except typer.Exit:
        return []
    return sorted({one.cluster for one in clusters if one.cluster.startswith(incomplete)})


@app.command("get")
def get_cluster(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The cluster.", autocompletion=known_names)],
    output: Output = None,
    no_headers: NoHeaders = False,
    no_colour: NoColour = False,
    timeout: Timeout = "",
    admin: Admin = None,
    token_file: TokenFile = None,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Show all there is to say of one cluster: where reading it stops, its kinds, its credentials, each replica."""
    here = Options(output, no_headers, no_colour, timeout, admin, token_file, kubeconfig, kube_context, namespace)
    options = here.over(context.obj)
    answers = _asked(_replicas(options), f"/clusters/{quote(name, safe='')}")
    unreachable = _told(answers)
    missing = [answer for answer in answers if answer.status == _MISSING]
    seen = [one for answer in answers if answer.status == 200 for one in _decoded(answer)]
    for answer in missing:
        note(f"{answer.where}: {_why_missing(answer, name)}")
    if not seen:
        raise typer.Exit(USAGE if missing else UNREACHABLE)
    sys.stdout.writelines(_shown_one(seen, options))
    if missing:
        # Replicas that disagree are something to look at, too.
        raise typer.Exit(FINDINGS)
    _end(seen, unreachable)


def _replicas(options: Options) -> Replicas:
    from aggregator.cli.control_plane import DEFAULT_ADDRESS, AdminPorts, InvalidAddress, admin_port

    try:
        seconds = setting_values.duration(options.timeout or "10s")
    except setting_values.ValueProblem as problem:
        _fail(USAGE, f"--timeout: {problem}")
    if options.kubeconfig or options.context or options.namespace:
        if options.admin:
            _fail(USAGE, "--admin: names replicas, as --kubeconfig, --context and -n do; leave out one of both")
        if options.token_file:
            _fail(USAGE, "--token-file: goes with --admin; with --kubeconfig, --context and -n no token is needed")
        # The official client costs most of a second.
        from aggregator.cli.pods import PodReplicas

        namespace = options.namespace or "istio-system"
        return PodReplicas(options.kubeconfig, options.context, namespace, timeout=seconds)
    variable = [text.strip() for text in os.environ.get("ISTHMUS_ADMIN", "").split(",") if text.strip()]
    try:
        ports = [admin_port(text) for text in options.admin or variable or [DEFAULT_ADDRESS]]
    except InvalidAddress as error:
        _fail(USAGE, f"{'--admin' if options.admin else 'ISTHMUS_ADMIN'}: {error}")
    return AdminPorts(ports, timeout=seconds, token_file=options.token_file)


def _listed(replicas: Replicas) -> tuple[list[Cluster], bool]:
    """The clusters as each replica sees them, in order, and whether a replica did not answer."""
    answers = _asked(replicas, "/clusters")
    unreachable = _told(answers)
    clusters = [one for answer in answers if answer.status == 200 for one in _decoded(answer)]
    if not any(answer.status == 200 for answer in answers):
        raise typer.Exit(UNREACHABLE)
    return sorted(clusters, key=lambda one: (not one.home, one.cluster, one.replica)), unreachable


def _asked(replicas: Replicas, path: str) -> list[Answer]:
    from aggregator.cli.control_plane import UnreadableInput

    try:
        return replicas.ask(path)
    except UnreadableInput as error:
        _fail(UNREADABLE, str(error))


def _told(answers: Sequence[Answer]) -> bool:
    """Says of every replica without an answer why, and whether there are such."""
    problems = [answer.problem or _unusable(answer) for answer in answers if answer.status not in (200, _MISSING)]
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


def _decoded(answer: Answer) -> Sequence[Cluster]:
    from aggregator.operate.cluster_list import Cluster, ClusterList

    try:
        found = msgspec.json.decode(answer.body, type=ClusterList | Cluster)
    except (msgspec.DecodeError, UnicodeDecodeError):
        _fail(UNREACHABLE, f"{answer.where} is no admin port of a control plane of this version; --admin names another")
    return found.items if isinstance(found, ClusterList) else (found,)


class _Refused(msgspec.Struct):
    error: str


class _Missing(msgspec.Struct):
    error: str
    clusters: list[str] = []


def _why_missing(answer: Answer, name: str) -> str:
    try:
        missing = msgspec.json.decode(answer.body, type=_Missing)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"no cluster {name}"
    known = ", ".join(missing.clusters) or "none"
    return f"no cluster {name}; there are: {known}"


def _shown(clusters: Sequence[Cluster], options: Options, *, headers: bool) -> Iterator[str]:
    """The output for several clusters, in lines."""
    from aggregator.cli.cluster_tables import COLOURS, STATE_COLUMN, rows
    from aggregator.operate.cluster_list import ClusterList

    match options.format:
        case Format.JSON | Format.YAML:
            yield _document(ClusterList(items=tuple(clusters)), options.format)
        case Format.NAME:
            yield from (f"{name}\n" for name in dict.fromkeys(printable(one.cluster) for one in clusters))
        case Format.TABLE | Format.WIDE:
            several = len({one.replica for one in clusters}) > 1
            made = rows(clusters, wide=options.format is Format.WIDE, replicas=several, headers=headers)
            colours = COLOURS if colours_wanted(forbidden=options.no_colour) else None
            yield from (f"{line}\n" for line in table(made, STATE_COLUMN, colours))


def _shown_one(seen: Sequence[Cluster], options: Options) -> Iterator[str]:
    """The output for one cluster, as several replicas see it; JSON of one replica is the cluster itself."""
    from aggregator.cli.cluster_tables import unfolded

    if options.format in (Format.JSON, Format.YAML) and len(seen) == 1:
        yield _document(seen[0], options.format)
    elif options.format is Format.TABLE:
        colours = colours_wanted(forbidden=options.no_colour)
        yield from (f"{line}\n" for line in unfolded(seen, colours=colours))
    else:
        yield from _shown(seen, options, headers=not options.no_headers)


def _document(content: msgspec.Struct, form: Format) -> str:
    if form is Format.JSON:
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    import yaml

    return yaml.safe_dump(msgspec.to_builtins(content), sort_keys=False, width=1000)


def _watch(replicas: Replicas, options: Options) -> NoReturn:
    """Prints the clusters, and then whatever changes but for the ages, until interrupted."""
    known: dict[tuple[str, str], object] = {}
    headers = not options.no_headers
    while True:
        try:
            clusters, _ = _listed(replicas)
        except typer.Exit:
            if not known:
                raise
            clusters = []
        changed = [one for one in clusters if known.get((one.cluster, one.replica)) != _lasting(one)]
        if changed:
            sys.stdout.writelines(_shown(changed, options, headers=headers))
            sys.stdout.flush()
            headers = False
        known |= {(one.cluster, one.replica): _lasting(one) for one in changed}
        time.sleep(_WATCH_SECONDS)


def _lasting(one: Cluster) -> object:
    """What of a cluster does not change by itself as time passes."""
    return (
        one.state,
        one.reason,
        one.network,
        one.services,
        one.endpoints,
        one.token_expires,
        one.certificate_expires,
        one.withdrawn,
    )


def _end(clusters: Sequence[Cluster], unreachable: bool) -> NoReturn:
    """Ends with the exit code that these clusters have in every format."""
    from aggregator.operate.cluster_list import needs_attention

    names = {one.cluster for one in clusters}
    attention = {one.cluster for one in clusters if needs_attention(one)}
    if attention:
        verb = "needs" if len(attention) == 1 else "need"
        who = f"{len(attention)} of {len(names)} clusters" if len(names) > 1 else f"cluster {min(names)}"
        note(f"{who} {verb} attention (exit {FINDINGS})")
        raise typer.Exit(FINDINGS)
    raise typer.Exit(UNREACHABLE if unreachable else 0)


def _fail(code: int, line: str) -> NoReturn:
    note(f"isthmus: {line}")
    raise typer.Exit(code)
