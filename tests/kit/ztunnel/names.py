"""Which addresses ztunnel's DNS proxy gives a workload for the name of a service.

Only full names are known here: search domains, short names and wildcards of the real proxy are not modelled.
"""

from __future__ import annotations

from tests.kit.ztunnel.records import IPAddress, Workload
from tests.kit.ztunnel.state import State

_HEADLESS_DOMAIN = ".svc.cluster.local"


def resolve(state: State, client: Workload, hostname: str) -> tuple[IPAddress, ...]:
    """Addresses of the service that `client` means by `hostname`; none if it knows no such service.

    Only virtual addresses of the client's network count, so a service that has them elsewhere alone has no address
    here. A service without any, under svc.cluster.local, is answered with the first address of each endpoint, ordered
    by uid.
    """
    service = state.services.best_by_host(hostname, client.namespace)
    if service is None:
        return ()
    if service.vips:
        found = [vip.address for vip in service.vips if vip.network == client.network]
    elif hostname.endswith(_HEADLESS_DOMAIN):
        workloads = (state.workloads.by_uid.get(uid) for uid in sorted(service.endpoints))
        found = [workload.addresses[0] for workload in workloads if workload is not None and workload.addresses]
    else:
        found = []
    return tuple(address for address in found if service.ip_family is None or service.ip_family.accepts(address))
