"""`isthmus clusters`: how the clusters are, asked of the control plane, which holds the watches.

In: options. Out: data on stdout in the format asked for, notes on stderr, and an exit code that is the same in every
format (see exits). What is asked with is imported when it is needed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import quote

import msgspec
import typer

from aggregator.cli.asking import (
    Admin,
    Context,
    Kubeconfig,
    Namespace,
    NoColour,
    NoHeaders,
    Options,
    Output,
    Timeout,
    TokenFile,
    asked,
    document,
    fail,
    replicas_of,
    told,
)
from aggregator.cli.exits import FINDINGS, UNREACHABLE, USAGE
from aggregator.cli.output import Format, colours_wanted
from aggregator.cli.telling import about_one, decoded, need_attention, shown
from aggregator.cli.usage import AskingGroup

if TYPE_CHECKING:
    from aggregator.cli.control_plane import Answer, Replicas
    from aggregator.operate.cluster_list import Cluster

_COMPLETION_SECONDS = 1.0
_WATCH_SECONDS = 2.0

app = typer.Typer(
    cls=AskingGroup,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


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
            fail(USAGE, "--watch: goes with the list alone; leave out one of --watch and get")
        return
    replicas = replicas_of(options)
    if watch:
        _watch(replicas, options)
    clusters, unreachable = _listed(replicas)
    sys.stdout.writelines(_shown(clusters, options, headers=not no_headers))
    _end(clusters, unreachable)


def known_names(incomplete: str) -> list[str]:
    """Names of clusters for completion in a shell, none if there is no answer at once."""
    try:
        answers = replicas_of(Options(timeout=f"{_COMPLETION_SECONDS}s")).ask("/clusters")
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
    path = f"/clusters/{quote(name, safe='')}"
    found = about_one(options, path, _decoded, lambda answer: _why_missing(answer, name))
    sys.stdout.writelines(_shown_one(found.seen, options))
    found.agreed()
    _end(found.seen, found.unreachable)


def _listed(replicas: Replicas) -> tuple[list[Cluster], bool]:
    """The clusters as each replica sees them, in order, and whether a replica did not answer."""
    answers = asked(replicas, "/clusters")
    unreachable = told(answers)
    clusters = [one for answer in answers if answer.status == 200 for one in _decoded(answer)]
    if not any(answer.status == 200 for answer in answers):
        raise typer.Exit(UNREACHABLE)
    return sorted(clusters, key=lambda one: (not one.home, one.cluster, one.replica)), unreachable


def _decoded(answer: Answer) -> Sequence[Cluster]:
    from aggregator.operate.cluster_list import Cluster, ClusterList

    found = decoded(answer, ClusterList | Cluster)
    return found.items if isinstance(found, ClusterList) else (found,)


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
    from aggregator.cli import cluster_tables
    from aggregator.operate.cluster_list import ClusterList

    return shown(
        clusters,
        options,
        headers=headers,
        name=lambda one: one.cluster,
        listed=lambda: ClusterList(items=tuple(clusters)),
        tables=cluster_tables,
    )


def _shown_one(seen: Sequence[Cluster], options: Options) -> Iterator[str]:
    """The output for one cluster, as several replicas see it; JSON of one replica is the cluster itself."""
    from aggregator.cli.cluster_tables import unfolded

    if options.format in (Format.JSON, Format.YAML) and len(seen) == 1:
        yield document(seen[0], options.format)
    elif options.format is Format.TABLE:
        colours = colours_wanted(forbidden=options.no_colour)
        yield from (f"{line}\n" for line in unfolded(seen, colours=colours))
    else:
        yield from _shown(seen, options, headers=not options.no_headers)


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
    need_attention(attention, len(names), "cluster")
    raise typer.Exit(FINDINGS if attention else UNREACHABLE if unreachable else 0)


