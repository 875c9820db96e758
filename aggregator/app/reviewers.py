"""Who says whose token it is: a file, the home cluster's API server, or nobody.

In: the settings, and what sends requests to home. Out: what `xds.server.authentication` declares it needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aggregator.app.settings import Settings
from xds.server.authentication import Identity, TokenFile, TokenFileError, TokenReviewer

if TYPE_CHECKING:
    from watchers.kubernetes.newest import NewestSession
    from watchers.kubernetes.token_reviews import TokenReviews

log = logging.getLogger(__name__)


def reviewer(settings: Settings, home: NewestSession | None, now: Callable[[], float]) -> TokenReviewer:
    """Whoever reviews tokens here; ``home`` is None where home is no API server. Raises TokenFileError."""
    if settings.identities is not None:
        try:
            return TokenFile(settings.identities)
        except TokenFileError as error:
            raise TokenFileError(f"{settings.origin('identities')}: {error}") from None
    if home is not None:
        # Imported only now, as the clients of API servers are.
        from watchers.kubernetes.token_reviews import TokenReviews

        reviews = TokenReviews(home, wall=now, audiences=settings.token_audience)
        return HomeReviewer(reviews, settings.home, settings.trust_domain)
    log.warning("no token is accepted", extra={"cause": "--identities is off", "effect": "nobody can connect by TLS"})
    return NoTokens()


class HomeReviewer:
    """Tokens of the home cluster, by its API server. Proxies of other clusters have control planes of their own."""

    def __init__(self, reviews: TokenReviews, home: str, trust_domain: str) -> None:
        self._reviews = reviews
        self._home = home
        self._trust_domain = trust_domain

    async def review(self, token: str, cluster: str) -> Identity | None:
        """The identity behind a token of the home cluster. Raises `watchers.kubernetes.token_reviews.Undecided`."""
        if cluster not in ("", self._home):
            return None
        account = await self._reviews.review(token)
        if account is None:
            return None
        return Identity(
            self._trust_domain, account.namespace, account.name, account.pod, account.node, account.pod_uid
        )


class NoTokens:
    """The reviewer where nobody can tell whom a token belongs to: it belongs to nobody."""

    async def review(self, token: str, cluster: str) -> Identity | None:
        """Nobody."""
        return None
