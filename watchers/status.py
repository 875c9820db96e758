"""How a watched cluster is doing, as a person or a page would ask: one frozen record, made when it is asked for.

In: what `cluster` knows of its generations and their connections. Out: ClusterStatus, for pages, metrics and the CLI.
Nothing here is a fact: it holds moments that change all the time, and no proxy is told any of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

State = Literal["Connecting", "Syncing", "Synced", "Stale", "Denied", "UpdatePending", "Removed"]
"""The state of a cluster, for people.

Connecting: not reached yet. Syncing: being read for the first time. Synced: held as its API server has it. Stale: held
as it was, while it cannot be read. Denied: its API server refuses the credential. UpdatePending: held and read by the
old credential, while the new one does not work. Removed: registered no more; shown for a while after it went.
"""


STATES: Mapping[str, State] = {
    "connecting": "Connecting",
    "syncing": "Syncing",
    "synced": "Synced",
    "stale": "Stale",
    "denied": "Denied",
}
"""What people are told for the states of the Cluster fact."""


class Access(msgspec.Struct, frozen=True):
    """Where a connection leads to, host and port, and when what it is made of ends: the token, the client's certificate
    and the one the API server showed, in seconds of Unix time, 0 where there is none or it does not say.
    """

    server: str = ""
    token_expires: float = 0.0
    certificate_expires: float = 0.0
    server_certificate_expires: float = 0.0


class KindStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One kind of objects of a cluster.

    ``state`` is that of `watchers.cluster.KindState`; ``heard`` is when its watch last said something and ``confirmed``
    when it was last known to be what the API server holds (seconds of Unix time, 0 for never).
    """

    kind: str
    state: str
    reason: str = ""
    objects: int = 0
    heard: float = 0.0
    confirmed: float = 0.0


class ClusterStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One registered cluster. Moments are seconds of Unix time, 0 for never or unknown.

    ``lag`` is for how many seconds what is held of it has not been known to be current, -1 before it was read once.
    ``since`` is when the state began. ``server`` is host and port; ``registered_by`` the Secret, file or setting.
    ``token_expires`` and ``certificate_expires`` are those of the credential in use, ``server_certificate_expires`` of
    what the API server showed. ``withdrawn`` is when its endpoints go, if it cannot be read until then.
    """

    cluster: str
    home: bool
    state: State
    reason: str = ""
    since: float = 0.0
    lag: float = -1.0
    server: str = ""
    registered_by: str = ""
    uid: str = ""
    token_expires: float = 0.0
    certificate_expires: float = 0.0
    server_certificate_expires: float = 0.0
    withdrawn: float = 0.0
    kinds: tuple[KindStatus, ...] = ()
