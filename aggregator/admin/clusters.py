"""The pages /clusters and /clusters/NAME.

In: what may be asked of the clusters. Out: a ClusterList or a Cluster; for a name there is not, 404 and the names there
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aggregator.admin.pages import NoSuchPage, Pages
from aggregator.operate.cluster_list import Cluster, ClusterList

if TYPE_CHECKING:
    from aggregator.operate.clusters import ClusterQuestions


def add_cluster_pages(pages: Pages, questions: ClusterQuestions) -> None:
    """Adds both pages."""

    async def clusters(_: Mapping[str, str]) -> ClusterList:
        return await questions.all()

    async def cluster(asked: Mapping[str, str]) -> Cluster:
        found = await questions.one(asked["name"])
        if not isinstance(found, Cluster):
            raise NoSuchPage({"error": f"no cluster {asked['name']!r}", "clusters": found})
        return found

    pages.add("/clusters", "every cluster: state, lag, content, expiry of credentials", clusters)
    pages.add("/clusters/{name}", "one cluster", cluster)
