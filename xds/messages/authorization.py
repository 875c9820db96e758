"""What a ztunnel is told of who may connect to whom: one policy, layer 4 only.

A frozen record and its encoder: istio.security.Authorization, named "<namespace>/<name>". How a ztunnel evaluates it is
told in xds/proto/authorization.proto, as are the numbers. The encoder writes what it is given. Mind that emptiness has
meanings: a policy without groups matches nothing, a group without rules everything, a match without fields nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from xds import protos
from xds.encoded import Encoded, encode

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

AUTHORIZATION_TYPE: Final = "type.googleapis.com/istio.security.Authorization"


class Scope(IntEnum):
    """Which workloads a policy is for: all, those of its namespace, or those that name it."""

    GLOBAL = 0
    NAMESPACE = 1
    WORKLOAD_SELECTOR = 2


class Action(IntEnum):
    """What happens to a connection that matches; DENY goes before ALLOW."""

    ALLOW = 0
    DENY = 1


class Comparison(IntEnum):
    """How a string is compared: the numbers of the arms of StringMatch.match_type."""

    EXACT = 1
    PREFIX = 2
    SUFFIX = 3
    PRESENCE = 4


class StringMatch(Struct, frozen=True, gc=False):
    """A string to compare with; PRESENCE, any value that is not empty, has none."""

    comparison: Comparison
    value: str = ""


class AddressRange(Struct, frozen=True, gc=False):
    """A prefix: 4 or 16 raw bytes and a length in bits."""

    address: bytes
    length: int


class ServiceAccountMatch(Struct, frozen=True, gc=False):
    """A service account of the mesh's trust domain."""

    namespace: str
    service_account: str


class Match(Struct, frozen=True, gc=False):
    """Conditions that must all hold; of each field any of its values may."""

    namespaces: tuple[StringMatch, ...] = ()
    not_namespaces: tuple[StringMatch, ...] = ()
    principals: tuple[StringMatch, ...] = ()
    not_principals: tuple[StringMatch, ...] = ()
    source_ips: tuple[AddressRange, ...] = ()
    not_source_ips: tuple[AddressRange, ...] = ()
    destination_ips: tuple[AddressRange, ...] = ()
    not_destination_ips: tuple[AddressRange, ...] = ()
    destination_ports: tuple[int, ...] = ()
    not_destination_ports: tuple[int, ...] = ()
    service_accounts: tuple[ServiceAccountMatch, ...] = ()
    not_service_accounts: tuple[ServiceAccountMatch, ...] = ()


class Rules(Struct, frozen=True, gc=False):
    """Alternatives: any match will do."""

    matches: tuple[Match, ...] = ()


class Group(Struct, frozen=True, gc=False):
    """Rules that must all match."""

    rules: tuple[Rules, ...] = ()


class Authorization(Struct, frozen=True, gc=False):
    """One policy. Its resource must be named "<namespace>/<name>": a ztunnel keys policies by the resource's name."""

    name: str
    namespace: str
    scope: Scope
    action: Action
    groups: tuple[Group, ...] = ()
    dry_run: bool = False


def encode_authorization(authorization: Authorization) -> Encoded:
    """The bytes of the istio.security.Authorization."""
    message = protos.istio.security.Authorization(
        name=authorization.name, namespace=authorization.namespace, dry_run=authorization.dry_run
    )
    message.scope = authorization.scope
    message.action = authorization.action
    for group in authorization.groups:
        group_message = message.groups.add()
        for rules in group.rules:
            rules_message = group_message.rules.add()
            for match in rules.matches:
                _write_match(rules_message.matches.add(), match)
    return encode(message)


def _write_match(message: protos.istio.security.Match, match: Match) -> None:
    _write_strings(message.namespaces, match.namespaces)
    _write_strings(message.not_namespaces, match.not_namespaces)
    _write_strings(message.principals, match.principals)
    _write_strings(message.not_principals, match.not_principals)
    _write_ranges(message.source_ips, match.source_ips)
    _write_ranges(message.not_source_ips, match.not_source_ips)
    _write_ranges(message.destination_ips, match.destination_ips)
    _write_ranges(message.not_destination_ips, match.not_destination_ips)
    message.destination_ports.extend(match.destination_ports)
    message.not_destination_ports.extend(match.not_destination_ports)
    _write_accounts(message.service_accounts, match.service_accounts)
    _write_accounts(message.not_service_accounts, match.not_service_accounts)


def _write_strings(
    field: RepeatedCompositeFieldContainer[protos.istio.security.StringMatch], strings: Iterable[StringMatch]
) -> None:
    for string in strings:
        message = field.add()
        match string.comparison:
            case Comparison.EXACT:
                message.exact = string.value
            case Comparison.PREFIX:
                message.prefix = string.value
            case Comparison.SUFFIX:
                message.suffix = string.value
            case Comparison.PRESENCE:
                message.presence.SetInParent()


def _write_ranges(
    field: RepeatedCompositeFieldContainer[protos.istio.security.Address], ranges: Iterable[AddressRange]
) -> None:
    for given in ranges:
        field.add(address=given.address, length=given.length)


def _write_accounts(
    field: RepeatedCompositeFieldContainer[protos.istio.security.ServiceAccountMatch],
    accounts: Iterable[ServiceAccountMatch],
) -> None:
    for account in accounts:
        field.add(namespace=account.namespace, serviceAccount=account.service_account)
