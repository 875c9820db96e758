"""Redirects that annotations ask for: to HTTPS, to another place, from a host's root, from its other name.

What an Ingress redirects to another place leads to no backend. Plain HTTP is redirected to HTTPS first. Variables of
nginx are understood where they say "as in the request": `$scheme` and `$host` at their places, `$request_uri` at the
end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.mesh.addresses import is_dns_name
from aggregator.traffic.annotations.given import Given, Refused, flag

ANNOTATIONS: Final[Mapping[str, str]] = {
    "ssl-redirect": "Sends plain HTTP to HTTPS (308) where the host has TLS.",
    "force-ssl-redirect": "Sends plain HTTP to HTTPS (308) also where the host has no TLS.",
    "permanent-redirect": "Answers with a redirect to this URL in place of a backend.",
    "permanent-redirect-code": "The status of permanent-redirect.",
    "temporal-redirect": "As permanent-redirect, before which it goes.",
    "temporal-redirect-code": "The status of temporal-redirect.",
    "app-root": "Where requests for exactly / are sent (302).",
    "from-to-www-redirect": "Sends the host's name with or without www. to the one in the Ingress (308).",
}

LONGEST: Final = 1024
"""Characters of a URL."""

_URL: Final = re.compile(
    r"(?:(?P<scheme>https?|\$scheme)://(?P<host>\$host|[A-Za-z0-9.\-]+)(?::(?P<port>[0-9]{1,5}))?)?"
    r"(?P<path>/[!-~]*?|)(?P<same>\$request_uri)?"
)


class Elsewhere(msgspec.Struct, frozen=True, gc=False):
    """Where requests are sent instead, and with which status. Parts that are empty are as in the request.

    `path` (with its query) takes the place of the request's; `before` stands before the request's, which stays.
    """

    status: int
    scheme: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    before: str = ""


class Redirects(msgspec.Struct, frozen=True, gc=False):
    """`to_https`: whether plain HTTP is sent to HTTPS where the host has TLS; `forced`: also where it has none.

    `elsewhere` is for all requests, `root` the path for those to / alone ("": none). With `www`, the host's name with
    www. before it, or without, is sent to it.
    """

    to_https: bool = True
    forced: bool = False
    elsewhere: Elsewhere | None = None
    root: str = ""
    www: bool = False


def redirects(given: Given) -> Redirects:
    """What an Ingress says of redirects."""
    permanent = _elsewhere(given, "permanent-redirect", 301)
    temporal = _elsewhere(given, "temporal-redirect", 302)
    return Redirects(
        given.value("ssl-redirect", flag, True),
        given.value("force-ssl-redirect", flag, False),
        temporal or permanent,
        given.value("app-root", _root, ""),
        given.value("from-to-www-redirect", flag, False),
    )


def _elsewhere(given: Given, name: str, otherwise: int) -> Elsewhere | None:
    code = given.value(f"{name}-code", status, otherwise)
    found = given.value(name, place, None)
    return msgspec.structs.replace(found, status=code) if found is not None else None


def status(text: str) -> int:
    """The status of a redirect. Raises Refused."""
    if text not in ("301", "302", "303", "307", "308"):
        raise Refused("must be one of 301, 302, 303, 307, 308")
    return int(text)


def place(text: str) -> Elsewhere | None:
    """Where a URL leads, with a status that is still to be filled in. Raises Refused."""
    match = _URL.fullmatch(text)
    if match is None or not text or len(text) > LONGEST:
        raise Refused(f"must be a URL of http or https, or a path, of at most {LONGEST:,} characters")
    scheme, host, path = match["scheme"] or "", match["host"] or "", match["path"]
    port = int(match["port"] or 0)
    if "$" in path:
        raise Refused("has variables other than $scheme, $host and, at the end, $request_uri")
    if port > 65535 or (host and host != "$host" and not is_dns_name(host.lower())):
        raise Refused("must name a host and a port that can be")
    if scheme == "$scheme":
        scheme = ""
    if host == "$host":
        host = ""
    if match["same"]:
        before = path.removesuffix("/")
        if "?" in before or "#" in before:
            raise Refused("must end before ? where $request_uri follows")
        if not (scheme or host or port or before):
            raise Refused("is the URL of the request itself")
        return Elsewhere(0, scheme, host.lower(), port, "", before)
    return Elsewhere(0, scheme, host.lower(), port, path or "/")


def _root(text: str) -> str:
    if not re.fullmatch(r"/[!-~]+", text) or text.startswith("//") or len(text) > LONGEST:
        raise Refused(f"must be a path other than / of at most {LONGEST:,} characters")
    return text
