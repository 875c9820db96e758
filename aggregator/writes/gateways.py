"""What Gateways and GatewayClasses of ours are told: whether they are accepted and programmed, and each listener too.

Ours are those whose controller is; Istio's are left alone, unless this process stands in its place (--istio-classes).
Today that is gateways between networks: east-west Gateways of home, and Gateways that stand for one elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from aggregator.graph import At, Collection, Graph, Index, Outcome, Source, Withheld
from aggregator.mesh.addresses import pack
from aggregator.mesh.home import Home, cluster_key
from aggregator.mesh.networks import NETWORK_LABEL, ROLES, UNANSWERED, Networks, controller_of
from aggregator.mesh.selection import UNSELECTED, Includes
from aggregator.writes import conditions as made
from aggregator.writes.conditions import ACCEPTED, CONFLICTED, PROGRAMMED, RESOLVED
from watchers.facts.cluster import Cluster
from watchers.facts.conditions import Condition, ListenerStatus
from watchers.facts.gateway_api import Gateway, GatewayClass, Listener
from watchers.facts.keys import ObjectKey, label
from watchers.writes import ConditionsStatus, GatewayStatus, WriteKey

_OURS = "isthmus.dev/"
_NOT_YET = "NamePending"


class Sources(msgspec.Struct, frozen=True):
    """What is judged, and by what; ``rejected`` are the resources that proxies refused (`views.rejections`)."""

    clusters: Source[ObjectKey, Cluster]
    gateways: Source[ObjectKey, Gateway]
    classes: Source[ObjectKey, GatewayClass]
    networks: Networks
    rejected: Index[ObjectKey, Any, Any]


def declare(
    graph: Graph, home: Home, includes: Includes, sources: Sources
) -> tuple[Collection[WriteKey, GatewayStatus], Collection[WriteKey, ConditionsStatus]]:
    """Declare what home's Gateways and GatewayClasses are to be told."""

    def is_known(_at: At, _key: ObjectKey, cluster: Cluster) -> Outcome[bool]:
        return True if cluster.state == "synced" else Withheld("HomeNotSynced")

    known = graph.derive("clusters that are known", sources.clusters, is_known)

    def is_ours(controller: str) -> bool:
        return controller in ROLES and (home.istio_classes or controller.startswith(_OURS))

    def gateway_status(at: At, key: ObjectKey, gateway: Gateway) -> Iterable[tuple[WriteKey, Outcome[GatewayStatus]]]:
        yield (*key, "status"), of_gateway(at, key, gateway)

    def of_gateway(at: At, key: ObjectKey, gateway: Gateway) -> Outcome[GatewayStatus]:
        if key[0] != home.cluster:
            return Withheld("NotOfHome", key[0])
        if not at.get(known, cluster_key(home.cluster)):
            return Withheld("HomeNotSynced")
        controller = controller_of(at, home, sources.classes, gateway.class_name)
        if not is_ours(controller):
            return GatewayStatus() if gateway.told else Withheld("OfOtherController", controller)
        if key[2] != home.system_namespace and not includes(at, key[0], key[2]):
            return GatewayStatus() if gateway.told else UNSELECTED
        return judged(at, key, gateway, stand_in=ROLES[controller] == "remote")

    def judged(at: At, key: ObjectKey, gateway: Gateway, *, stand_in: bool) -> Outcome[GatewayStatus]:
        flaws = _listener_flaws(gateway.listeners, stand_in=stand_in)
        used = [one for one, flaw in zip(gateway.listeners, flaws, strict=True) if not flaw]
        accepted = _accepted(gateway.generation, flaws)
        flaw = programmed(at, key, gateway, used, stand_in=stand_in)
        if flaw == _NOT_YET:
            return Withheld(_NOT_YET)
        generation = gateway.generation
        program = made.flawed(PROGRAMMED, generation, flaw) if flaw else made.good(PROGRAMMED, generation)
        listeners = tuple(
            [
                _listener_status(one, generation, of_listener, flaw)
                for one, of_listener in zip(gateway.listeners, flaws, strict=True)
            ]
        )
        wanted = (accepted, program)
        if made.said(wanted, gateway.conditions) and made.listeners_said(listeners, gateway.listener_status):
            return Withheld("StatusCurrent")
        before = {one.name: one.conditions for one in gateway.listener_status}
        since = [ListenerStatus(one.name, made.dated(one.conditions, before.get(one.name, ()))) for one in listeners]
        return GatewayStatus(made.dated(wanted, gateway.conditions), tuple(since))

    def programmed(at: At, key: ObjectKey, gateway: Gateway, used: list[Listener], *, stand_in: bool) -> str:
        """The code of what is in the way of a Gateway, "" if nothing is."""
        network = label(gateway.labels, NETWORK_LABEL)
        if not used or not network:
            return "NotANetworkGateway"
        if not gateway.addresses:
            return "GatewayHasNoAddress"
        if all(one.type not in ("", "IPAddress", "Hostname") for one in gateway.addresses):
            return "GatewayAddressInvalid"
        if stand_in:
            ways = at.group(sources.networks.ways_into, network).values()
            if not any((one.cluster, "Gateway", one.namespace, one.name) == key for one in ways):
                return without_way(at, gateway)
        return "ResourceRejected" if at.group(sources.rejected, key) else ""

    def without_way(at: At, gateway: Gateway) -> str:
        """Why no address of a stand-in leads anywhere."""
        if any(pack(one.value) for one in gateway.addresses):
            return "GatewayAddressTaken"
        names = {(one.value.lower().removesuffix("."),) for one in gateway.addresses}
        # A process that has just started must not deny what it has only not asked yet.
        unanswered = at.group(sources.networks.unanswered, UNANSWERED)
        return _NOT_YET if any(name in unanswered for name in names) else "GatewayAddressNotResolved"

    def class_status(
        at: At, key: ObjectKey, one: GatewayClass
    ) -> Iterable[tuple[WriteKey, Outcome[ConditionsStatus]]]:
        yield (*key, "status"), of_class(at, key, one)

    def of_class(at: At, key: ObjectKey, one: GatewayClass) -> Outcome[ConditionsStatus]:
        if key[0] != home.cluster:
            return Withheld("NotOfHome", key[0])
        if not at.get(known, cluster_key(home.cluster)):
            return Withheld("HomeNotSynced")
        if not is_ours(one.controller):
            return ConditionsStatus() if one.told else Withheld("OfOtherController", one.controller)
        wanted = (made.good(ACCEPTED, one.generation),)
        if made.said(wanted, one.conditions):
            return Withheld("StatusCurrent")
        return ConditionsStatus(made.dated(wanted, one.conditions))

    return (
        graph.expand("status of gateways", sources.gateways, gateway_status),
        graph.expand("status of gateway classes", sources.classes, class_status),
    )


def _accepted(generation: int, flaws: list[str]) -> Condition:
    if not flaws or all(flaws):
        return made.flawed(ACCEPTED, generation, "GatewayListenersInvalid")
    if any(flaws):
        # It works all the same: the standard wants to hear True then, and why it is not the whole truth.
        flawed = made.flawed(ACCEPTED, generation, "GatewayListenersInvalid")
        return msgspec.structs.replace(flawed, status="True")
    return made.good(ACCEPTED, generation)


def _listener_flaws(listeners: tuple[Listener, ...], *, stand_in: bool) -> list[str]:
    """For each listener the code of why it is not used, "" for the one that is: the first that takes tunnels."""
    flaws: list[str] = []
    for one in listeners:
        if one.protocol != "HBONE":
            flaws.append("ListenerProtocolUnsupported")
        elif not stand_in and one.tls_mode != "Terminate":
            flaws.append("ListenerDoesNotTerminate")
        else:
            flaws.append("ListenerNotUsed" if "" in flaws else "")
    return flaws


def _listener_status(listener: Listener, generation: int, flaw: str, gateway_flaw: str) -> ListenerStatus:
    if flaw:
        accepted = made.flawed(ACCEPTED, generation, flaw)
        program = Condition(PROGRAMMED, "False", "Invalid", accepted.message, generation)
    else:
        accepted = made.good(ACCEPTED, generation)
        program = made.good(PROGRAMMED, generation)
        if gateway_flaw:
            said = made.flawed(PROGRAMMED, generation, gateway_flaw)
            program = msgspec.structs.replace(said, reason="Pending")
    resolved = made.good(RESOLVED, generation)
    conflicted = Condition(CONFLICTED, "False", "NoConflicts", "", generation)
    return ListenerStatus(listener.name, (accepted, program, resolved, conflicted))
