"""The one total order in which claims are settled.

Whatever several objects may claim (a service's ports, a gateway's address, a host) goes to the first in this order, so
that the winner is the same on every replica and in every order of arrival; the others get a finding.
"""

from __future__ import annotations

from typing import TypeAlias

Rank: TypeAlias = tuple[bool, bool, str, str, str, str]


def rank(home: str, cluster: str, created: str, namespace: str, name: str) -> Rank:
    """Sort key of one claim: home's before others', then by creation, cluster, namespace and name.

    `created` is metadata.creationTimestamp (RFC 3339 in UTC, so text order is time order). An object that does not
    say when it was made, as manifests in a directory seldom do, counts as the youngest.
    """
    return (cluster != home, not created, created, cluster, namespace, name)
