"""`isthmus domains`: how the domains are that Ingresses name, asked of the control plane, a page at a time.

In: options, and hosts. Out: data on stdout in the format asked for, notes on stderr, and an exit code that is the same
in every format (see exits). Which domains are meant is judged by the control plane, so that few of many cost little.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import quote, urlencode

import msgspec
import typer

from aggregator.cli.asking import (
    MISSING,
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
from aggregator.cli.output import Format, note
from aggregator.cli.telling import about_one, decoded, need_attention, shown
from aggregator.cli.usage import AskingGroup
from aggregator.operate.domain_list import STATES

if TYPE_CHECKING:
    from aggregator.cli.control_plane import Answer, Replicas
    from aggregator.operate.domain_list import Domain, DomainList

_NAMES_AT_A_TIME = 40
"""Hosts in one question: a request may have 16 KiB."""


class _NamesGroup(AskingGroup):
    """What follows the options is the name of a subcommand, or else hosts for the list."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See click."""
        if args and args[0] not in self.commands:
            args = [_LIST, *args]
        return super().resolve_command(ctx, args)


_LIST = "list"

app = typer.Typer(
    cls=_NamesGroup,
    rich_markup_mode=None,
    subcommand_metavar="[NAME... | get HOST]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

NotServed = Annotated[bool, typer.Option("--not-served", help="Those alone with which something is wrong.")]
State = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help=f"Those in this state; may be repeated: {', '.join(STATES)}."),
]


@app.callback(
    invoke_without_command=True,
    epilog="A NAME is a host, such as shop.example.org or *.example.org, or a dot and a domain for all below it, such "
    "as .example.org. Exit codes: 0 all is well, 2 a domain needs attention, 64 wrong usage or a host that no Ingress "
    "names, 65 an unusable kubeconfig, 69 no control plane answers.",
)
def domains(
    context: typer.Context,
    output: Output = None,
    not_served: NotServed = False,
    state: State = None,
    no_headers: NoHeaders = False,
    no_colour: NoColour = False,
    timeout: Timeout = "",
    admin: Admin = None,
    token_file: TokenFile = None,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Show domains that Ingresses name: state, certificate, activation, and the gateways that have acknowledged."""
    options = Options(output, no_headers, no_colour, timeout, admin, token_file, kubeconfig, kube_context, namespace)
    context.obj = (options, not_served, state or [])
    if context.invoked_subcommand is None:
        _list((), options, _states(not_served=not_served, given=state or []))
    elif context.invoked_subcommand != _LIST and (not_served or state):
        fail(USAGE, "--not-served and --state go with the list; leave them out, or get")


@app.command(_LIST, hidden=True)
def list_domains(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Hosts, or a dot and a domain.")],
    output: Output = None,
    not_served: NotServed = False,
    state: State = None,
    no_headers: NoHeaders = False,
    no_colour: NoColour = False,
    timeout: Timeout = "",
    admin: Admin = None,
    token_file: TokenFile = None,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Show these domains."""
    here = Options(output, no_headers, no_colour, timeout, admin, token_file, kubeconfig, kube_context, namespace)
    before, not_served_before, states_before = context.obj
    states = _states(not_served=not_served or not_served_before, given=[*states_before, *(state or [])])
    _list(names, here.over(before), states)


@app.command("get")
def get_domain(
    context: typer.Context,
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host.")],
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
    """Show all there is to say of one domain: its paths, each gateway, each finding and its cure."""
    here = Options(output, no_headers, no_colour, timeout, admin, token_file, kubeconfig, kube_context, namespace)
    options = here.over(context.obj[0])
    path = f"/domains/{quote(host, safe='')}"
    found = about_one(options, path, lambda answer: _decoded(answer).items, lambda answer: _why_missing(answer, host))
    sys.stdout.writelines(_shown_one(found.seen, options))
    found.agreed()
    _end(found.seen, len({one.host for one in found.seen}), (), unreachable=found.unreachable)


def _states(*, not_served: bool, given: Sequence[str]) -> tuple[str, ...]:
    wrong = [one for one in given if one not in STATES]
    if wrong:
        fail(USAGE, f"--state: {wrong[0]!r} is no state; there are {', '.join(STATES)}")
    wanted = [one for one in STATES if (not given or one in given) and not (not_served and one == "Served")]
    if not wanted:
        fail(USAGE, "--not-served: leaves nothing of --state Served")
    return tuple(wanted) if not_served or given else ()


def _list(names: Sequence[str], options: Options, states: Sequence[str]) -> NoReturn:
    replicas = replicas_of(options)
    found: list[Domain] = []
    unknown: dict[str, None] = {}
    total, unreachable = 0, False
    for start in range(0, max(1, len(names)), _NAMES_AT_A_TIME):
        for page in _pages(replicas, names[start : start + _NAMES_AT_A_TIME], states):
            found += page.items
            unknown.update(dict.fromkeys(page.unknown))
            total = max(total, page.total)
            unreachable = unreachable or page.unreachable
    if len(names) > _NAMES_AT_A_TIME:
        found = list({(one.host, one.replica): one for one in found}.values())
    found.sort(key=lambda one: (one.host, one.replica))
    sys.stdout.writelines(_shown(found, options, total, tuple(unknown)))
    _end(found, total, tuple(unknown), unreachable=unreachable)


class _Page(msgspec.Struct):
    """What all replicas say of the domains up to a place."""

    items: list[Domain]
    unknown: tuple[str, ...]
    total: int
    unreachable: bool


def _pages(replicas: Replicas, names: Sequence[str], states: Sequence[str]) -> Iterator[_Page]:
    """Page after page. Replicas end their pages at different places: each is followed as far as all have come."""
    query = {"name": ",".join(names), "state": ",".join(states)}
    after, answered, unreachable = "", False, False
    while True:
        given = {key: value for key, value in {**query, "after": after}.items() if value}
        answers = asked(replicas, f"/domains?{urlencode(given)}" if given else "/domains")
        # Once is enough to say that a replica does not answer.
        unreachable = unreachable or told(answers)
        lists = [_decoded(answer) for answer in answers if answer.status == 200]
        if not lists:
            if any(answer.status == MISSING for answer in answers):
                fail(UNREACHABLE, "the control plane is of a version that does not tell of domains")
            # What was found so far would look as if it were all.
            raise typer.Exit(UNREACHABLE)
        ends = [one.after for one in lists if one.after]
        place = min(ends, default="")
        if place and place <= after:
            fail(UNREACHABLE, "the control plane repeats itself; is it one?")
        items = [one for each in lists for one in each.items if not place or one.host <= place]
        # All replicas that answer have to miss a host for there to be none.
        missed = set.intersection(*(set(one.unknown) for one in lists))
        unknown = () if answered else tuple(name for name in lists[0].unknown if name in missed)
        yield _Page(items, unknown, max(one.total for one in lists), unreachable)
        if not place:
            return
        after, answered = place, True


def _decoded(answer: Answer) -> DomainList:
    from aggregator.operate.domain_list import Domain, DomainList

    found = decoded(answer, DomainList | Domain)
    return found if isinstance(found, DomainList) else DomainList(items=(found,), total=1)


class _Missing(msgspec.Struct):
    error: str
    domains: list[str] = []


def _why_missing(answer: Answer, host: str) -> str:
    try:
        missing = msgspec.json.decode(answer.body, type=_Missing)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"no Ingress names {host}"
    some = ", ".join(missing.domains)
    return f"no Ingress names {host}{f'; there are: {some}' if some else ''}"


def _shown(found: Sequence[Domain], options: Options, total: int, unknown: tuple[str, ...]) -> Iterator[str]:
    """The output for several domains, in lines."""
    from aggregator.cli import domain_tables
    from aggregator.operate.domain_list import DomainList

    return shown(
        found,
        options,
        headers=not options.no_headers,
        name=lambda one: one.host,
        listed=lambda: DomainList(items=tuple(found), total=total, unknown=unknown),
        tables=domain_tables,
    )


def _shown_one(seen: Sequence[Domain], options: Options) -> Iterator[str]:
    """The output for one domain, as several replicas see it; JSON of one replica is the domain itself."""
    from aggregator.cli.domain_tables import unfolded

    if options.format in (Format.JSON, Format.YAML) and len(seen) == 1:
        yield document(seen[0], options.format)
    elif options.format is Format.TABLE:
        yield from (f"{line}\n" for line in unfolded(seen))
    else:
        yield from _shown(seen, options, 1, ())


def _end(found: Sequence[Domain], total: int, unknown: Sequence[str], *, unreachable: bool) -> NoReturn:
    """Ends with the exit code that these domains have in every format."""
    from aggregator.operate.domain_list import needs_attention

    for name in unknown:
        note(f"isthmus: no Ingress names {name}")
    hosts = {one.host for one in found if needs_attention(one)}
    need_attention(hosts, total, "domain")
    if unknown:
        raise typer.Exit(USAGE)
    raise typer.Exit(FINDINGS if hosts else UNREACHABLE if unreachable else 0)
