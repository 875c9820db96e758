"""What each Ingress claims: for every host it names, the paths, what is behind all of them, and the TLS Secret.

One Ingress in, one claim per host out, in the terms that are compared: hosts in lower case, among them wildcards
(`*.example`) and "", which is every host that nobody names; paths Exact, Prefix (as ImplementationSpecific is here) or
Regex. What an Ingress says wrongly is told of and left out part by part, never the whole. Who wins where claims meet is
decided in `hosts`.
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
from aggregator.traffic import ingress_references, path_regexes
from aggregator.traffic.annotations.names import OtherName, wanted
from aggregator.traffic.annotations.services import elsewhere
from aggregator.traffic.annotations.settings import NO_SETTINGS, Settings, settings
from aggregator.traffic.backend_keys import backend_key, further_backends
from aggregator.traffic.default_certificate import default_key
from aggregator.traffic.ingress_classes import Judge
from watchers.facts.keys import ObjectKey, label
from watchers.facts.networking import CLASS_ANNOTATION, Ingress, IngressBackend, IngressPath

EXACT: Final = "Exact"
PREFIX: Final = "Prefix"
REGEX: Final = "Regex"
PathKind: TypeAlias = Literal["Exact", "Prefix", "Regex"]

ClaimKey: TypeAlias = tuple[str, str, str, str, str]
"""The Ingress's ObjectKey and the host."""

_UNREACHABLE: Final = re.compile(r"[^A-Za-z0-9\-._~%!$&'()*+,;=:@/]|//|/\.\.?(?:/|\Z)")
"""What no path of a request has once it is normalised: characters that must be escaped, empty and dotted elements."""
_NEEDLESS: Final = re.compile(r"%(?:2[dDeE]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]|7[eE])")
"""Escaped characters that need no escape, which proxies take for the characters themselves (RFC 3986, 6.2.2.2)."""


class PathClaim(msgspec.Struct, frozen=True, gc=False):
    """A path, how it is compared, and the backend it leads to ("": one that is no Service).

    A Prefix stands for whole elements of a path and does not end in a slash, but for `/` itself. A Regex is a path of
    which path_regexes makes a pattern. `field` is where the Ingress says so.
    """

    kind: PathKind
    path: str
    backend: str
    field: str


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What one Ingress claims of one host.

    `default` is the backend behind all paths (None: nothing is), `secret` the key of the TLS Secret; it is `shared` if
    it is not given to the host by name, but to a wildcard over it or to all hosts of its certificate. A host that is
    named for TLS only is not `ruled`, nor is that of a canary; if it is a wildcard that gives hosts of the Ingress
    their Secret, it is not `unused` for that. `settings` are what the Ingress asks for in annotations. `other_name`
    says for what the host is another name, if the Ingress wants it to be.
    """

    origin: ObjectKey
    created: str
    host: str
    paths: tuple[PathClaim, ...]
    default: PathClaim | None
    secret: ObjectKey | None
    ruled: bool
    shared: bool = False
    unused: bool = False
    settings: Settings = NO_SETTINGS
    other_name: OtherName | None = None

    @property
    def backends(self) -> tuple[str, ...]:
        """Keys of the backends it names, each once."""
        behind = (*self.paths, self.default) if self.default is not None else self.paths
        if not behind:
            return ()
        named = [one.backend for one in behind if one.backend]
        named += further_backends(self.origin[2], self.settings)
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
        asked, problems = settings(ingress.annotations, snippets=home.ingress_snippets)
        for problem in (*problems, *elsewhere(asked.services, key[2], ingress.annotations)):
            field = f'metadata.annotations["{problem.annotation}"]'
            at.note(key, Finding(key, problem.code, field, problem.detail))
        annotated = label(ingress.annotations, CLASS_ANNOTATION)
        if ingress.class_name and annotated and annotated != ingress.class_name:
            field = f'metadata.annotations["{CLASS_ANNOTATION}"]'
            detail = f"is {annotated[:80]!r}, where spec.ingressClassName is {ingress.class_name!r}"
            at.note(key, Finding(key, "ClassAnnotationIgnored", field, detail))
        asked = ingress_references.settled(at, key, ingress, asked, allows, home.domain_suffix)
        paths = _paths(at, key, ingress, asked)
        default = _default(at, key, ingress, paths, asked)
        if asked.conditions.unknown:
            paths, default = {host: [] for host in paths}, None
        # A canary has a part of what others serve, and takes part in nothing else of theirs.
        main = asked.canary is None
        names = wanted(paths, asked.names, www=asked.redirects.www) if main else {}
        secrets = _secrets(at, key, ingress, {**paths, **names}, certificates, default_key(home)) if main else {}
        for host in {**paths, **secrets, **names}:
            given = secrets.get(host, _NO_SECRET)
            yield (
                (*key, host),
                Claim(
                    origin=key,
                    created=ingress.created,
                    host=host,
                    paths=tuple(paths.get(host, ())),
                    default=default if main and host in paths else None,
                    secret=given.secret,
                    ruled=main and host in paths,
                    shared=given.shared,
                    unused=given.unused,
                    settings=asked,
                    other_name=names.get(host),
                ),
            )

    return graph.expand("claims of ingresses", ingresses, claims)


def _paths(at: At, key: ObjectKey, ingress: Ingress, asked: Settings) -> dict[str, list[PathClaim]]:
    """The paths of each host that has a rule, in the order of the Ingress."""
    found: dict[str, list[PathClaim]] = {}
    regexes = 0
    for number, rule in enumerate(ingress.rules):
        host = _host(at, key, rule.host, f"spec.rules[{number}].host")
        if host is None:
            continue
        paths = found.setdefault(host, [])
        for position, one in enumerate(rule.paths):
            field = f"spec.rules[{number}].http.paths[{position}]"
            kind, path, wrong = _path(one, regex=asked.matching.regex, before=regexes)
            regexes += kind == REGEX
            if wrong:
                at.note(key, Finding(key, "PathInvalid", f"{field}.path", wrong))
                continue
            paths.append(PathClaim(kind, path, _backend(at, key, one.backend, f"{field}.backend", asked), field))
    return found


def _path(given: IngressPath, *, regex: bool, before: int) -> tuple[PathKind, str, str]:
    """How a path is compared, with what, and what is wrong with it ("": nothing).

    With `regex` it is a regular expression if it can be one, of which the Ingress has had so many `before`.
    """
    if regex and given.path_type != EXACT and given.path != "/":
        if before >= path_regexes.MOST:
            return REGEX, given.path, f"an Ingress has at most {path_regexes.MOST} paths that are regular expressions"
        wrong = path_regexes.problem(given.path)
        return REGEX, given.path, f"{given.path[:80]!r} {wrong}" if wrong else ""
    path = _NEEDLESS.sub(lambda match: chr(int(match[0][1:], 16)), given.path)
    wrong = f"no request has the path {given.path[:80]!r}" if _UNREACHABLE.search(path) else ""
    return (EXACT, path, wrong) if given.path_type == EXACT else (PREFIX, path.rstrip("/") or "/", wrong)


def _default(
    at: At, key: ObjectKey, ingress: Ingress, paths: dict[str, list[PathClaim]], asked: Settings
) -> PathClaim | None:
    """The default backend, which is for the hosts that have a rule; without any rule the Ingress is for all hosts."""
    if ingress.default_backend is None:
        return None
    if not ingress.rules:
        paths[""] = []
    field = "spec.defaultBackend"
    return PathClaim(PREFIX, "/", _backend(at, key, ingress.default_backend, field, asked), field)


def _backend(at: At, key: ObjectKey, backend: IngressBackend, field: str, asked: Settings) -> str:
    if not backend.service:
        at.note(key, Finding(key, "BackendNotService", field, "it names no service"))
        return ""
    return backend_key(key[2], backend.service, backend.port, asked.connections)


class _Given(msgspec.Struct, frozen=True, gc=False):
    """The TLS Secret of a host; see Claim."""

    secret: ObjectKey | None
    shared: bool = False
    unused: bool = False


_NO_SECRET: Final = _Given(None)


def _secrets(
    at: At,
    key: ObjectKey,
    ingress: Ingress,
    ruled: Iterable[str],
    certificates: Collection[ObjectKey, Certificate],
    default: ObjectKey | None,
) -> dict[str, _Given]:
    """The TLS Secret of each host.

    The first entry that lists the host has it, before one that lists a wildcard over it, before one that lists no host
    and whose certificate covers it. An entry without a Secret stands for the one with the `default` certificate.
    """
    listed: dict[str, ObjectKey] = {}
    unlisted: list[ObjectKey] = []
    over_all: ObjectKey | None = None
    for number, entry in enumerate(ingress.tls):
        field = f"spec.tls[{number}]"
        secret = (key[0], "TLSSecret", key[2], entry.secret) if entry.secret else default
        if secret is None:
            at.note(key, Finding(key, "TlsHasNoSecret", f"{field}.secretName", "it is empty"))
            continue
        if not entry.hosts and entry.secret:
            unlisted.append(secret)
        if not entry.hosts and not entry.secret:
            over_all = default
        for position, given in enumerate(entry.hosts):
            host = _host(at, key, given, f"{field}.hosts[{position}]")
            if host:
                listed.setdefault(host, secret)
    found: dict[str, _Given] = {}
    useful: set[str] = set()
    for host in ruled:
        if host in listed:
            found[host] = _Given(listed[host])
            continue
        wildcard = wildcard_over(host)
        if wildcard in listed:
            useful.add(wildcard)
            found[host] = _Given(listed[wildcard], shared=True)
            continue
        covering = _covering(at, host, unlisted, certificates) or over_all
        if covering is not None:
            found[host] = _Given(covering, shared=True)
    for host, secret in listed.items():
        if host not in found:
            found[host] = _Given(secret, unused=host not in useful)
    return found


def wildcard_over(host: str) -> str:
    """The wildcard that stands for a host, of which the first label is left open; "" if there is none."""
    _, dot, parent = host.partition(".")
    return f"*.{parent}" if dot and not host.startswith("*") else ""


def _covering(
    at: At, host: str, secrets: list[ObjectKey], certificates: Collection[ObjectKey, Certificate]
) -> ObjectKey | None:
    for secret in secrets:
        certificate = at.get(certificates, secret)
        if certificate is not None and certificate.covers(host):
            return secret
    return None


def _host(at: At, key: ObjectKey, given: str, field: str) -> str | None:
    """A host as it is looked for: a name, a wildcard, or "" for all; None, with a finding, for anything else."""
    host = given.lower().removesuffix(".")
    if not given or is_dns_name(host.removeprefix("*.")):
        return host
    at.note(key, Finding(key, "HostInvalid", field, f"{given[:80]!r} is no DNS name"))
    return None
