"""Which hosts a kubeconfig may send this process to.

Whoever can write a registration must not make us talk to the services that a machine offers to itself over link-local
addresses: the metadata service of a cloud hands out the machine's own credentials. Names are judged when a kubeconfig
is read, addresses also when a name has been resolved, just before dialling. Pure: resolves and opens nothing.
"""

from __future__ import annotations

import ipaddress
import re

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA_NAMES = frozenset({"instance-data", "metadata", "metadata.goog", "metadata.google.internal"})
_METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(address)
    # AWS over IPv6, Alibaba, Azure, Oracle; all others are link-local.
    for address in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_](?:[-a-z0-9_]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[-a-z0-9_]{0,61}[a-z0-9_])?)*"
)
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")


def objection(host: str) -> str:
    """Why this host (a name, or an address without brackets) may not be dialled, as "is ..."; "" if it may."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _objection_to_name(host.lower().removesuffix("."))
    return "" if may_dial(address) else "is an address of the machine's own services"


def may_dial(address: Address) -> bool:
    """Whether an address is one that an API server, or a proxy before it, may have."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = embedded(address)
        if inner is not None:
            return may_dial(inner)
        # A zone (fe80::1%eth0) changes nothing in what the address is, but in what it equals.
        address = ipaddress.IPv6Address(int(address))
    return not (
        address.is_link_local or address.is_unspecified or address.is_multicast or address in _METADATA_ADDRESSES
    )


def embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that is reached by this IPv6 address (mapped, 6to4, NAT64), if it is such a one."""
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner


def _objection_to_name(name: str) -> str:
    if name in _METADATA_NAMES:
        return "is the metadata service of a cloud"
    if not _NAME.fullmatch(name):
        return "is no host name"
    # inet_aton takes 2852039166 and 0xa9.0xfe.0xa9.0xfe for addresses.
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return "is an address in a form that is not read"
    return ""
