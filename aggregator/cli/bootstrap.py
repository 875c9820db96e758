"""`isthmus bootstrap`: prints what a stock Envoy is started with to be a gateway of the mesh.

In: options, most of which a pod knows by the downward API. Out: JSON on stdout, or in a file; wrong options are one
line on stderr and exit code 2. Makes nothing up and looks nothing up: files it names need not exist yet.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from aggregator.app import setting_values
from aggregator.app.setting_values import ValueProblem
from aggregator.operate.bootstrap import METRICS_PATH, READINESS_PATH, GatewayProxy, SocketAddress, bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

USAGE = 2
STATUS_PORT = 15021

T = TypeVar("T")
V = TypeVar("V")


class GatewayRole(StrEnum):
    """The kinds of gateways."""

    EAST_WEST = "east-west"
    INGRESS = "ingress"


class IngressMode(StrEnum):
    """The forms in which ingress gateways are told their configuration."""

    ON_DEMAND = "on-demand"
    COMPATIBLE = "compatible"


def print_bootstrap(
    *,
    role: Annotated[GatewayRole, typer.Option(help="What the Envoy is to be.")],
    xds: Annotated[str, typer.Option(metavar="HOST:PORT", help="The control plane's TLS port.")],
    root_cert: Annotated[
        Path, typer.Option(metavar="FILE", help="The root certificate the control plane is verified with.")
    ],
    token_file: Annotated[
        Path, typer.Option(metavar="FILE", help="The service account token; read again for every stream.")
    ],
    name: Annotated[str, typer.Option(metavar="POD", help="The name of the pod.")],
    namespace: Annotated[str, typer.Option(metavar="NAMESPACE", help="The namespace of the pod.")],
    cluster: Annotated[str, typer.Option(metavar="ID", help="The cluster of the pod, as its control plane calls it.")],
    network: Annotated[str, typer.Option(metavar="NETWORK", help="The network of the pod.")] = "",
    service_account: Annotated[
        str, typer.Option(metavar="NAME", help="The service account of the pod; compared with the token's.")
    ] = "",
    bind: Annotated[str, typer.Option(metavar="IP", help="Where its listeners bind.")] = "0.0.0.0",  # noqa: S104 - clients of a gateway are on other machines
    address: Annotated[
        str, typer.Option(metavar="IP", help="The pod's own address; that of --bind unless given.")
    ] = "",
    http_port: Annotated[int, typer.Option(metavar="PORT", help="The port for HTTP of an ingress gateway.")] = 8080,
    https_port: Annotated[int, typer.Option(metavar="PORT", help="The port for HTTPS of an ingress gateway.")] = 8443,
    mode: Annotated[
        IngressMode | None,
        typer.Option(
            help="How an ingress gateway is told its hosts: one by one, or all at once; "
            "by what the Envoy is able to unless given."
        ),
    ] = None,
    admin: Annotated[
        str, typer.Option(metavar="IP:PORT", help="Envoy's admin interface, for this machine only.")
    ] = "127.0.0.1:15000",
    status: Annotated[
        str,
        typer.Option(
            metavar="IP:PORT",
            help=f"Where {READINESS_PATH} and {METRICS_PATH} are answered; port {STATUS_PORT} of --bind unless given.",
        ),
    ] = "",
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write it; stdout unless given.")] = None,
) -> None:
    """Print the bootstrap of a stock Envoy that works as a gateway."""
    bound = _read("--bind", _ip, bind)
    own = _read("--address", _ip, address or bind)
    if ipaddress.ip_address(own).is_unspecified:
        _fail("--address", f"{own} is no address of one pod", "give the pod's own, such as --address 10.0.0.5")
    proxy = GatewayProxy(
        role=role.value,
        xds=_read("--xds", _host_and_port, xds),
        root_certificates=str(root_cert.absolute()),
        token=str(token_file.absolute()),
        pod=_read("--name", _pod, name),
        namespace=_read("--namespace", setting_values.namespace, namespace),
        service_account=service_account,
        cluster=cluster,
        network=network,
        address=own,
        bind=bound,
        http_port=_read("--http-port", _port, http_port),
        https_port=_read("--https-port", _port, https_port),
        mode=mode.value if mode is not None else "",
        admin=_read("--admin", _loopback, admin),
        status=_read("--status", _ip_and_port, status) if status else SocketAddress(bound, STATUS_PORT),
    )
    text = json.dumps(bootstrap(proxy), indent=2) + "\n"
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text)
    except OSError as error:
        _fail("--output", f"{output} cannot be written: {error.strerror or error}", "check path and permissions")


def _read(option: str, parse: Callable[[T], V], value: T) -> V:
    try:
        return parse(value)
    except ValueProblem as problem:
        _fail(option, problem.problem, problem.cure)


def _fail(option: str, problem: str, cure: str) -> NoReturn:
    print(f"isthmus: {option}: {problem}; {cure}", file=sys.stderr)
    raise typer.Exit(USAGE)


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueProblem(f"{text!r} is no IP address", "write one such as 10.0.0.5, 0.0.0.0 or ::") from None


def _port(number: int) -> int:
    if not 1 <= number <= 65535:
        raise ValueProblem(f"{number} is no port", "write a number between 1 and 65535")
    return number


def _pod(text: str) -> str:
    """A pod's name stands between other parts of the node id."""
    if not text or "~" in text or len(text) > 253:
        raise ValueProblem(f"{text!r} is no name of a pod", "write the pod's metadata.name")
    return text


def _ip_and_port(text: str) -> SocketAddress:
    address = setting_values.address(text)
    return SocketAddress(_ip(address.host), _port(address.port))


def _loopback(text: str) -> SocketAddress:
    address = setting_values.address(text)
    if not address.loopback:
        raise ValueProblem(
            f"{text!r} can be reached from other machines, and whoever reaches it can stop the proxy",
            "write a loopback address, such as 127.0.0.1:15000",
        )
    return _ip_and_port(text)


def _host_and_port(text: str) -> SocketAddress:
    """As `_ip_and_port`, and DNS names too."""
    host, _, port = text.rpartition(":")
    try:
        name = setting_values.certificate_name(host)
    except ValueProblem:
        return _ip_and_port(text)
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueProblem(
            f"{text!r} has no port between 1 and 65535", "write HOST:PORT, such as isthmus.istio-system.svc:15012"
        )
    if ":" in name:
        raise ValueProblem(f"{text!r} has an IPv6 address without brackets", "write it as [::1]:15012")
    return SocketAddress(name, int(port))
