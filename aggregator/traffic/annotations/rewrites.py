"""What a backend sees of a request, as annotations want it: another path, another host, the prefix that was cut off.

rewrite-target takes the place of the whole path. `$1` to `$9` in it are the groups of the Ingress's path where that is
a regular expression, and nothing where it is none or has fewer. The query stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.mesh.addresses import is_dns_name
from aggregator.traffic.annotations.expressions import some_header_value
from aggregator.traffic.annotations.given import Given, Refused

ANNOTATIONS: Final[Mapping[str, str]] = {
    "rewrite-target": "The path a backend sees in place of the whole path of a request; $1 to $9 are groups of it.",
    "upstream-vhost": "The host a backend sees; $service_name, $namespace and $service_port are the backend's.",
    "x-forwarded-prefix": "The value of the header X-Forwarded-Prefix for the backend.",
}

LONGEST: Final = 1024
_VARIABLE: Final = re.compile(r"\$(service_name|service_port|namespace)(?![a-z_])")


class Rewrites(msgspec.Struct, frozen=True, gc=False):
    """Each is "" for what is not changed. `host` may hold variables of a backend (`host_of`)."""

    path: str = ""
    host: str = ""
    prefix: str = ""


UNCHANGED: Final = Rewrites()


def rewrites(given: Given) -> Rewrites:
    """What an Ingress says of them."""
    found = Rewrites(
        given.value("rewrite-target", _path, ""),
        given.value("upstream-vhost", _host, ""),
        given.value("x-forwarded-prefix", some_header_value, ""),
    )
    return found if found != UNCHANGED else UNCHANGED


def host_of(host: str, namespace: str, service: str, port: str) -> str:
    """The host that a backend sees."""
    values = {"service_name": service, "namespace": namespace, "service_port": port}
    return _VARIABLE.sub(lambda match: values[match[1]], host)


def replacement(path: str, groups: int) -> str:
    """The path as RE2 writes what replaces a match of an expression with so many groups."""

    def group(match: re.Match[str]) -> str:
        return f"\\{match[1]}" if int(match[1]) <= groups else ""

    return re.sub(r"\$([1-9])", group, path.replace("\\", "\\\\"))


def _path(text: str) -> str:
    if re.match(r"[A-Za-z][A-Za-z0-9+.\-]*://", text):
        raise Refused("must be a path; permanent-redirect leads to other hosts")
    if not re.fullmatch(r"(?:/|\$[1-9])[!-~]*", text) or "?" in text or "#" in text or len(text) > LONGEST:
        raise Refused(f"must be a path of at most {LONGEST:,} characters, without a query")
    if re.search(r"\$(?![1-9])", text):
        raise Refused("has variables other than $1 to $9")
    return text


def _host(text: str) -> str:
    name, _, port = _VARIABLE.sub("1", text).partition(":")
    if not is_dns_name(name.lower()) or (":" in text and not (port.isascii() and port.isdigit() and len(port) < 6)):
        raise Refused("must be the name of a host, with a port if need be")
    return text
