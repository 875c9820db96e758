"""How far reading a cluster comes: names, connection, TLS, credential, permissions, lists, watches, and where it stops.

In: a Cluster. Out: its stages in order. Only what follows from the states and reasons that the watchers give is said:
a refused connection has found its host, a 401 has come over a connection that works, and so on. What does not follow
is unknown. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Literal

import msgspec

from aggregator.operate.cluster_list import Cluster, Kind

StageState = Literal["ok", "FAIL", "unknown"]

_ANSWERED = ("synced", "absent")
_CONNECTING = ("dns", "tcp", "tls")

# What a reason says about where it stopped: words of the resolver, of sockets, of OpenSSL and of the watchers' session.
_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"name or service not known|name resolution|no address associated|resolves to an address", ("dns",)),
    (r"connection refused|connect call failed|no route to host|network is unreachable", ("tcp",)),
    (r"no connection within the time", ("tcp", "tls")),
    (r"its certificate was refused|certificate verify failed|\bssl\b|tls handshake", ("tls",)),
    (r"\b401\b", ("auth",)),
    (r"\b403\b", ("rbac",)),
)
_HTTP_STATUS = re.compile(r"\b[1-5]\d\d [A-Z]|\banswers [1-5]\d\d\b")


class Stage(msgspec.Struct, frozen=True):
    """A stage of reading; a failure that may be one of two has both names."""

    name: str
    state: StageState
    detail: str = ""


def stages(cluster: Cluster) -> list[Stage]:
    """The stages up to where reading stops; none for what is no API server or has been removed."""
    if not cluster.server or cluster.state == "Removed":
        return []
    reasons = _of_the_server(cluster)
    proven = reasons is None and any(kind.state in _ANSWERED for kind in cluster.kinds)
    if reasons is None:
        reasons = [kind.reason for kind in cluster.kinds if kind.reason and kind.state not in _ANSWERED]
    reason, stopped = ("", ()) if proven else next(filter(_has_sign, map(_stopped, reasons)), ("", ()))
    if stopped and stopped != ("rbac",):
        return [*_before(stopped[0], cluster), Stage("/".join(stopped), "FAIL", reason)]
    authorised = proven or bool(stopped)
    if authorised or any(map(_HTTP_STATUS.search, reasons)):
        found = _before("auth", cluster)
    else:
        found = [Stage(name, "unknown") for name in _CONNECTING]
        if reasons and reasons[0]:
            return [*found, Stage("answer", "FAIL", reasons[0])]
    return [*found, Stage("auth", "ok" if authorised else "unknown"), *_of_kinds(cluster.kinds)]


def _of_the_server(cluster: Cluster) -> list[str] | None:
    """What is wrong with the API server as a whole, which counts for more than what its kinds said last; None if what
    is wrong is told of kinds, or nothing is.
    """
    well = cluster.state in ("Synced", "Syncing", "UpdatePending")
    if well or any(cluster.reason.startswith(f"{kind.kind}: ") for kind in cluster.kinds):
        return None
    return [cluster.reason]


def _stopped(reason: str) -> tuple[str, tuple[str, ...]]:
    """A reason, and the stages one of which it tells of; none if it tells of no certain one."""
    return reason, next((names for sign, names in _SIGNS if re.search(sign, reason, re.IGNORECASE)), ())


def _has_sign(stopped: tuple[str, tuple[str, ...]]) -> bool:
    return bool(stopped[1])


def _before(stage: str, cluster: Cluster) -> list[Stage]:
    """What must have gone well where the API server came as far as this."""
    passed = _CONNECTING[: _CONNECTING.index(stage)] if stage in _CONNECTING else _CONNECTING
    if _is_ip(cluster.server):
        passed = passed[1:]
    # Unless its certificate was seen, it may be one without TLS.
    unknown = {"tls"} if not cluster.server_certificate_expires else set()
    return [Stage(name, "unknown" if name in unknown else "ok") for name in passed]


def _is_ip(server: str) -> bool:
    try:
        ip_address(server.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return True


def _of_kinds(kinds: tuple[Kind, ...]) -> Iterable[Stage]:
    """Permissions, lists and watches, each counted over the kinds that came so far."""
    denied = [kind for kind in kinds if kind.state == "denied"]
    allowed = [kind for kind in kinds if kind.state != "denied"]
    listed = [kind for kind in allowed if kind.state in _ANSWERED or kind.confirmed is not None]
    watched = [kind for kind in listed if kind.state in _ANSWERED]
    known = listed or denied
    yield _counted("rbac", kinds, denied) if known else Stage("rbac", "unknown")
    yield _counted("list", allowed, [kind for kind in allowed if kind not in listed])
    yield _counted("watch", listed, [kind for kind in listed if kind not in watched])


def _counted(name: str, all_kinds: Iterable[Kind], missing: list[Kind]) -> Stage:
    total = len(list(all_kinds))
    if not missing:
        return Stage(name, "ok" if total else "unknown", f"{total}/{total}" if total else "")
    failed = [kind for kind in missing if kind.reason]
    named = "; ".join(f"{kind.kind}: {kind.reason}" for kind in failed[:3])
    count = f"{total - len(missing)}/{total}"
    return Stage(name, "FAIL" if failed else "unknown", f"{count} {named}".rstrip())
