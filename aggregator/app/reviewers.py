"""Who says whose token it is: a file, the home cluster's API server, the keys of a remote's, or nobody.

In: the settings, and the clusters. Out: what `xds.server.authentication` declares it needs.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from aggregator.app.settings import Settings
from xds.server.authentication import Identity, TokenFile, TokenFileError, TokenReviewer

if TYPE_CHECKING:
    from watchers.kubernetes.newest import NewestSession
    from watchers.kubernetes.remote_tokens import RemoteTokens
    from watchers.kubernetes.token_reviews import Account, TokenReviews

log = logging.getLogger(__name__)


class Clusters(Protocol):
    """What can tell whose the tokens of clusters are."""

    @property
    def home_session(self) -> NewestSession | None:
        """Requests to home; None if home is a directory."""

    @property
    def remote_tokens(self) -> RemoteTokens | None:
        """Tokens of remotes; None if there are only directories."""


TrustDomain: TypeAlias = Callable[[], Awaitable[str]]
"""The trust domain of home's identities, as soon as home has been read."""


def reviewer(
    settings: Settings, clusters: Clusters, now: Callable[[], float], trust_domain: TrustDomain
) -> TokenReviewer:
    """Whoever reviews tokens here. Raises TokenFileError."""
    if settings.identities is not None:
        try:
            return TokenFile(settings.identities)
        except TokenFileError as error:
            raise TokenFileError(f"{settings.origin('identities')}: {error}") from None
    reviews = None
    if clusters.home_session is not None:
        # Imported only now, as the clients of API servers are.
        from watchers.kubernetes.token_reviews import TokenReviews

        reviews = TokenReviews(clusters.home_session, wall=now, audiences=settings.token_audience)
    else:
        extra = {"cause": "--identities is off", "effect": "no proxy of home can connect by TLS"}
        log.warning("no token of home is accepted", extra=extra)
    return ClusterReviewer(settings.home, trust_domain, reviews, clusters.remote_tokens)


class ClusterReviewer:
    """Tokens of the cluster a caller names: those of home by its API server, those of remotes by the keys of theirs.

    Whoever cannot be asked, as clusters that are directories, accepts no token.
    """

    def __init__(
        self, home: str, trust_domain: TrustDomain, reviews: TokenReviews | None, remote_tokens: RemoteTokens | None
    ) -> None:
        self._home = home
        self._trust_domain = trust_domain
        self._reviews = reviews
        self._remote_tokens = remote_tokens

    async def review(self, token: str, cluster: str) -> Identity | None:
        """The identity behind a token of that cluster. Raises `watchers.kubernetes.reviews.Undecided`."""
        if cluster in ("", self._home):
            account = await self._reviews.review(token) if self._reviews is not None else None
            return None if account is None else _identity(account, await self._trust_domain(), "")
        found = await self._remote_tokens.review(token, cluster) if self._remote_tokens is not None else None
        if found is None:
            return None
        return _identity(found.account, found.trust_domain or await self._trust_domain(), cluster)


def _identity(account: Account, trust_domain: str, cluster: str) -> Identity:
    return Identity(trust_domain, account.namespace, account.name, account.pod, account.node, account.pod_uid, cluster)
