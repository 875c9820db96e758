"""In which order the types of one stream go out: make before break.

What refers to something must arrive after it, and leave before it: a ztunnel skips a policy it does not know, which
opens what the policy would close. An Order says it once for all proxies, as data; the rules by which a session keeps to
it are in xds.session.machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from xds.encoded import Resource, wrap
from xds.messages.assignment import ASSIGNMENT_TYPE, encode_assignment
from xds.messages.authorization import AUTHORIZATION_TYPE
from xds.messages.cluster import CLUSTER_TYPE
from xds.messages.listener import LISTENER_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.messages.workload import ADDRESS_TYPE, WORKLOAD_TYPE


class Order(Struct, frozen=True):
    """The order of types, by type URL. A type that is not mentioned waits for nothing and holds up nothing.

    `ranks`: resources of a type go out when every type of a lower rank on the stream has sent what it has.
    `first_after`: the first answer of a type waits for the first of another, since the client may begin to work with it
      at once; for `patience` seconds if the client does not ask for the other at all.
    `completing`: a type without whose resources a client does not answer what it was told of the other (an Envoy that
      warms a cluster for which it has no endpoints yet). It does not wait for that while an answer is awaited, or both
      would wait for ever.
    `dependents`: the types whose resources may refer to a type. It removes nothing before they have sent what they had
      at that time and the client has answered, whether it accepted it or not. `seldom`: those of them that nothing
      waits for while the client has not asked for them.
    `individual`: the types of which a client takes each resource on its own, so that all a rejection does not name was
      applied. Of the others it may have applied nothing (an Envoy refuses scoped routes as a whole): the rest is sent
      again.
    `nothing`: of a type whose clients wait for every name they ask for, what stands for a name that does not exist, in
      the state-of-the-world variant, which has no other way to say so.
    """

    ranks: Mapping[str, int] = {}
    first_after: Mapping[str, str] = {}
    completing: Mapping[str, str] = {}
    dependents: Mapping[str, tuple[str, ...]] = {}
    seldom: frozenset[str] = frozenset()
    patience: float = 0.1
    individual: frozenset[str] = frozenset()
    nothing: Mapping[str, Callable[[str], Resource]] = {}


@lru_cache(1024)
def _no_endpoints(cluster: str) -> Resource:
    return wrap(ASSIGNMENT_TYPE, cluster, encode_assignment(cluster))


MAKE_BEFORE_BREAK: Final = Order(
    ranks={
        AUTHORIZATION_TYPE: 0,
        ADDRESS_TYPE: 1,
        WORKLOAD_TYPE: 1,
        # Of Envoys. Secrets wait for nothing: a client's handshake waits for them.
        CLUSTER_TYPE: 2,
        ASSIGNMENT_TYPE: 3,
        LISTENER_TYPE: 4,
        SCOPED_ROUTE_TYPE: 5,
    },
    # A ztunnel opens after the first answer of each type, and asks for addresses first.
    first_after={ADDRESS_TYPE: AUTHORIZATION_TYPE},
    completing={ASSIGNMENT_TYPE: CLUSTER_TYPE},
    dependents={
        AUTHORIZATION_TYPE: (ADDRESS_TYPE, WORKLOAD_TYPE),
        CLUSTER_TYPE: (LISTENER_TYPE, SCOPED_ROUTE_TYPE),
        # Also those of its dependents: what waits to be removed does not hold up what it depends on.
        ASSIGNMENT_TYPE: (CLUSTER_TYPE, LISTENER_TYPE, SCOPED_ROUTE_TYPE),
        SECRET_TYPE: (CLUSTER_TYPE, LISTENER_TYPE),
    },
    seldom=frozenset({WORKLOAD_TYPE}),
    individual=frozenset({AUTHORIZATION_TYPE, ADDRESS_TYPE, WORKLOAD_TYPE}),
    # An Envoy keeps a cluster warming until it has heard of its endpoints, be it that there are none.
    nothing={ASSIGNMENT_TYPE: _no_endpoints},
)
