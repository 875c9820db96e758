"""Facts about a source itself: the state of a cluster, and files of it that cannot be used.

Written by the sources, under (id, "Cluster", "", id) and (id, "SourceFault", "", relative path of the file).
"""

from __future__ import annotations

import msgspec


class Cluster(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Cluster"):
    """A registered cluster.

    ``state`` is "syncing" until everything was read once, then "synced"; "stale" while the source cannot be read and
    the last content stands. ``home`` marks the cluster whose proxies are served. Nobody waits for the cluster after
    ``deadline``. ``reason`` explains a state that is not the good one, else "". ``since`` is when the state began, and
    ``unconfirmed`` since when what was read is not known to be what the source holds: the moment of the first question
    that found no answer, or of what broke; 0 while it is known, and while nothing was read. All moments are seconds of
    Unix time. ``trust_domain`` is that of its identities where its registration says so, "" where it is home's.
    """

    state: str
    home: bool
    deadline: float
    reason: str
    since: float = 0.0
    unconfirmed: float = 0.0
    trust_domain: str = ""


class Answered(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Answered"):
    """Which kinds others wait for a cluster has answered for, while it is still being read: ``kinds`` of facts, sorted.

    Written, under (id, "Answered", "", id), by sources that read their kinds one by one. An answer may be that the kind
    is not served, or may not be read. ``read`` are, of the kinds that are also made in a cluster, those that are
    served there and have been read: only then is it known what is there already.
    """

    kinds: tuple[str, ...]
    read: tuple[str, ...] = ()


class SourceFault(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="SourceFault"):
    """A file whose present content cannot be used, wholly or in part; what it held last stands meanwhile.

    ``file`` is relative to the directory, ``line`` counts from 1, ``cause`` names object and field, ``cure`` says what
    to write instead.
    """

    file: str
    line: int
    cause: str
    cure: str
