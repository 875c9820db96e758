"""What each Ingress claims: for every host it names, the paths, what is behind all of them, and the TLS Secret.

One Ingress in, one claim per host out, in the terms that are compared: hosts in lower case, paths Exact or Prefix
(ImplementationSpecific is Prefix here). What an Ingress says wrongly is told of and left out part by part, never the
whole. Who wins where claims meet is decided in `hosts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.addresses import is_dns_name
from aggregator.mesh.home import Home
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.security.certificates import Certificate
from aggregator.security.references import Allows
from aggregator.traffic import ingress_references
from aggregator.traffic.annotations.connections import DEFAULT as DEFAULT_CONNECTIONS
from aggregator.traffic.annotations.connections import Connections
from aggregator.traffic.annotations.settings import NO_SETTINGS, Settings, settings
from aggregator.traffic.ingress_classes import Judge
from watchers.facts.keys import ObjectKey
from watchers.facts.networking import Ingress, IngressBackend

EXACT: Final = "Exact"
PREFIX: Final = "Prefix"
PathKind: TypeAlias = Literal["Exact", "Prefix"]

ClaimKey: TypeAlias = tuple[str, str, str, str, str]
"""The Ingress's ObjectKey and the host."""

_UNREACHABLE: Final = re.compile(r"[^A-Za-z0-9\-._~%!$&'()*+,;=:@/]|//|/\.\.?(?:/|\Z)")
"""What no path of a request has once it is normalised: characters that must be escaped, empty and dotted elements."""
_NEEDLESS: Final = re.compile(r"%(?:2[dDeE]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]|7[eE])")
"""Escaped characters that need no escape, which proxies take for the characters themselves (RFC 3986, 6.2.2.2)."""


class PathClaim(msgspec.Struct, frozen=True, gc=False):
    """A path, how it is compared, and the backend it leads to ("": one that is no Service).

    A Prefix stands for whole elements of a path and does not end in a slash, but for `/` itself. `field` is where the
    Ingress says so.
    """

    kind: PathKind
    path: str
    backend: str
    field: str


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What one Ingress claims of one host.

    `default` is the backend behind all paths (None: nothing is), `secret` the key of the TLS Secret. A host that is
    named for TLS only is not `ruled`. `settings` are what the Ingress asks for in annotations.
    """

    origin: ObjectKey
    created: str
    host: str
    paths: tuple[PathClaim, ...]
    default: PathClaim | None
    secret: ObjectKey | None
    ruled: bool
    settings: Settings = NO_SETTINGS

    @property
    def backends(self) -> tuple[str, ...]:
        """Keys of the backends it names, each once."""
        behind = (*self.paths, self.default) if self.default is not None else self.paths
        named = [one.backend for one in behind if one.backend]
        named += ingress_references.backends(self.origin[2], self.settings.policies)
        return tuple(dict.fromkeys(named))

    def field_of(self, backend: str) -> str:
        """Where the Ingress first names a backend."""
        behind = (*self.paths, self.default) if self.default is not None else self.paths
        return next((one.field for one in behind if one.backend == backend), "metadata.annotations")


def declare(
    graph: Graph,
    home: Home,
    includes: Includes,
    ingresses: Source[ObjectKey, Ingress],
    judge: Judge,
    certificates: Collection[ObjectKey, Certificate],
    allows: Allows,
) -> Collection[ClaimKey, Claim]:
    """Declare the claims of home's Ingresses."""

    def claims(at: At, key: ObjectKey, ingress: Ingress) -> Iterable[tuple[ClaimKey, Outcome[Claim]]]:
        nowhere = (*key, "")
        if key[0] != home.cluster:
            yield nowhere, Withheld("NotOfHome", key[0])
            return
        if not includes(at, key[0], key[2]):
            yield nowhere, UNSELECTED
            return
        refusal = judge(at, ingress)
        if refusal is not None:
            yield nowhere, refusal
            return
        asked, problems = settings(ingress.annotations)
        for problem in problems:
            field = f'metadata.annotations["{problem.annotation}"]'
            at.note(key, Finding(key, problem.code, field, problem.detail))
        asked = ingress_references.settled(at, key, ingress, asked, allows, home.domain_suffix)
        paths = _paths(at, key, ingress, asked)
        default = _default(at, key, ingress, asked)
        secrets = _secrets(at, key, ingress, paths, certificates)
        for host in {**paths, **secrets}:
            yield (
                (*key, host),
                Claim(
                    origin=key,
                    created=ingress.created,
                    host=host,
                    paths=tuple(paths.get(host, ())),
                    default=default if host in paths else None,
                    secret=secrets.get(host),
                    ruled=host in paths,
                    settings=asked,
                ),
            )

    return graph.expand("claims of ingresses", ingresses, claims)


def _paths(at: At, key: ObjectKey, ingress: Ingress, asked: Settings) -> dict[str, list[PathClaim]]:
    """The paths of each host that has a rule, in the order of the Ingress."""
    found: dict[str, list[PathClaim]] = {}
    for number, rule in enumerate(ingress.rules):
        host = _host(at, key, rule.host, f"spec.rules[{number}].host")
        if host is None:
            continue
        paths = found.setdefault(host, [])
        for position, one in enumerate(rule.paths):
            field = f"spec.rules[{number}].http.paths[{position}]"
            path = _NEEDLESS.sub(lambda match: chr(int(match[0][1:], 16)), one.path)
            if _UNREACHABLE.search(path):
                at.note(key, Finding(key, "PathInvalid", f"{field}.path", f"no request has the path {one.path[:80]!r}"))
                continue
            backend = _backend(at, key, one.backend, f"{field}.backend", asked)
            if one.path_type == EXACT:
                paths.append(PathClaim(EXACT, path, backend, field))
            else:
                paths.append(PathClaim(PREFIX, path.rstrip("/") or "/", backend, field))
    return found


def _default(at: At, key: ObjectKey, ingress: Ingress, asked: Settings) -> PathClaim | None:
    if ingress.default_backend is None:
        return None
    field = "spec.defaultBackend"
    if not ingress.rules:
        at.note(key, Finding(key, "HostNotServed", field, "it is for all hosts"))
        return None
    return PathClaim(PREFIX, "/", _backend(at, key, ingress.default_backend, field, asked), field)


def _backend(at: At, key: ObjectKey, backend: IngressBackend, field: str, asked: Settings) -> str:
    if not backend.service:
        at.note(key, Finding(key, "BackendNotService", field, "it names no service"))
        return ""
    return backend_key(key[2], backend.service, backend.port, asked.connections)


def backend_key(
    namespace: str, service: str, port: int | str, connections: Connections = DEFAULT_CONNECTIONS
) -> str:
    """`ing|<namespace>|<service>|<port number or name>`, which is also the name of the backend's cluster.

    Where it is not spoken to as all are, how stands behind another `|`.
    """
    text = connections.text()
    return f"ing|{namespace}|{service}|{port}|{text}" if text else f"ing|{namespace}|{service}|{port}"


def _secrets(
    at: At,
    key: ObjectKey,
    ingress: Ingress,
    ruled: Iterable[str],
    certificates: Collection[ObjectKey, Certificate],
) -> dict[str, ObjectKey]:
    """The TLS Secret of each host.

    The first entry that lists the host has it, before one that lists a wildcard over it, before one that lists no host
    and whose certificate covers it.
    """
    listed: dict[str, ObjectKey] = {}
    over: dict[str, ObjectKey] = {}
    unlisted: list[ObjectKey] = []
    for number, entry in enumerate(ingress.tls):
        field = f"spec.tls[{number}]"
        if not entry.secret:
            at.note(key, Finding(key, "TlsHasNoSecret", f"{field}.secretName", "it is empty"))
            continue
        secret = (key[0], "TLSSecret", key[2], entry.secret)
        if not entry.hosts:
            unlisted.append(secret)
        for position, given in enumerate(entry.hosts):
            name = given.lower().removesuffix(".")
            if name.startswith("*.") and is_dns_name(name[2:]):
                over.setdefault(name[2:], secret)
                continue
            host = _host(at, key, given, f"{field}.hosts[{position}]")
            if host is not None:
                listed.setdefault(host, secret)
    for host in ruled:
        if host in listed:
            continue
        secret_over = over.get(host.partition(".")[2]) or _covering(at, host, unlisted, certificates)
        if secret_over is not None:
            listed[host] = secret_over
    return listed


def _covering(
    at: At, host: str, secrets: list[ObjectKey], certificates: Collection[ObjectKey, Certificate]
) -> ObjectKey | None:
    for secret in secrets:
        certificate = at.get(certificates, secret)
        if certificate is not None and certificate.covers(host):
            return secret
    return None


def _host(at: At, key: ObjectKey, given: str, field: str) -> str | None:
    """A host as requests name it; None, with a finding, for what is not served."""
    host = given.lower().removesuffix(".")
    if is_dns_name(host):
        return host
    if not given or (host.startswith("*.") and is_dns_name(host[2:])):
        what = f"{given} stands for many hosts" if given else "it is for all hosts"
        at.note(key, Finding(key, "HostNotServed", field, what))
    else:
        at.note(key, Finding(key, "HostInvalid", field, f"{given[:80]!r} is no DNS name"))
    return None
