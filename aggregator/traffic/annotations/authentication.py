"""Who may come: users of a Secret by name and password, or whoever a service of the cluster says may.

What cannot be had as it is asked for leaves the paths closed, never open. Which Secret and Service are meant, and
whether the Ingress may refer to them, is judged where its namespace is known (traffic.ingress_references).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.traffic.annotations.given import UNPROTECTED, Given, Refused, listed
from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import dns_label, subdomain

ANNOTATIONS: Final[Mapping[str, str]] = {
    "auth-type": "Lets in users by name and password: basic.",
    "auth-secret": "The Secret with the users, as htpasswd -s writes them, under auth.",
    "auth-secret-type": "How the Secret holds them: auth-file.",
    "auth-realm": "Not told to clients: the realm is the URL.",
    "auth-url": "A Service that is asked about each request: http://service.namespace.svc/path. 2xx lets it in.",
    "auth-signin": "Where those are sent (302) that auth-url answers 401.",
    "auth-signin-redirect-param": "The name of that parameter.",
    "auth-response-headers": "Headers of the answer of auth-url, between commas, that the backend is to see.",
}
MOST_HEADERS: Final = 32
_URL: Final = re.compile(
    r"(https?)://([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::([0-9]{1,5}))?((?:/[A-Za-z0-9\-._~!&'()*+,;=:@/%]*)?"
    r"(?:\?[A-Za-z0-9\-._~!&'()*+,;=:@/%?]*)?)",
)
_PLACE: Final = re.compile(r"https?://[A-Za-z0-9\-._~!&'()*+,;=:@/%?\[\]{}$]+")
_VARIABLE: Final = re.compile(r"\$\{?([a-z_]+)\}?")
_VARIABLES: Final = {
    "host": "host",
    "http_host": "host",
    "best_http_host": "host",
    "scheme": "scheme",
    "pass_access_scheme": "scheme",
    "request_uri": "path",
    "escaped_request_uri": "escaped-path",
}
_HEADER: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}")
_PARAMETER: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")
_RESERVED: Final = ("connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade")


class SecretRef(msgspec.Struct, frozen=True, gc=False):
    """A Secret by name; `namespace` is "" where the Ingress does not say it."""

    namespace: str
    name: str


class Authorizer(msgspec.Struct, frozen=True, gc=False):
    """Who is asked about each request: `scheme`, `host` and `port` of a URL, and the `path` (with its query) there.

    `headers` of an answer that lets in are passed on, in lower case and sorted. `sign_in` is where clients are sent who
    have to prove who they are, "": nowhere: texts, and between them `$host`, `$scheme`, `$path` and `$escaped-path` for
    what they asked for. `backend` is the key of the service behind it, once that is settled.
    """

    scheme: str
    host: str
    port: int
    path: str
    headers: tuple[str, ...] = ()
    sign_in: tuple[str, ...] = ()
    backend: str = ""


class Authentication(msgspec.Struct, frozen=True, gc=False):
    """What clients have to pass, None: nothing of the kind."""

    users: SecretRef | None = None
    authorizer: Authorizer | None = None


ANYBODY: Final = Authentication()


def authentication(given: Given) -> Authentication:
    """What an Ingress says of who may come."""
    users, authorizer = _users(given), _authorizer(given)
    return Authentication(users, authorizer) if users or authorizer else ANYBODY


def secret_ref(text: str) -> SecretRef:
    """`<name>` or `<namespace>/<name>`."""
    namespace, slash, name = text.rpartition("/")
    try:
        return SecretRef(dns_label(namespace) if slash else "", subdomain(name))
    except InvalidObject:
        raise Refused("must be the name of a Secret") from None


def _users(given: Given) -> SecretRef | None:
    def kind(text: str) -> str:
        if text != "basic":
            raise Refused('must be "basic"')
        return text

    def form(text: str) -> str:
        if text != "auth-file":
            raise Refused('must be "auth-file"')
        return text

    basic = given.protection("auth-type", kind, "")
    secret = given.protection("auth-secret", secret_ref, None)
    given.protection("auth-secret-type", form, "")
    if given.value("auth-realm", str, ""):
        given.refuse("auth-realm", "clients are told the URL as the realm", "AnnotationUnsupported")
    if given.unprotected:
        return None
    if basic and secret is None:
        given.refuse("auth-type", "needs auth-secret", UNPROTECTED)
    if secret is not None and not basic:
        given.refuse("auth-secret", 'needs auth-type "basic"', UNPROTECTED)
    return secret if basic else None


def _authorizer(given: Given) -> Authorizer | None:
    headers = given.value("auth-response-headers", _headers, ())
    parameter = given.value("auth-signin-redirect-param", _parameter, "rd")
    sign_in = given.value("auth-signin", lambda text: _sign_in(text, parameter), ())
    found = given.protection("auth-url", _url, None)
    if found is None:
        return None
    return msgspec.structs.replace(found, headers=headers, sign_in=sign_in)


def _url(text: str) -> Authorizer:
    match = _URL.fullmatch(text)
    port = int(match[3] or (443 if match[1] == "https" else 80)) if match is not None else 0
    if match is None or not 0 < port < 1 << 16:
        raise Refused("must be the URL of a Service, as http://<service>.<namespace>.svc/<path>, without variables")
    path = match[4] if match[4].startswith("/") else f"/{match[4]}"
    return Authorizer(match[1], match[2], port, path)


def _headers(text: str) -> tuple[str, ...]:
    names = sorted({one.lower() for one in listed(text)})
    if len(names) > MOST_HEADERS:
        raise Refused(f"must name at most {MOST_HEADERS} headers")
    for one in names:
        if not _HEADER.fullmatch(one) or one in _RESERVED or one.startswith("x-isthmus-"):
            raise Refused(f"and {one[:60]!r} is no header that may be passed on")
    return tuple(names)


def _parameter(text: str) -> str:
    if not _PARAMETER.fullmatch(text):
        raise Refused("must be the name of a parameter of a URL")
    return text


def _sign_in(text: str, parameter: str) -> tuple[str, ...]:
    if not text:
        return ()
    if not _PLACE.fullmatch(text):
        raise Refused("must be a URL")
    parts: list[str] = []
    after = 0
    for match in _VARIABLE.finditer(text):
        if match[1] not in _VARIABLES:
            raise Refused(f"and of {', '.join(f'${one}' for one in sorted(_VARIABLES))} there is no ${match[1][:40]}")
        parts += [text[after : match.start()], f"${_VARIABLES[match[1]]}"]
        after = match.end()
    parts.append(text[after:])
    if any("$" in one for one in parts[::2]):
        raise Refused("has a $ that begins no variable")
    if f"{parameter}=" not in text:
        parts[-1] += f"{'&' if '?' in text else '?'}{parameter}="
        parts += ["$scheme", "://", "$host", "$escaped-path"]
    return tuple(one for one in parts if one)
