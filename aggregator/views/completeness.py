"""Whether a view may be told at all, and whether it is all there is.

Nobody is served before home has been read completely. A view is settled once every registered cluster has answered or
passed its limit, and so has every DNS name of a gateway; until then its absences mean nothing, and sessions hold back
what only absence would take away. So do those of hosts while it is not known yet whom a
Secret lets in. Of a credential it is home alone that counts: it is settled once it is known what is
under its name, and not told anything of before.
"""

from __future__ import annotations

from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.answers import Answers
from aggregator.mesh.networks import UNANSWERED, Networks
from aggregator.traffic.ingress_secrets import PENDING, IngressSecrets
from aggregator.views import credentials
from aggregator.views.view import Completeness, View, ViewKey
from xds.messages.scope import SCOPED_ROUTE_TYPE


def declare(
    graph: Graph,
    answers: Answers,
    networks: Networks,
    interest: Source[ViewKey, View],
    unknown: Collection[str, bool],
    secrets: IngressSecrets,
) -> Collection[ViewKey, Completeness]:
    """Declare the completeness of every view somebody asked for; `unknown` are the credentials not known yet."""

    def completeness(at: At, _key: ViewKey, view: View) -> Outcome[Completeness]:
        if not answers.home(at):
            return Withheld("HomeNotSynced")
        if view.role == credentials.ROLE:
            return Withheld("CredentialPending") if at.get(unknown, view.name) else "settled"
        if view.type_url == SCOPED_ROUTE_TYPE and at.group(secrets.pending, PENDING):
            return "partial"
        if at.group(networks.unanswered, UNANSWERED):
            return "partial"
        return "settled" if answers.all(at) else "partial"

    return graph.derive("completeness of views", interest, completeness)
