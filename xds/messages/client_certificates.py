"""Clients' certificates in HTTP: who gets in by the name in it, and what backends are told.

Part of the connection manager of chains that ask clients for certificates. Headers of the same names that a client
sends are taken away before anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from xds import protos
from xds.messages.extension import Extension, extension, write_extension

VERIFIED: Final = "ssl-client-verify"
SUBJECT: Final = "ssl-client-subject-dn"
ISSUER: Final = "ssl-client-issuer-dn"
CERTIFICATE: Final = "ssl-client-cert"
CLIENT_HEADERS: Final = (VERIFIED, SUBJECT, ISSUER, CERTIFICATE)
"""The headers by which backends know of a client's certificate, as ingress-nginx names them."""

_RBAC: Final = protos.envoy.config.rbac.v3.RBAC
_Action: Final = protos.envoy.config.rbac.v3.Action


def told_headers(*, required: bool, passed_on: bool) -> tuple[tuple[str, str], ...]:
    """Header and format string, of what backends are told.

    That a certificate is good is said only where it is `required`, since elsewhere there may be none. The certificate
    itself (PEM, with escapes as in a URL) is sent if it is `passed_on`.
    """
    told = [(VERIFIED, "SUCCESS")] if required else []
    told += [(SUBJECT, "%DOWNSTREAM_PEER_SUBJECT%"), (ISSUER, "%DOWNSTREAM_PEER_ISSUER%")]
    if passed_on:
        told.append((CERTIFICATE, "%DOWNSTREAM_PEER_CERT%"))
    return tuple(told)


def allowed_names(names: Iterable[str]) -> Extension:
    """The HTTP filter that answers 403 to whoever has no certificate with one of these common names."""
    config = protos.envoy.extensions.filters.http.rbac.v3.RBAC()
    field = config.matcher.matcher_list.matchers.add()
    predicate = field.predicate.single_predicate
    subject = protos.envoy.extensions.matching.common_inputs.ssl.v3.SubjectInput()
    write_extension(predicate.input, extension("envoy.matching.inputs.subject", subject))
    names = "|".join(re.escape(name) for name in sorted(names))
    # The subject is written as in RFC 2253, where a comma in a value stands behind a backslash.
    regex = predicate.value_match.safe_regex
    regex.google_re2.SetInParent()
    regex.regex = rf"(?:.*[^\\],)?CN=(?:{names})(?:,.*)?"
    allow, deny = _Action(name="named", action=_RBAC.ALLOW), _Action(name="other", action=_RBAC.DENY)
    write_extension(field.on_match.action, extension("envoy.filters.rbac.action", allow))
    write_extension(config.matcher.on_no_match.action, extension("envoy.filters.rbac.action", deny))
    return extension("envoy.filters.http.rbac", config)
