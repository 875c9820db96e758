"""One control plane in one process: joins watchers, graph and server, and runs them until cancelled.

In: the settings. Out: one line when it serves, and then service. The only module that knows all three packages. Every
task belongs to one TaskGroup, so a task that dies takes the process down with its reason, and a process that is told to
stop drains its streams first.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable

from aggregator import __version__
from aggregator.admin.pages import Pages, admin_app, health_app
from aggregator.admin.server import HttpListener
from aggregator.app.aggregate import Aggregator, Tables
from aggregator.app.clusters import Clusters
from aggregator.app.metrics import ClusterStates, Exposition, RecordCounts
from aggregator.app.readiness import Readiness, readiness
from aggregator.app.records import Records
from aggregator.app.rejections import Rejections
from aggregator.app.settings import Settings
from aggregator.app.subscriptions import TableAdmissions, TableViews
from aggregator.mesh.home import Home
from aggregator.pipeline import Pipeline
from aggregator.views import ztunnel
from xds.server.access import Access

log = logging.getLogger(__name__)


class ControlPlane:
    """The parts of one process. `run` is its life."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.home = Home(
            cluster=settings.local.name,
            system_namespace=settings.system_namespace,
            trust_domain=settings.trust_domain,
            domain_suffix=settings.domain_suffix,
            ztunnel_accounts=tuple((one.namespace, one.name) for one in settings.ztunnel_accounts),
        )
        self.records = Records()
        self.tables = Tables.empty()
        self.clusters = Clusters(settings, self.tables.facts)
        self.pipeline = Pipeline(self.home)
        self.aggregator = Aggregator(self.pipeline, self.tables, self.records)
        self.admissions = TableAdmissions(self.tables, self.aggregator.complete)
        self.rejections = Rejections(self.pipeline, self.tables)
        # Home's ztunnels are always served, so what they are told is always at hand.
        self.tables.interest.apply([(view.key, view) for view in ztunnel.VIEWS])
