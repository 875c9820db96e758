"""What stands before the paths of an Ingress: all that is asked of requests, and done to their answers, put together.

Those of an Ingress that asks for nothing are one object, NO_POLICIES, by which whoever reads them knows at once.
"""

from __future__ import annotations

from typing import Final

import msgspec

from aggregator.traffic.annotations import affinity, authentication, error_pages, limits, source_ranges
from aggregator.traffic.annotations.affinity import SessionCookie
from aggregator.traffic.annotations.authentication import ANYBODY, Authentication
from aggregator.traffic.annotations.error_pages import ErrorPages
from aggregator.traffic.annotations.given import Given
from aggregator.traffic.annotations.hashing import Part
from aggregator.traffic.annotations.limits import UNLIMITED, Limits
from aggregator.traffic.annotations.source_ranges import EVERYWHERE, SourceRanges


class Policies(msgspec.Struct, frozen=True, gc=False):
    """By subject. `closed`: a protection is asked for that cannot be given, so that nothing may be served."""

    sources: SourceRanges = EVERYWHERE
    limits: Limits = UNLIMITED
    authentication: Authentication = ANYBODY
    affinity: SessionCookie | None = None
    hashed: tuple[Part, ...] = ()
    errors: ErrorPages | None = None
    closed: bool = False

    @property
    def protection(self) -> tuple[SourceRanges, Authentication]:
        """Who may come."""
        return self.sources, self.authentication

    @property
    def protected(self) -> bool:
        """Whether not everybody may come."""
        return self.closed or self.protection != (EVERYWHERE, ANYBODY)


NO_POLICIES: Final = Policies()


def policies(given: Given, hashed: tuple[Part, ...]) -> Policies:
    """What an Ingress asks for whose requests are `hashed` so; to be called when all else that protects is read."""
    found = Policies(
        source_ranges.source_ranges(given),
        limits.limits(given),
        authentication.authentication(given),
        affinity.session_cookie(given),
        hashed,
        error_pages.error_pages(given),
        given.unprotected,
    )
    return NO_POLICIES if found == NO_POLICIES else found
