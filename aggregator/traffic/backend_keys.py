"""Keys of backends, which are the names of their clusters: all that tells one backend from another.

In: what an Ingress says of a Service, in its rules or in annotations. A backend is known by its key alone
(aggregator.traffic.backends): what is said in it is read from it again.
"""

from __future__ import annotations

from typing import Final

from aggregator.traffic.annotations.connections import DEFAULT as DEFAULT_CONNECTIONS
from aggregator.traffic.annotations.connections import Connections
from aggregator.traffic.annotations.services import at_home
from aggregator.traffic.annotations.settings import NO_SETTINGS, Settings

MIRRORED: Final = "mirror"
"""What the keys of backends begin with that get copies of requests."""


def backend_key(
    namespace: str, service: str, port: int | str, connections: Connections = DEFAULT_CONNECTIONS
) -> str:
    """`ing|<namespace>|<service>|<port number or name>`, which is also the name of the backend's cluster.

    Where it is not spoken to as all are, how stands behind another `|`.
    """
    text = connections.text()
    return f"ing|{namespace}|{service}|{port}|{text}" if text else f"ing|{namespace}|{service}|{port}"


def mirror_key(namespace: str, settings: Settings) -> str:
    """The key of the backend that an Ingress has copies of requests sent to; "" if it does not.

    It is another than that of the same Service as a backend: `mirror|<namespace>|<service>|<port>`, and the same `|`
    and text behind it. Gateways ask for what they send requests to, not for what they send copies to, so they have to
    be told of these without asking.
    """
    mirror = at_home(settings.services, namespace).mirror
    if mirror is None:
        return ""
    key = backend_key(namespace, mirror.name, mirror.port, settings.connections)
    return MIRRORED + key[key.index("|") :]


def destination_keys(namespace: str, settings: Settings) -> tuple[tuple[str, int], ...]:
    """Keys and shares of the backends that an annotation names in place of an Ingress's own; none if it does not."""
    return tuple(
        (backend_key(namespace, one.name, one.port, settings.connections), share)
        for one, share in at_home(settings.services, namespace).destination
    )


def further_backends(namespace: str, settings: Settings) -> tuple[str, ...]:
    """Keys of the backends that an Ingress names in annotations."""
    if settings.services is NO_SETTINGS.services:
        return ()
    mirror = mirror_key(namespace, settings)
    keys = tuple(key for key, _ in destination_keys(namespace, settings))
    return (*keys, mirror) if mirror else keys
