"""Facts about a source itself: the state of a cluster, and files of it that cannot be used.

Written by the sources, under (id, "Cluster", "", id) and (id, "SourceFault", "", relative path of the file).
"""

from __future__ import annotations

import msgspec


class Cluster(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="Cluster"):
    """A registered cluster.

    ``state`` is "syncing" until everything was read once, then "synced"; "stale" while the source cannot be read and
    the last content stands. ``home`` marks the cluster whose proxies are served. Nobody waits for the cluster after
    ``deadline`` (seconds of Unix time). ``reason`` explains a state that is not the good one, else "".
    """

    state: str
    home: bool
    deadline: float
    reason: str


class SourceFault(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="SourceFault"):
    """A file whose present content cannot be used, wholly or in part; what it held last stands meanwhile.

    ``file`` is relative to the directory, ``line`` counts from 1, ``cause`` names object and field, ``cure`` says what
    to write instead.
    """

    file: str
    line: int
    cause: str
    cure: str
