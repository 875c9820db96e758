"""Annotations that mean something to other controllers, and that gateways of Isthmus do not honour.

Some ask for what is not there, each with what to do instead; some are about the insides of another proxy, and nobody
misses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "client-body-buffer-size": "Bodies are passed on as they come.",
    "connection-proxy-header": "Connections to backends are kept.",
    "enable-rewrite-log": "Access logs have the path as it came.",
    "http2-push-preload": "Browsers have given up on pushed answers.",
    "proxy-buffer-size": "Answers are passed on as they come.",
    "proxy-buffering": "Answers are passed on as they come.",
    "proxy-buffers-number": "Answers are passed on as they come.",
    "proxy-http-version": "The Service's port says what it speaks.",
    "proxy-max-temp-file-size": "There are no temporary files.",
    "proxy-request-buffering": "Bodies are passed on as they come.",
}
"""Annotations about the insides of another proxy, which nobody misses here, and why."""

_CODE: Final = "is configuration of nginx, which there is none of here: look for an annotation that says what is meant"
_LOGS: Final = "is not per Ingress: access logs and traces are set for the whole mesh"

UNSUPPORTED: Final[Mapping[str, str]] = {
    "auth-cache-*": "is not supported: an authentication service is asked each time",
    "auth-snippet": _CODE,
    "configuration-snippet": f"{_CODE}, or have the operator set --ingress-snippets for the few that are understood",
    "custom-headers": "names a ConfigMap, which is not read: write the headers into response-header-control-update",
    "enable-access-log": _LOGS,
    "enable-opentelemetry": _LOGS,
    "enable-opentracing": _LOGS,
    "global-rate-limit": "is not supported: limits are kept by each gateway",
    "global-rate-limit-*": "is not supported: limits are kept by each gateway",
    "influxdb-*": "is not supported: metrics are those of the gateway",
    "lua-*": _CODE,
    "mirror-host": "is not supported: a copy is for the host the request is for",
    "mirror-request-body": "is not supported: a copy is the whole request",
    "mirror-target": "is not supported: name a Service in mirror-target-service",
    "modsecurity-*": "is not supported: there is no web application firewall here",
    "enable-modsecurity": "is not supported: there is no web application firewall here",
    "enable-owasp-core-rules": "is not supported: there is no web application firewall here",
    "opentelemetry-*": _LOGS,
    "opentracing-*": _LOGS,
    "proxy-cookie-*": "is not supported: have the backend set the cookie as it is to be",
    "proxy-redirect-*": "is not supported: have the backend answer with the Location as it is to be",
    "satisfy": "is not supported: all that an Ingress asks of a request must hold",
    "server-snippet": _CODE,
    "stream-snippet": _CODE,
}
"""What is said of annotations that ask for what is not there; a name that ends in * is for all that begin so."""


def unsupported(name: str) -> str:
    """What is said of an annotation of that name; "" if it is not among those."""
    if name in UNSUPPORTED:
        return UNSUPPORTED[name]
    return next((said for key, said in UNSUPPORTED.items() if key[-1] == "*" and name.startswith(key[:-1])), "")
