"""What is held of one kind of objects of a cluster: their facts, the faults of those that cannot be used, and no more
of them than the cluster may have.

In: changes and complete lists. Out: facts in a store under (cluster, kind), or (cluster, kind, namespace) of a kind
that is read in one namespace, and SourceFaults. What arrives together is one revision. Pure, but for metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from watchers.facts import Fact, ObjectKey, SourceFault
from watchers.facts.invalid import InvalidObject, field
from watchers.facts.kinds import Kind
from watchers.kubernetes.quota import Change, Holdings, Quota
from watchers.metrics import WatchMetrics
from watchers.sink import Cause
from watchers.staging import Sink

MOST_FAULTS = 100
"""So many objects of a kind that cannot be used are named; the others are counted."""


class Kept:
    """The objects of a kind, all or those of a ``namespace``. ``labels`` are those of the metrics."""

    def __init__(
        self,
        prefix: tuple[str, ...],
        store: Sink,
        holdings: Holdings,
        *,
        kind: Kind,
        namespace: str,
        metrics: WatchMetrics,
        labels: tuple[str, str],
    ) -> None:
        self._prefix = prefix
        self._store = store
        self._kind = kind
        self._namespace = namespace
        self._metrics = metrics
        self._labels = labels
        self._faults: dict[ObjectKey, SourceFault] = {}
        self._quota = Quota(holdings, lambda: store.scan(prefix), lambda key: store.get(key) is not None)
        self._withheld = 0

    @property
    def quota(self) -> Quota:
        """Which objects are withheld."""
        return self._quota

    def gather(self, facts: Iterable[tuple[ObjectKey, Change]], gathered: int) -> list[tuple[ObjectKey, Change]]:
        """Those of a list's objects that are to be kept until it is complete; ``gathered`` of it are kept already.

        Of what is as it was before, the fact that is held already stands for the new one: so a list anew, or the
        content read by another credential, takes little memory beside what it may replace, and leaves few holes there.
        """
        held = self._store.get
        # Of a deletion nothing is gathered, and nothing held equals it.
        return [
            (key, cast("Change", was) if (was := held(key)) == fact else fact)
            for key, fact in self._quota.gather(facts, gathered)
        ]

    def apply(
        self, changes: Mapping[ObjectKey, Fact | None], invalid: Mapping[ObjectKey, InvalidObject], cause: Cause
    ) -> None:
        """Facts changed; None is a deletion. Of ``invalid`` objects the last good fact stays."""
        if self._namespace or self._kind.namespaces is not None:
            changes = {key: fact for key, fact in changes.items() if self._asked_for(key)}
        admitted = self._quota.admit(changes)
        if not invalid and not self._faults:
            self._store.apply(admitted.items(), cause)
        else:
            faults = {key: fault for key, fault in self._faults.items() if key not in changes}
            self._store.apply([*admitted.items(), *self._changed_faults(faults, invalid)], cause)
        self._count_withheld()

    def replace(
        self, items: dict[ObjectKey, Fact], invalid: Mapping[ObjectKey, InvalidObject], received: int, source: str
    ) -> None:
        """These are all facts there are. Of ``invalid`` objects the last good fact stays, if there is one."""
        for key in invalid:
            last_good = self._store.get(key) if key[0] else None
            if last_good is not None:
                items.setdefault(key, last_good)
        if self._namespace or self._kind.namespaces is not None:
            items = {key: fact for key, fact in items.items() if self._asked_for(key)}
        items = self._quota.admit_all(items)
        self._metrics.lists.add(*self._labels)
        cause = Cause(received, source, len(items))
        self._store.replace(self._prefix, items.items(), cause)
        faults = list(self._changed_faults({}, invalid))
        if faults:
            self._store.apply(faults, cause)
        self._count_withheld()

    def unselected(self) -> list[ObjectKey]:
        """The keys of what is held of namespaces that do not count."""
        counts = self._kind.counts
        return [key for key, _ in self._store.scan(self._prefix) if not counts(key[2])]

    def drop(self, keys: Iterable[ObjectKey], cause: Cause) -> None:
        """These are not to be held any more."""
        self._store.apply(self._quota.admit(dict.fromkeys(keys)).items(), cause)

    def drop_faults(self, cause: Cause) -> None:
        """The faults of namespaces that do not count are none any more."""
        kept = {key: fault for key, fault in self._faults.items() if self._kind.counts(key[2])}
        self._store.apply(list(self._changed_faults(kept, {})), cause)

    def _asked_for(self, key: ObjectKey) -> bool:
        """Whether an object is among those that were asked for. A server that sends others is none to believe."""
        return key[: len(self._prefix)] == self._prefix if self._namespace else self._kind.counts(key[2])

    def _count_withheld(self) -> None:
        withheld = self._quota.withheld
        if withheld != self._withheld:
            self._withheld = withheld
            self._metrics.withheld.set(*self._labels, value=withheld)

    def _changed_faults(
        self, kept: dict[ObjectKey, SourceFault], invalid: Mapping[ObjectKey, InvalidObject]
    ) -> Iterable[tuple[ObjectKey, SourceFault | None]]:
        """The faults become those kept and those of the invalid objects; yields what that changes in the store."""
        before, self._faults = self._faults, kept
        for key, error in invalid.items():
            if key in kept or len(kept) < MOST_FAULTS:
                cause = f"{field(error.path)} {error.cause}".lstrip()
                kept[key] = SourceFault(error.subject, error.line, cause, error.cure)
        self._metrics.invalid.set(*self._labels, value=len(kept))
        for key in before.keys() - kept.keys():
            yield self._fault_key(before[key]), None
        for key, fault in kept.items():
            if before.get(key) != fault:
                yield self._fault_key(fault), fault

    def _fault_key(self, fault: SourceFault) -> ObjectKey:
        return (self._prefix[0], "SourceFault", "", fault.file)
