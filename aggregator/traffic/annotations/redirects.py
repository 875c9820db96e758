"""Redirects that annotations ask for: to HTTPS.

ssl-redirect (default "true") is for hosts that have TLS, force-ssl-redirect for all.
"""

from __future__ import annotations

import msgspec

from aggregator.traffic.annotations.given import Given, flag


class Redirects(msgspec.Struct, frozen=True, gc=False):
    """`to_https`: whether plain HTTP is sent to HTTPS where the host has TLS; `forced`: also where it has none."""

    to_https: bool = True
    forced: bool = False


def redirects(given: Given) -> Redirects:
    """What an Ingress says of redirects."""
    return Redirects(given.value("ssl-redirect", flag, True), given.value("force-ssl-redirect", flag, False))
