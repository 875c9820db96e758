"""Who is told of a resource that a gateway in compatibility mode refused."""

from __future__ import annotations

from aggregator.app.aggregate import Tables
from aggregator.app.records import Records
from aggregator.app.rejections import Rejections
from aggregator.views.ingress_compatible import ROUTES
from aggregator.views.view import View
from tests.kit import certificates as c
from tests.kit import manifests as m
from tests.kit.world import World
from xds.messages.route_table import ROUTE_TYPE
from xds.messages.secret import SECRET_TYPE
from xds.records import ResourceRejected
from xds.server.authentication import Identity
from xds.server.proxies import Proxy
from xds.session.requests import FOR_ON_DEMAND

SECRETS = View("ingress-compatible", SECRET_TYPE)
POD = ("quay", "Pod", "edge", "door-1")
PROXY = Proxy(
    id="router~10.0.0.1~door-1.edge~edge.svc.cluster.local",
    peer="10.0.0.1:1",
    identity=Identity("cluster.local", "edge", "door"),
    role="ingress",
    namespace="edge",
    network="net-quay",
    cluster="quay",
    node="",
    metadata=(("NAME", "door-1"),),
    extensions=FOR_ON_DEMAND,
    incremental=False,
)


def objects_behind(type_url: str, view: str, name: str) -> tuple[object, ...]:
    """The objects that a refusal of a resource is put down to, beside two hosts with TLS."""
    world, tables = World("quay"), Tables.empty()
    world.now = c.NOW.timestamp()
    world.ask(ROUTES, SECRETS)
    for host in ("a.example", "b.example"):
        own = host.partition(".")[0]
        world.apply("quay", m.ingress(f"shop/{own}", host, "web", secret=own))
        world.apply("quay", m.tls_secret(f"shop/{own}", *c.host_pair(host)))
    world.step()
    version = world.resources[view, name].version
    Rejections(world.pipeline, tables, Records()).append(ResourceRejected(PROXY, type_url, name, version, "no"))
    row = tables.rejections.get((view, name))
    assert row is not None
    return row.objects


def test_a_table_of_all_hosts_is_put_down_to_the_pod_that_refused_it_and_to_no_host() -> None:
    assert objects_behind(ROUTE_TYPE, ROUTES.name, "default") == (POD,)


def test_a_certificate_is_put_down_to_the_ingresses_that_show_it() -> None:
    assert objects_behind(SECRET_TYPE, SECRETS.name, "tls|shop|a") == (("quay", "Ingress", "shop", "a"),)
