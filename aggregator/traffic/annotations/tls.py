"""How TLS with a host's clients is spoken, as annotations want it: the class of settings, and where TLS ends.

auth-tls-* demand certificates of clients, ssl-cipher(s) and tls-min/max-protocol-version say what may be negotiated,
ssl-passthrough leaves TLS to the backend, tls-chain asks for a filter chain of the host's own. What demands something
of clients and cannot be read closes the host: nobody gets in because of a slip.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias, cast

import msgspec

from aggregator.mesh.addresses import is_dns_name
from aggregator.traffic.annotations.given import Given, Refused, flag, number, one_of

Verification: TypeAlias = Literal["on", "optional", "optional_no_ca"]
ChainKind: TypeAlias = Literal["", "static", "on-demand"]

ANNOTATIONS: Final = {
    "auth-tls-secret": "Asks clients for certificates of the roots in this Secret: [namespace/]name.",
    "auth-tls-verify-client": "Which clients get in: on (with a good one), optional, optional_no_ca (with any), off.",
    "auth-tls-verify-depth": "How many certificates may stand between a client's and its root.",
    "auth-tls-match-cn": "The common names of clients that get in: CN=name, or CN=(...) with bars between several.",
    "auth-tls-pass-certificate-to-upstream": "Whether backends are sent the client's certificate.",
    "ssl-ciphers": "Cipher suites up to TLS 1.2, by OpenSSL's names, between colons.",
    "ssl-cipher": "As ssl-ciphers, which goes before it.",
    "tls-min-protocol-version": "The lowest version of TLS: TLSv1.0 to TLSv1.3.",
    "tls-max-protocol-version": "The highest version of TLS.",
    "ssl-passthrough": "Leaves TLS to the backend behind /.",
    "tls-chain": "static: a filter chain of the host's own, in which sessions are resumed; on-demand: none.",
}
"""What is read here."""

VERSIONS: Final = ("TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3")
CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA",
    "AES256-SHA",
)
"""What Envoy's library can be told, up to TLS 1.2; it refuses all of a listener over any other name."""
MOST_NAMES: Final = 32
"""Common names that one Ingress may list."""

_LEAST: Final = "TLSv1.2"
"""What gateways begin with where nobody says so."""
_NONE: tuple[str, ...] = ()
_DEPTH: Final = 1
"""Certificates between a client's and its root, where nobody says how many."""
_COMMON_NAMES: Final = re.compile(r"CN=\^?\(?([A-Za-z0-9._ @|\\-]+)\)?\$?\Z")


class TlsSettings(msgspec.Struct, frozen=True, gc=False):
    """What makes up a class: hosts of equal settings share a filter chain, and connections.

    `roots` is the Secret with the roots of clients' certificates, `<namespace>/<name>` or just a name, "" if no
    certificate is asked for; `verify` what becomes of clients without a good one. A chain may have `depth` certificates
    between a client's and its root. `names` are the common names that get in, none: all. Backends are told of the
    certificate if it is `passed_on`. `ciphers`, `least` and `most` (of VERSIONS) are "" or empty for what all have.
    """

    roots: str = ""
    verify: Verification = "on"
    depth: int = _DEPTH
    names: tuple[str, ...] = ()
    passed_on: bool = False
    ciphers: tuple[str, ...] = ()
    least: str = ""
    most: str = ""


NO_DEMANDS: Final = TlsSettings()


class Tls(msgspec.Struct, frozen=True, gc=False):
    """What an Ingress says of TLS: its settings; whether its backend ends it (`passthrough`); whether its hosts want a
    chain of their own or none (`chain`); and whether nobody is to get in, since a demand could not be read (`closed`).
    """

    settings: TlsSettings = NO_DEMANDS
    passthrough: bool = False
    chain: ChainKind = ""
    closed: bool = False

    @property
    def demanding(self) -> bool:
        """Whether it keeps anybody out, so that who is let in elsewhere must not get what is behind it."""
        return self.closed or bool(self.settings.roots)


NO_TLS_SETTINGS: Final = Tls()
CLOSED: Final = Tls(closed=True)


def tls(given: Given) -> Tls:
    """What an Ingress says of TLS."""
    passthrough = given.value("ssl-passthrough", flag, False)
    chain = cast("ChainKind", given.value("tls-chain", one_of("static", "on-demand"), ""))
    ciphers = given.value("ssl-ciphers", _ciphers, _NONE) or given.value("ssl-cipher", _ciphers, _NONE)
    least = given.value("tls-min-protocol-version", one_of(*VERSIONS), "")
    most = given.value("tls-max-protocol-version", one_of(*VERSIONS), "")
    if most and VERSIONS.index(least or _LEAST) > VERSIONS.index(most):
        given.refuse("tls-max-protocol-version", f"is {most}, and tls-min-protocol-version {least or _LEAST}")
        most = ""
    clients = _clients(given)
    if passthrough:
        if clients != NO_DEMANDS or ciphers or least or most:
            given.refuse("ssl-passthrough", "leaves TLS to the backend: no other annotation about TLS has an effect")
        return Tls(passthrough=True)
    if clients is None:
        return CLOSED
    found = msgspec.structs.replace(clients, ciphers=ciphers, least=least, most=most)
    return Tls(found, chain=chain) if (found, chain) != (NO_DEMANDS, "") else NO_TLS_SETTINGS


def _clients(given: Given) -> TlsSettings | None:
    """The part about clients' certificates; None where a demand cannot be read."""
    before = len(given.problems)
    roots = given.value("auth-tls-secret", _object, "")
    verify = given.value("auth-tls-verify-client", one_of("on", "off", "optional", "optional_no_ca"), "on")
    depth = given.value("auth-tls-verify-depth", number(1, 16), _DEPTH)
    names = given.value("auth-tls-match-cn", _common_names, _NONE)
    passed_on = given.value("auth-tls-pass-certificate-to-upstream", flag, False)
    if len(given.problems) > before:
        return None
    if verify == "off":
        return NO_DEMANDS
    if not roots:
        for name in ("auth-tls-match-cn", "auth-tls-verify-client"):
            if name in given:
                given.refuse(name, "asks for certificates of clients, and no auth-tls-secret says whose")
                return None
        return NO_DEMANDS
    return TlsSettings(roots, cast("Verification", verify), depth, names, passed_on)


def _object(text: str) -> str:
    namespace, slash, name = text.rpartition("/")
    if not is_dns_name(name) or (slash and not is_dns_name(namespace)):
        raise Refused("must be <namespace>/<name> of a Secret")
    return text


def _common_names(text: str) -> tuple[str, ...]:
    match = _COMMON_NAMES.match(text)
    names = sorted({one.replace("\\.", ".").replace("\\-", "-") for one in match[1].split("|")}) if match else []
    if not 0 < len(names) <= MOST_NAMES or any(not one or "\\" in one for one in names):
        raise Refused(f'must be "CN=" and a name, or up to {MOST_NAMES} as CN=(one|other): no other expressions')
    return tuple(names)


def _ciphers(text: str) -> tuple[str, ...]:
    known = tuple(dict.fromkeys(one for one in re.split(r"[:, ]+", text) if one in CIPHERS))
    if not known:
        raise Refused(f"must name some of {', '.join(CIPHERS)}; those of TLS 1.3 cannot be chosen")
    return known
