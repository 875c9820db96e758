"""Decides whether this process is ready, and says what it waits for.

In: the clusters as they are known, whether a first complete pass was published and views are settled, which listeners
are open. Out: Readiness, for /ready and for the gRPC health service. Pure: no clock, no I/O; asking twice gives the
same answer.

Home is waited for without limit, a remote cluster only until its limit has passed: one that is dead must not keep a
restarted control plane away from its proxies, one that is merely slow should be in the first answer. What is still
missing then is reported as `unsettled` and otherwise left alone. Streams that come before are served all the same, as
soon as home has been read; their views are unsettled and withdraw nothing (see the graph).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

_UNREAD = ("connecting", "syncing")


class ClusterState(Protocol):
    """What is asked of a cluster; watchers' fact of kind Cluster has it."""

    @property
    def state(self) -> str:
        """connecting, syncing, synced, or how it failed."""

    @property
    def home(self) -> bool:
        """Whether its proxies are served by this control plane."""

    @property
    def reason(self) -> str:
        """Why it is in this state, for people; may be empty."""


class Readiness(msgspec.Struct, frozen=True, gc=False):
    """`waiting` holds it back, one line each; `unsettled` are clusters not read yet or for too long, which do not."""

    ready: bool
    waiting: tuple[str, ...]
    unsettled: tuple[str, ...]


def readiness(
    clusters: Iterable[tuple[str, ClusterState]],
    *,
    passed: bool,
    settled: bool,
    listeners: Mapping[str, bool],
    stopping: bool = False,
    past_limit: Container[str] = (),
    unanswered: Iterable[str] = (),
) -> Readiness:
    """Ready is: home was read, every remote was read or has passed its limit, that is published, listeners are open.

    `clusters` pairs names with states; `passed` says whether a pass with all of home was published, `settled` whether
    one since every remote has answered or passed its limit, and every DNS name of a gateway, other than those that are
    `unanswered`; `listeners` whether each one, by a name a person knows, is open. Clusters `past_limit` were read, but
    have not been readable for too long. A process that is stopping is not ready, so that no new proxy is sent to it.
    """
    known = sorted(clusters, key=lambda pair: pair[0])
    waiting = ["the process is stopping"] if stopping else []
    home = [(name, cluster) for name, cluster in known if cluster.home]
    if not home:
        waiting.append("the home cluster is not known yet")
    waiting += [_line(name, cluster) for name, cluster in home if cluster.state in _UNREAD]
    if not passed:
        waiting.append("the first complete pass is not published yet")
    unread = [_line(name, cluster) for name, cluster in known if not cluster.home and cluster.state in _UNREAD]
    if passed and not settled:
        names = [f"DNS name {name} of a gateway is being looked up" for name in unanswered]
        waiting += [*unread, *names] or ["the first settled pass is not published yet"]
    waiting += [f"listener {name} is not open yet" for name, opened in sorted(listeners.items()) if not opened]
    overdue = [
        f"{_line(name, cluster)} (for longer than --stale-after)" for name, cluster in known if name in past_limit
    ]
    return Readiness(not waiting, tuple(waiting), (*unread, *overdue))


def _line(name: str, cluster: ClusterState) -> str:
    line = f"cluster {name} is {cluster.state}"
    return f"{line}: {cluster.reason}" if cluster.reason else line
