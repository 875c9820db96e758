"""What a client has rejected, and how the culprit of a rejection is found.

An xDS client rejects a response as a whole and says why in a text. Where the text names resources (a ztunnel writes
"name: reason; name: reason"), those are the culprits; where it does not, the resources are sent again in ever smaller
groups until each culprit stands alone, so that one bad resource never keeps its neighbours from a proxy. A rejected
version is remembered and not sent again on that stream. Pure bookkeeping on resources; sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from xds.encoded import Resource

MAX_MESSAGE: Final = 1024
"""Characters of a client's reason that are kept."""
MAX_VERSIONS: Final = 8
"""Rejected versions remembered for one name, the newest."""
MAX_NAMES: Final = 10_000
"""Names whose rejected versions are remembered, the newest; only a client that rejects nearly everything has more."""
_MOST_PARTS: Final = 4 * MAX_NAMES
"""Parts of a text that are looked at: reasons may have semicolons in them."""


class Rejection(Struct, frozen=True):
    """The version of a resource that a client refused, with its reason and the nonce of the response it was in."""

    version: str
    message: str
    nonce: str


class Quarantine:
    """The rejected versions of one type on one stream.

    `current` are the rejections that hold at present, by name: the content is a version the client refused, and it
    stays at its last good one. A mapping by name is kept for exceptions only, never for what a client accepted.
    """

    __slots__ = ("_versions", "current")

    def __init__(self) -> None:
        self.current: dict[str, Rejection] = {}
        self._versions: dict[str, dict[bytes, Rejection]] = {}

    @property
    def occupied(self) -> bool:
        """Whether any version was ever refused."""
        return bool(self._versions)

    def reject(self, resource: Resource, message: str, nonce: str) -> None:
        """The client refused this version of the resource."""
        rejection = Rejection(resource.version, message[:MAX_MESSAGE], nonce)
        versions = self._versions.pop(resource.name, {})
        versions[resource.digest] = rejection
        if len(versions) > MAX_VERSIONS:
            del versions[next(iter(versions))]
        self._versions[resource.name] = versions
        if len(self._versions) > MAX_NAMES:
            oldest = next(iter(self._versions))
            del self._versions[oldest]
            self.current.pop(oldest, None)
        self.current[resource.name] = rejection

    def hold(self, resource: Resource) -> bool:
        """Whether the client has refused this version, which is the present one and therefore held back."""
        if not self._versions or (versions := self._versions.get(resource.name)) is None:
            return False
        rejection = versions.get(resource.digest)
        if rejection is None:
            return False
        self.current[resource.name] = rejection
        return True

    def accept(self, resources: Iterable[Resource]) -> None:
        """The client took these versions: what it held against earlier ones is past."""
        if self.current:
            for resource in resources:
                self.current.pop(resource.name, None)

    def lift(self, name: str) -> None:
        """The resource is gone or no longer wanted: there is nothing to hold against it. Versions stay remembered."""
        self.current.pop(name, None)


class Bisection:
    """Resources under suspicion, in groups that are sent one at a time.

    A group that is accepted clears its resources, one that is rejected is split in two; groups wait in line, so that
    halves without a culprit get through early. `suspects` are all that are not cleared, the group under way included.
    A suspect whose content changes is dropped: the new version is not the one under suspicion.
    """

    __slots__ = ("_groups", "suspects")

    def __init__(self) -> None:
        self.suspects: dict[str, Resource] = {}
        self._groups: list[tuple[Resource, ...]] = []

    @property
    def waiting(self) -> bool:
        """Whether there is a group to send."""
        return bool(self._groups)

    def split(self, resources: tuple[Resource, ...]) -> None:
        """Suspect these, and put their halves in line."""
        middle = len(resources) // 2
        self._groups.extend(half for half in (resources[:middle], resources[middle:]) if half)
        self.suspects.update((resource.name, resource) for resource in resources)

    def next_group(self) -> tuple[Resource, ...]:
        """The next group, without what was cleared or dropped meanwhile; empty if that was all of them."""
        while self._groups:
            group = tuple(resource for resource in self._groups.pop(0) if self.suspected(resource))
            if group:
                return group
        return ()

    def suspected(self, resource: Resource) -> bool:
        """Whether this very version is under suspicion."""
        return self.suspects.get(resource.name) == resource

    def clear(self, resources: Iterable[Resource]) -> None:
        """The client took these, or they are known as culprits."""
        if self.suspects:
            for resource in resources:
                if self.suspected(resource):
                    self.drop(resource.name)

    def drop(self, name: str) -> None:
        """The content of this name changed, or it is no longer wanted."""
        self.suspects.pop(name, None)
        if not self.suspects:
            self._groups.clear()


def culprits(message: str, resources: Mapping[str, Resource]) -> dict[str, str]:
    """The resources a client's text names as the cause, with the reason given for each.

    First the form of ztunnels, where each part begins with a name; only if that finds none, a name anywhere before a
    colon, as in Envoy's "Error adding/updating cluster(s) a: reason, b: reason". The cost is that of reading the text
    once, whatever was in the response.
    """
    found: dict[str, str] = {}
    last = ""
    for part in message.split("; ", _MOST_PARTS):
        name, separator, reason = part.partition(": ")
        if separator and name in resources:
            found[name], last = reason, name
        elif last and len(found[last]) < MAX_MESSAGE:  # a reason that has a semicolon in it
            found[last] += "; " + part
    if found:
        return found
    for word in message.split(None, _MOST_PARTS):
        if word.endswith(":"):
            name = word[:-1].strip("'\"`")
            if name in resources:
                found[name] = message
    return found
