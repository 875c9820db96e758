"""Clients that stay with the endpoint they had first, by a cookie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.mesh.addresses import is_dns_name
from aggregator.traffic.annotations.given import Given, Refused, flag, number, one_of

ANNOTATIONS: Final[Mapping[str, str]] = {
    "affinity": "Keeps a client with its endpoint, while that is there, by a cookie: cookie.",
    "affinity-mode": "How: balanced or persistent.",
    "session-cookie-name": "The name of the cookie.",
    "session-cookie-path": "The path of the cookie.",
    "session-cookie-max-age": "Seconds the cookie is kept.",
    "session-cookie-expires": "As session-cookie-max-age, which goes before it.",
    "session-cookie-samesite": "With which requests browsers send it: None, Lax or Strict.",
    "session-cookie-secure": "Whether browsers send it over HTTPS alone.",
    "session-cookie-domain": "The domain it is for.",
    "session-cookie-change-on-failure": "Whether an endpoint that is gone is replaced, and the cookie with it.",
}
LONGEST_AGE: Final = 10 * 366 * 86_400
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_PATH: Final = re.compile(r"/[A-Za-z0-9\-._~%!$&'()*+,=:@/]{0,255}")


class SessionCookie(msgspec.Struct, frozen=True, gc=False):
    """The cookie that tells an endpoint: kept for `max_age` seconds, 0 until the browser ends."""

    name: str = "INGRESSCOOKIE"
    path: str = "/"
    max_age: int = 0
    same_site: str = ""
    secure: bool = False
    domain: str = ""


def session_cookie(given: Given) -> SessionCookie | None:
    """What an Ingress says of affinity; None: it wants none."""
    wanted = given.value("affinity", one_of("cookie"), "")
    given.value("affinity-mode", one_of("balanced", "persistent"), "")
    if not given.value("session-cookie-change-on-failure", flag, True):
        detail = "an endpoint that is gone is always replaced"
        given.refuse("session-cookie-change-on-failure", detail, "AnnotationUnsupported")
    expires = given.value("session-cookie-expires", number(0, LONGEST_AGE), 0)
    found = SessionCookie(
        given.value("session-cookie-name", _name, "INGRESSCOOKIE"),
        given.value("session-cookie-path", _path, "/"),
        given.value("session-cookie-max-age", number(0, LONGEST_AGE), expires),
        given.value("session-cookie-samesite", one_of("None", "Lax", "Strict"), ""),
        given.value("session-cookie-secure", flag, False),
        given.value("session-cookie-domain", _domain, ""),
    )
    return found if wanted else None


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise Refused("must be the name of a cookie")
    return text


def _path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise Refused("must be a path")
    return text


def _domain(text: str) -> str:
    domain = text.lower().removeprefix(".")
    if not is_dns_name(domain):
        raise Refused("must be a DNS name")
    return domain
