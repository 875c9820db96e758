"""Addresses and names as they appear in manifests, checked before anything is built on them.

Everything a cluster says is hostile until checked: an address or a name that goes on from here cannot forge the name of
another resource, nor make a proxy refuse the resource it stands in.
"""

from __future__ import annotations

import re
from socket import AF_INET, AF_INET6, inet_pton

_DNS_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*\Z")


def pack(address: str) -> bytes | None:
    """The 4 or 16 bytes of an IP address in network order; None if `address` is not one."""
    try:
        return inet_pton(AF_INET6 if ":" in address else AF_INET, address)
    except (OSError, ValueError):
        return None


def is_dns_name(name: str) -> bool:
    """Whether `name` is a lower-case DNS name (RFC 1123)."""
    return _DNS_NAME.match(name) is not None


def is_host_name(name: str) -> bool:
    """Whether `name`, in any case, may be that of a host: its last label is no number, as in an address with a slip."""
    return is_dns_name(name.lower()) and not name.rpartition(".")[2].isdigit()
