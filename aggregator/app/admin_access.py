"""Who may read the closed pages of the admin port: those whose tokens proxies could connect with, of some namespaces.

In: the settings, and whoever reviews tokens. Out: what `aggregator.admin.access` declares it needs. The reviewer is the
one that judges proxies, with all it remembers; the turns are the admin port's own and few, so that whoever floods it
with tokens keeps no proxy waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.admin.access import Access, NotAccepted
from aggregator.app.settings import Settings
from xds.server.authentication import Authenticator, TokenReviewer
from xds.server.refusals import Refusal

AT_A_TIME = 4
"""Tokens of the admin port that are reviewed at once, of the 64 of proxies."""
_LATER = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")


def admin_access(settings: Settings, reviewer: TokenReviewer) -> Access:
    """Accounts of the system namespace, and of those that the settings name."""
    authenticator = Authenticator(reviewer, concurrency=AT_A_TIME)

    async def namespace_of(peer: str, authorizations: Sequence[str]) -> str:
        try:
            caller, _ = await authenticator.authenticate(peer, [("authorization", one) for one in authorizations])
        except Refusal as refusal:
            raise NotAccepted(refusal.message, undecided=refusal.code.name in _LATER) from None
        if caller.identity is None or caller.identity.cluster:
            raise NotAccepted("the token is nobody's")
        return caller.identity.namespace

    namespaces = frozenset((settings.system_namespace, *settings.admin_namespaces))
    return Access(namespaces, namespace_of, settings.token_audience[0] if settings.token_audience else "AUDIENCE")
