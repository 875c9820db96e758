"""`isthmus create-remote-secret`: lets a control plane read another cluster, with as few rights as it gets by with.

In: a context of the operator's kubeconfig that leads to the cluster to be read. There it makes a service account, its
role and a token that expires. Out: on stdout the Secret for the home cluster, on stderr what was done, without anything
secret. Exit codes: 0 done, 1 refused, 64 wrong usage, 65 a kubeconfig that cannot be used, 69 no API server, 75 too
slow.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import msgspec
import typer

from aggregator.app import setting_values
from aggregator.app.setting_values import ValueProblem
from watchers.reader_role import NAME, PURPOSES, RULES, Grant, granted, reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchers.kubernetes.operator_access import Operator, Token

FAILED = 1
USAGE = 64
CODES = {"kubeconfig": 65, "unreachable": 69, "timeout": 75, "refused": FAILED}

SHORTEST_TTL = 600.0
LONGEST_TTL = float(1 << 32)
"""Seconds, both as API servers have it for TokenRequests."""

T = TypeVar("T")

_OBJECT_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?")


class Wanted(msgspec.Struct, frozen=True):
    """What is to be made, read and checked."""

    cluster: str
    namespace: str
    service_account: str
    secret: str
    ttl: float
    grants: tuple[Grant, ...]
    rotate: bool
    server: str
    tls_server_name: str


def create_remote_secret(
    *,
    name: Annotated[str, typer.Option(metavar="ID", help="The id the cluster is to have in the mesh.")],
    context: Annotated[
        str | None, typer.Option(metavar="CONTEXT", help="The context that leads to it. [the current one]")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own kubeconfig. [$KUBECONFIG or ~/.kube/config]")
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="The system namespace, there and at home.")
    ] = "istio-system",
    server: Annotated[
        str,
        typer.Option(metavar="URL", help="Where the control plane reaches the API server. [as your kubeconfig has it]"),
    ] = "",
    tls_server_name: Annotated[
        str, typer.Option(metavar="NAME", help="The name in its certificate, if it is not the one in the URL.")
    ] = "",
    ttl: Annotated[
        str,
        typer.Option("--token-ttl", metavar="DURATION", help="How long the token is valid; the server may grant less."),
    ] = "720h",
    service_account: Annotated[str, typer.Option(metavar="NAME", help="The service account of the reader.")] = NAME,
    secret_name: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the Secret. [isthmus-remote-secret-ID]")
    ] = "",
    grant: Annotated[
        list[Grant] | None,
        typer.Option(metavar="GRANT", help=f"What the reader may do besides ({', '.join(Grant)}); several times."),
    ] = None,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Only make a new token; the old one stays valid until it expires.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be applied to the cluster, and ask nobody anything.")
    ] = False,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long a request may take.")] = "15s",
) -> None:
    """Print the Secret that registers a cluster, for `kubectl apply -f -` at home.

    Makes in the cluster a service account that may read what the mesh needs, and no Secrets, and a token of it.
    """
    wanted = Wanted(
        cluster=_read("--name", setting_values.cluster_id, name),
        namespace=_read("--namespace", setting_values.namespace, namespace),
        service_account=_read("--service-account", _object_name, service_account),
        secret=_read("--secret-name", _object_name, secret_name or _secret_for(name)),
        ttl=_read("--token-ttl", _ttl, ttl),
        grants=tuple(sorted(set(grant or ()))),
        rotate=rotate,
        server=server,
        tls_server_name=tls_server_name,
    )
    seconds = _read("--timeout", setting_values.duration, timeout)
    if rotate and wanted.grants:
        _fail(USAGE, "--rotate: only makes a token; leave out --grant, or --rotate")
    if dry_run:
        _print_manifests(wanted)
        return
    # The official client costs most of a second.
    from watchers.kubernetes.operator_access import Refusal, operator

    async def make() -> str:
        async with operator(kubeconfig, context, seconds=seconds) as there:
            return await _make(there, wanted)

    try:
        secret = asyncio.run(make())
    except Refusal as error:
        _fail(CODES[error.trouble], str(error))
    print(secret, end="")


async def _make(there: Operator, wanted: Wanted) -> str:
    """Makes all of it in the cluster; returns the Secret. Raises Refusal."""
    from watchers.kubernetes.kubeconfig import InvalidKubeconfig
    from watchers.kubernetes.operator_access import Refusal
    from watchers.kubernetes.remote_secret import check_kubeconfig, kubeconfig, remote_secret

    reach = msgspec.structs.replace(
        there.reach,
        server=wanted.server.rstrip("/") or there.reach.server,
        tls_server_name=wanted.tls_server_name or there.reach.tls_server_name,
    )
    where = "--server" if wanted.server else "--kubeconfig"
    if reach.insecure:
        _fail(
            CODES["kubeconfig"],
            f"--kubeconfig: insecure-skip-tls-verify: a control plane verifies the API server of {wanted.cluster!r}; "
            "put certificate-authority-data in its place",
        )
    try:
        # Before anything is made: no token, but all the rest as it will be.
        checked = check_kubeconfig(kubeconfig(wanted.cluster, reach, "t"))
    except InvalidKubeconfig as error:
        _fail(USAGE if wanted.server else CODES["kubeconfig"], f"{where}: {error}")
    if not wanted.rotate:
        await _apply(there, wanted)
    try:
        token = await there.create_token(wanted.namespace, wanted.service_account, wanted.ttl)
    except Refusal as error:
        if wanted.rotate and error.status == 404:
            raise Refusal("refused", f"{error}, or run it once without --rotate", status=404) from None
        raise
    _tell(there, wanted, token, checked.server, proxied=reach.proxied)
    text = kubeconfig(wanted.cluster, reach, token.text)
    return remote_secret(wanted.cluster, wanted.namespace, wanted.secret, text)


async def _apply(there: Operator, wanted: Wanted) -> None:
    from watchers.kubernetes.operator_access import Refusal

    account, *rest = _manifests(wanted)
    try:
        await there.apply(account)
    except Refusal as error:
        if error.status != 404:
            raise
        named = {"name": wanted.namespace}
        await there.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": named})
        _note(f"created Namespace {wanted.namespace}")
        await there.apply(account)
    for manifest in rest:
        await there.apply(manifest)


def _manifests(wanted: Wanted) -> list[dict[str, object]]:
    manifests = [*reader(wanted.namespace, wanted.service_account)]
    for grant in wanted.grants:
        manifests += granted(grant, wanted.namespace, wanted.service_account)
    return manifests


def _print_manifests(wanted: Wanted) -> None:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    if wanted.rotate:
        _note("nothing would be applied; a token would be made")
        return
    print(yaml.dump_all(_manifests(wanted), Dumper=Dumper, sort_keys=False, explicit_start=True), end="")


def _tell(there: Operator, wanted: Wanted, token: Token, server: str, *, proxied: bool) -> None:
    """What was done, for the person at the terminal."""
    account = wanted.service_account
    until = datetime.fromtimestamp(token.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = f"token valid until {until}"
    if wanted.rotate:
        _note(f"made a new token of ServiceAccount {account} at {there.reach.server}: {made}; the old one stays valid")
    else:
        _note(
            f"created ServiceAccount {account}, ClusterRole {account} ({len(RULES)} rules, no secrets) "
            f"at {there.reach.server}; {made}"
        )
        for grant in wanted.grants:
            _note(f"granted {grant}: {account} {PURPOSES[grant]}")
        if Grant.TOKEN_RENEWAL in wanted.grants:
            _note("the control plane renews the token at 2/3 of its life")
        else:
            _note(f"nobody renews the token: use --rotate before then, or --grant {Grant.TOKEN_RENEWAL}")
    left = token.expires - time.time()
    if left < wanted.ttl * 0.95:
        granted_time = setting_values.show_duration(round(left / 60) * 60)
        asked = setting_values.show_duration(wanted.ttl)
        _note(f"the API server granted about {granted_time} of the {asked} asked for")
    host = server.partition("://")[2]
    if host.startswith(("127.", "[::1]", "localhost")):
        _note(f"warning: {server} is this machine's own: a control plane elsewhere needs --server with another address")
    if proxied:
        _note("warning: your kubeconfig goes through a proxy-url, which the Secret does not have")


def _note(text: str) -> None:
    print(f"isthmus: {text}", file=sys.stderr)


def _fail(code: int, text: str) -> NoReturn:
    _note(text)
    raise typer.Exit(code)


def _read(option: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueProblem as problem:
        _fail(USAGE, f"{option}: {problem}")


def _secret_for(cluster: str) -> str:
    """Its name; ids may have letters that names of objects may not."""
    return f"isthmus-remote-secret-{cluster.lower().replace('_', '-')}"


def _object_name(text: str) -> str:
    if not _OBJECT_NAME.fullmatch(text):
        raise ValueProblem(f"{text!r} is no name of an object", "use lower-case letters, digits, '-' and '.'")
    return text


def _ttl(text: str) -> float:
    seconds = setting_values.duration(text)
    if not SHORTEST_TTL <= seconds <= LONGEST_TTL:
        raise ValueProblem(f"{text} is too short or too long", "API servers grant 10m at least, such as 720h")
    return seconds
