"""Connections to a backend, as annotations want them: what is spoken there, how endpoints are chosen, and TLS.

Two Ingresses that want one backend spoken to differently have two backends. So that a backend is known by its key
alone, what is unlike the default stands in the key (`Connections.text`), and is read from there (`of_text`): words
between commas in one order, each with what it means where that is not clear by itself. No value holds a comma or `|`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from aggregator.mesh.addresses import is_dns_name
from aggregator.traffic.annotations.authentication import SecretRef, secret_ref
from aggregator.traffic.annotations.given import UNPROTECTED, Given, Refused, flag, number

ANNOTATIONS: Final[Mapping[str, str]] = {
    "backend-protocol": "What is spoken to the backend: HTTP, HTTPS, GRPC or GRPCS.",
    "service-upstream": "Whether connections go to the Service's own address, which its cluster spreads.",
    "proxy-connect-timeout": "Seconds until an attempt to connect is given up.",
    "load-balance": "How endpoints are chosen: round_robin, or ewma (the one with the fewest requests).",
    "proxy-ssl-secret": "The Secret with what is shown to the backend and the roots it is checked by.",
    "proxy-ssl-verify": "Whether the backend's certificate is checked by the roots of proxy-ssl-secret: on or off.",
    "proxy-ssl-verify-depth": "How many certificates may stand between a backend's and its root.",
    "proxy-ssl-name": "The name the backend's certificate has to have.",
    "proxy-ssl-server-name": "Whether the backend is told that name (SNI): on or off.",
    "proxy-ssl-protocols": "Versions of TLS, such as TLSv1.2 TLSv1.3.",
}
MOST_SECONDS: Final = 3_600
MOST_DEPTH: Final = 100

_PROTOCOLS: Final = {"HTTP": "", "HTTPS": "https", "GRPC": "grpc", "GRPCS": "grpcs"}
_TLS_VERSIONS: Final = {"TLSv1": 0, "TLSv1.1": 1, "TLSv1.2": 2, "TLSv1.3": 3}


class Connections(msgspec.Struct, frozen=True, gc=False):
    """How a backend is spoken to.

    `protocol` is https, grpc or grpcs, "" what its Service says. `upstream`: at its Service's own address.
    `timeout` is in seconds, 0 the usual one. `balancing` is "round" (each in turn), "ring" (by the hash of what a
    request says), or "" for the least busy. With TLS, `secret` is the Secret of the backend's namespace with the own
    pair and the roots, which are looked at if `verify`, up to `depth` certificates; `name` is what the certificate is
    for, "" the Service, and is told if `sni`. `versions` are the lowest and the highest minor version of TLS 1, as two
    digits, "" the usual ones.
    """

    protocol: str = ""
    upstream: bool = False
    timeout: int = 0
    balancing: str = ""
    secret: str = ""
    verify: bool = False
    depth: int = 1
    name: str = ""
    sni: bool = False
    versions: str = ""

    @property
    def tls(self) -> bool:
        """Whether it is spoken to over TLS of its own."""
        return self.protocol in ("https", "grpcs")

    def text(self) -> str:
        """The same as a part of a key: "" for what all have, else words between commas."""
        words = (
            self.protocol,
            "upstream" if self.upstream else "",
            f"timeout={self.timeout}" if self.timeout else "",
            self.balancing,
            f"secret={self.secret}" if self.secret else "",
            f"verify={self.depth}" if self.verify else "",
            f"name={self.name}" if self.name else "",
            "sni" if self.sni else "",
            f"versions={self.versions}" if self.versions else "",
        )
        return ",".join(word for word in words if word)


DEFAULT: Final = Connections()


def of_text(text: str) -> Connections:
    """What `Connections.text` gave."""
    if not text:
        return DEFAULT
    words = dict.fromkeys(text.split(","))
    said = {key: value for key, is_said, value in (word.partition("=") for word in words) if is_said}
    return Connections(
        protocol=next((one for one in ("https", "grpc", "grpcs") if one in words), ""),
        upstream="upstream" in words,
        timeout=int(said.get("timeout", 0)),
        balancing=next((one for one in ("round", "ring") if one in words), ""),
        secret=said.get("secret", ""),
        verify="verify" in said,
        depth=int(said.get("verify", 1)),
        name=said.get("name", ""),
        sni="sni" in words,
        versions=said.get("versions", ""),
    )


def connections(given: Given, *, hashed: bool = False) -> tuple[Connections, SecretRef | None]:
    """What an Ingress says of the connections to its backends, and the Secret it names for them, which is to be put in
    once it is known to be one of its own. Endpoints are chosen by hash if requests are `hashed`.
    """
    balancing = given.value("load-balance", _balancing, "")
    if hashed:
        if balancing:
            given.refuse("load-balance", "upstream-hash-by chooses the endpoint", "AnnotationUnsupported")
        balancing = "ring"
    secret = given.protection("proxy-ssl-secret", secret_ref, None)
    verify = given.protection("proxy-ssl-verify", _switch, False)
    found = Connections(
        given.value("backend-protocol", _protocol, ""),
        given.value("service-upstream", flag, False),
        given.value("proxy-connect-timeout", number(1, MOST_SECONDS), 0),
        balancing,
        "",
        verify,
        given.value("proxy-ssl-verify-depth", number(1, MOST_DEPTH), 1),
        given.value("proxy-ssl-name", _name, ""),
        given.value("proxy-ssl-server-name", _switch, False),
        given.value("proxy-ssl-protocols", _versions, ""),
    )
    if verify and secret is None:
        given.refuse("proxy-ssl-verify", "needs the roots of a proxy-ssl-secret", UNPROTECTED)
    if found.tls:
        return found if found.verify else msgspec.structs.replace(found, depth=1), secret
    if secret is not None or verify:
        detail = "is for TLS: it needs backend-protocol HTTPS or GRPCS"
        given.refuse("proxy-ssl-secret" if secret is not None else "proxy-ssl-verify", detail, UNPROTECTED)
    plain = Connections(found.protocol, found.upstream, found.timeout, found.balancing)
    return plain, None


def _protocol(text: str) -> str:
    if text.upper() not in _PROTOCOLS:
        raise Refused(f"must be one of {', '.join(_PROTOCOLS)}")
    return _PROTOCOLS[text.upper()]


def _balancing(text: str) -> str:
    if text not in ("round_robin", "ewma"):
        raise Refused("must be round_robin or ewma")
    return "round" if text == "round_robin" else ""


def _switch(text: str) -> bool:
    if text.lower() not in ("on", "off", "true", "false"):
        raise Refused('must be "on" or "off"')
    return text.lower() in ("on", "true")


def _name(text: str) -> str:
    name = text.lower().removesuffix(".")
    if not is_dns_name(name):
        raise Refused("must be a DNS name")
    return name


def _versions(text: str) -> str:
    named = text.split()
    if not named or not all(one in _TLS_VERSIONS for one in named):
        raise Refused(f"must be some of {', '.join(_TLS_VERSIONS)}")
    found = sorted(_TLS_VERSIONS[one] for one in named)
    return f"{found[0]}{found[-1]}"
