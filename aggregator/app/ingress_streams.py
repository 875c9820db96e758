"""The connected ingress gateways, as `isthmus domains` asks for them: what each holds is read from its session.

In: the open streams, the resources Table. Out: one Gateway for each stream that is told routes (see operate.domains).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aggregator.app.subscriptions import mode_for, view_for
from aggregator.cache.table import Table
from aggregator.views.ingress_compatible import TABLE
from aggregator.views.ingress_gateway import SCOPE_VIEWS
from aggregator.views.ingress_modes import Mode
from aggregator.views.view import View
from xds.encoded import Resource
from xds.messages.route_table import ROUTE_TYPE
from xds.messages.scope import SCOPED_ROUTE_TYPE
from xds.server.dialogue import Dialogue
from xds.server.streams import Streams


class StreamGateway:
    """A gateway by its stream. Good for as long as that is open."""

    def __init__(self, dialogue: Dialogue, view: View, resources: Table[tuple[str, str], Resource]) -> None:
        self._dialogue = dialogue
        self._view = view
        self._resources = resources

    @property
    def id(self) -> str:
        """The id of its node."""
        return self._dialogue.proxy.id

    def held(self, scopes: Collection[str]) -> frozenset[str]:
        """The scopes that it has accepted as they are now."""
        if mode_for(self._dialogue.proxy) is Mode.COMPATIBLE:
            return frozenset(scopes) if self._holds_table() else frozenset()
        found = ((scope, self._resources.get((self._view.name, scope))) for scope in scopes)
        present = {scope: resource for scope, resource in found if resource is not None}
        return frozenset(self._dialogue.held(SCOPED_ROUTE_TYPE, present))

    def _holds_table(self) -> bool:
        """Whether a gateway that is told all hosts at once has them as they are now."""
        routes = view_for(self._dialogue.proxy, ROUTE_TYPE)
        table = self._resources.get((routes.name, TABLE)) if routes is not None else None
        return table is not None and TABLE in self._dialogue.held(ROUTE_TYPE, {TABLE: table})

    def refused(self, scopes: Collection[str]) -> Mapping[str, str]:
        """The scopes that it refuses as they are now, and why."""
        refused = self._dialogue.refused(SCOPED_ROUTE_TYPE)
        return {scope: rejection.message for scope, rejection in refused.items() if scope in scopes}


def ingress_gateways(streams: Streams, resources: Table[tuple[str, str], Resource]) -> list[StreamGateway]:
    """All that are connected now, and are told routes of hosts."""
    dialogues = [stream.dialogue for stream in streams if stream.dialogue is not None]
    return [
        StreamGateway(dialogue, view, resources)
        for dialogue in dialogues
        if (view := view_for(dialogue.proxy, SCOPED_ROUTE_TYPE)) in SCOPE_VIEWS and view is not None
    ]
