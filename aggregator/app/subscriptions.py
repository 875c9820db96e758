"""Joins the Tables to the sessions: which view a proxy's subscription reads, and reading it.

In: the resources and settled Tables. Out: what xds declares it needs (`Views`, `Subscription`). Asking for a view
makes it an item of the interest Table; the graph answers in its next pass. Nothing is copied: a subscription is a
cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from aggregator.app.address_books import SharedBook
from aggregator.app.aggregate import Tables
from aggregator.app.unknown_names import UnknownNames
from aggregator.security.credential_names import has_scheme
from aggregator.views import credentials, east_west_gateway, ingress_compatible, ingress_gateway, ztunnel
from aggregator.views.ingress_chains import names_chain
from aggregator.views.ingress_modes import Mode, mode_of
from aggregator.views.view import View, listen_address
from xds.encoded import Resource
from xds.messages.backend_tls import names_backend
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.hbone import Profile
from xds.messages.http_filters import lacking_filters
from xds.messages.route_table import ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.server.authority_in_force import AuthorityInForce
from xds.server.proxies import Proxy
from xds.server.workload_certificates import WorkloadCertificates
from xds.session.by_name import ByName
from xds.session.content import Changes, Subscription
from xds.session.on_demand import OnDemand
from xds.session.requests import FOR_ON_DEMAND, HASHABLE_STRING
from xds.session.server_names import ServerNames

LINGER = 60.0
"""Seconds a view is kept after its last stream has ended: proxies that lose their stream are soon back."""


def view_for(proxy: Proxy, type_url: str) -> View | None:
    """What a proxy is told of a type; None where proxies like it are told nothing of it."""
    if proxy.role == ztunnel.ROLE:
        return ztunnel.view_of(type_url)
    if proxy.role == ingress_gateway.ROLE:
        proven = proxy.identity is not None
        lacking = lacking_filters(proxy.extensions)
        if mode_for(proxy) is Mode.COMPATIBLE:
            return ingress_compatible.view_of(
                type_url, proxy.claimed, profile=_profile(proxy), lacking=lacking, proven=proven
            )
        if type_url == ROUTE_TYPE:  # for one that was served in the other mode before, until its listeners are replaced
            return ingress_compatible.routes_view(lacking, proven=proven)
        return ingress_gateway.view_of(type_url, proxy.claimed, proven=proven)
    if proxy.role == east_west_gateway.ROLE:
        return east_west_gateway.view_of(
            type_url,
            gateway=f"{proxy.namespace}/{proxy.gateway}",
            bind=listen_address(proxy.claimed("ISTHMUS_BIND")),
            network=proxy.network,
            profile=_profile(proxy),
        )
    return None


def mode_for(proxy: Proxy) -> Mode:
    """How an ingress gateway is served: as its pod says, else as its bootstrap says, if it is able to."""
    able = proxy.incremental and proxy.extensions >= FOR_ON_DEMAND
    return mode_of(proxy.mode, proxy.claimed("ISTHMUS_INGRESS_MODE"), able=able)


def _profile(proxy: Proxy) -> Profile:
    return Profile.STOCK if HASHABLE_STRING in proxy.extensions else Profile.ISTIO


def credential_view(proxy: Proxy, name: str) -> View | None:
    """Where a proxy reads a credential by its name, as whom it has proven to be; None if it is none that it reads."""
    if proxy.role != ingress_gateway.ROLE or proxy.identity is None:
        return None
    account = proxy.identity.service_account
    return credentials.view_of(name, namespace=proxy.namespace, gateway=proxy.gateway, account=account)


class Interest:
    """Which views are asked for, by how many subscriptions. Writes the interest Table."""

    def __init__(self, tables: Tables, *, linger: float = LINGER) -> None:
        self._table = tables.interest
        self._linger = linger
        self._counts: dict[View, int] = {}
        self._leaving: dict[View, asyncio.TimerHandle] = {}

    def keep(self, *views: View) -> None:
        """Ask for views for as long as the process lives."""
        for view in views:
            self._counts[view] = self._counts.get(view, 0) + 1
        self._table.apply([(view.key, view) for view in views])

    def take(self, view: View) -> None:
        """One more subscription to a view."""
        timer = self._leaving.pop(view, None)
        if timer is not None:
            timer.cancel()
        self._counts[view] = self._counts.get(view, 0) + 1
        self._table.apply([(view.key, view)])

    def release(self, view: View, *, at_once: bool = False) -> None:
        """One subscription less. With the last one gone the view is dropped, after a while unless it is of no use."""
        self._counts[view] -= 1
        if not self._counts[view]:
            del self._counts[view]
            if at_once:
                self._table.apply([(view.key, None)])
                return
            self._leaving[view] = asyncio.get_running_loop().call_later(self._linger, self._drop, view)

    def _drop(self, view: View) -> None:
        del self._leaving[view]
        self._table.apply([(view.key, None)])


class Surroundings(msgspec.Struct, frozen=True):
    """What the subscriptions of all proxies share. `certificate_lifetime` is in seconds, `home` the home cluster."""

    tables: Tables
    interest: Interest
    authority: AuthorityInForce
    certificate_lifetime: float
    home: str
    addresses: SharedBook
    unknown_names: UnknownNames = msgspec.field(default_factory=UnknownNames)


class TableSubscription:
    """One stream's reading of one view. Satisfies `xds.session.content.Subscription`.

    A session asks for `pending` and `state` at every poll, so they are kept and not found out each time.
    """

    def __init__(self, around: Surroundings, view: View, bell: Callable[[], None]) -> None:
        tables = around.tables
        around.interest.take(view)
        self._home = around.home
        self._interest = around.interest
        self._resources = tables.resources
        self._settled = tables.settled
        self._view = view
        self._name, self._key = view.name, view.key
        self._bell = bell
        self._changes = tables.resources.cursor(self._name, self._changed, from_start=False)
        self._completeness = tables.settled.cursor(self._name, self._completed, from_start=False)
        self.pending = False
        """Whether there are changes to take."""
        self.state: Literal["unknown", "partial", "settled"] = self._settled.get(self._key) or "unknown"
        """Whether the view may be told, and whether absence from it means anything."""

    def get(self, name: str) -> Resource | None:
        """The resource of that name as it is now."""
        return self._resources.get((self._name, name))

    def known(self, name: str) -> bool:
        """Whether there is such a resource; every resource of these views is at hand."""
        return self.get(name) is not None

    def final(self, name: str) -> bool:
        """Whether no cluster that is still to be read can have a part in the resource."""
        return self._view.role == ztunnel.ROLE and ztunnel.is_of_cluster(name, self._home)

    def current(self, name: str, version: str) -> bool:
        """Whether it is the version there is: equal content has an equal version, on every replica."""
        resource = self.get(name)
        return resource is not None and resource.version == version

    def items(self) -> Iterable[tuple[str, Resource]]:
        """All resources as they are now."""
        for key, resource in self._resources.scan((self._name,)):
            yield key[1], resource

    def take(self) -> Changes:
        """What has changed since last time, in whole passes."""
        self.pending = False
        batch = self._changes.take()
        return Changes({key[1]: resource for key, resource in batch.changes.items()}, batch.causes, batch.revision)

    def untaken(self, name: str) -> bool:
        """Whether `take` would return the name."""
        return self._changes.unread((self._name, name))

    def _changed(self) -> None:
        self.pending = True
        self._bell()

    def _completed(self) -> None:
        self._completeness.take()
        self.state = self._settled.get(self._key) or "unknown"
        self._bell()

    def close(self) -> None:
        """Read no more."""
        self._changes.close()
        self._completeness.close()
        self._interest.release(self._view)


class AddressSubscription(TableSubscription):
    """One stream's reading of the addresses by all names they have. Satisfies `xds.session.content.Directory` as well.

    `node` is that of the proxy, as its admission has it.
    """

    def __init__(self, around: Surroundings, view: View, bell: Callable[[], None], node: str) -> None:
        super().__init__(around, view, bell)
        self._shared = around.addresses
        self._node = node

    def take(self) -> Changes:
        """See TableSubscription. What is asked afterwards is answered from the same state of the world."""
        self._shared.catch_up()
        return super().take()

    def consult(self) -> None:
        """The client names what it wants: the book is needed."""
        self._shared.open(self, self._bell)

    @property
    def ready(self) -> bool:
        """Whether the book is made."""
        return self._shared.ready

    def find(self, asked: str) -> tuple[str, ...]:
        """The resources a name stands for."""
        return self._shared.book.find(asked)

    def members(self, name: str) -> Iterable[str]:
        """The endpoints of a service."""
        return self._shared.book.members(name)

    def needs(self, name: str) -> Iterable[str]:
        """The gateways and waypoints that a resource names."""
        return self._shared.book.needs(name)

    def sought(self, name: str) -> Iterable[str]:
        """The addresses of a resource, and its services."""
        return self._shared.book.sought(name)

    def spans(self, name: str) -> bool:
        """Whether it has ranges of addresses."""
        return self._shared.book.spans(name)

    def aliases(self, name: str) -> tuple[str, ...]:
        """Its addresses."""
        return self._shared.book.aliases(name)

    def stands(self, name: str) -> bool:
        """Whether it is a gateway, or a workload of the proxy's node."""
        return self._shared.book.stands(name, self._node)

    def standing(self) -> Iterable[str]:
        """All those."""
        return self._shared.book.standing(self._node)

    def close(self) -> None:
        """Read no more."""
        self._shared.close(self)
        super().close()


class CredentialSubscription(TableSubscription):
    """One stream's reading of a credential. A view that holds none does not outlive it: names cost a client nothing, so
    what it asked for and did not get must cost nothing here.
    """

    def close(self) -> None:
        """Read no more."""
        self._changes.close()
        self._completeness.close()
        self._interest.release(self._view, at_once=next(iter(self.items()), None) is None)


class CertificateSubscription(TableSubscription):
    """One stream's reading of the certificates of hosts.

    Those of the other mode (ingress_modes) have names of another form. A gateway that has just changed its mode holds
    some, which its listeners show until they are replaced: they are not told, and not taken away either.
    """

    def current(self, name: str, version: str) -> bool:
        """See TableSubscription. What the client holds from the other mode may stay."""
        other = names_chain(name) != (self._view.role == ingress_compatible.ROLE) and not names_backend(name)
        return other or super().current(name, version)


class TableViews:
    """The views of one proxy, and the certificates made for it. Satisfies `xds.session.content.Views`."""

    def __init__(self, around: Surroundings, proxy: Proxy, bell: Callable[[], None]) -> None:
        self._around = around
        self._proxy = proxy
        self._bell = bell

    def open(self, type_url: str) -> Subscription | None:
        """Subscribe to what this proxy is told of a type; None if proxies like it are not served that type."""
        around, proxy, bell = self._around, self._proxy, self._bell
        view = view_for(proxy, type_url)
        read: Subscription | None = None
        if view == ztunnel.ADDRESSES:
            read = AddressSubscription(around, view, bell, proxy.node)
        elif view is not None and proxy.role == ingress_gateway.ROLE and type_url == SECRET_TYPE:
            read = CertificateSubscription(around, view, bell)
        elif view is not None:
            read = TableSubscription(around, view, bell)
        on_demand = proxy.role == ingress_gateway.ROLE and mode_for(proxy) is Mode.ON_DEMAND
        if read is not None and on_demand and type_url == CLUSTER_TYPE:
            read = OnDemand(read, ingress_gateway.is_standing)
        if read is not None and on_demand and type_url == SECRET_TYPE:
            later = asyncio.get_running_loop().call_later
            awaited = around.tables.awaited
            read = ServerNames(
                read, lambda name: awaited.get((name,)) is not None, bell, later, around.unknown_names.count
            )
        if type_url == SECRET_TYPE and proxy.role == ingress_gateway.ROLE and proxy.identity is not None:
            read = ByName(read, has_scheme, self._open_credential, bell)
        if type_url == SECRET_TYPE and proxy.identity is not None and around.authority.signer is not None:
            lifetime = around.certificate_lifetime
            return WorkloadCertificates(around.authority, proxy.identity, read, bell, lifetime=lifetime)
        return read

    def _open_credential(self, name: str, bell: Callable[[], None]) -> Subscription | None:
        """Begin to read a credential by its name."""
        view = credential_view(self._proxy, name)
        return CredentialSubscription(self._around, view, bell) if view is not None else None
