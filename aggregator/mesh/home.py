"""Home: the point of view from which services, networks and policies are seen, and the mesh's own settings.

The process's settings come first; the home cluster's ConfigMap `istio` in the system namespace, key `mesh`, overrides
them. Remote clusters' mesh configuration is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from aggregator.graph import At, Collection, Graph, Source
from watchers.facts.cluster import Cluster
from watchers.facts.core import Namespace
from watchers.facts.keys import Labels, ObjectKey, label
from watchers.facts.mesh_config import EntryVisibility, LabelSelector, MeshConfig, ServiceScope

GLOBAL_LABEL = "istio.io/global"
HOME_TRUST_DOMAIN = ("home",)


@lru_cache(65_536)
def _key(kind: str, cluster: str, name: str) -> ObjectKey:
    """A key that is read by hundreds of items, one object for all of them: whoever reads it keeps it."""
    return (cluster, kind, "", name)


def cluster_key(cluster: str) -> ObjectKey:
    """Key of a Cluster fact, and of what is derived from it alone."""
    return _key("Cluster", cluster, cluster)


class Home(msgspec.Struct, frozen=True):
    """What this process was told: its home cluster and the defaults of the mesh.

    `ztunnel_accounts` are (namespace, service account) pairs whose proxies act for every workload on their node. With
    `istio_classes`, classes whose controller is Istio's are served as well, in Istio's place. Istio's own kinds count
    if their label istio.io/rev names this `revision`, or if they have none. Ingresses show the addresses of
    `ingress_service` (namespace, name), whose load balancer leads to their gateway, and `ingress_addresses`. With
    `regexes_for_whole_hosts`, an Ingress that wants paths to be regular expressions has them so for its whole hosts;
    with `ingress_snippets`, what is understood of their configuration-snippets counts.
    Hosts without a good certificate are served with that of the Secret `default_certificate` (namespace, name).
    Services that are exported have a host name with `clusterset_domain`, and are global under their own name as well
    unless that is `export_clusterset_only`; whether this process tells home's objects of it, and makes imports, is
    `multicluster_services`. Whether it gives home's namespaces the root certificates is `distributes_roots`.
    What `stale_after` and `stale_ttl` (seconds) mean is told in `standing`.
    If home is an `api_server`, it can be asked for single objects, and for what accounts may do. If it is a directory
    it cannot: then it is `accounts_read_secrets` whether accounts may read the Secrets of their own namespaces.
    """

    cluster: str
    system_namespace: str = "istio-system"
    trust_domain: str = "cluster.local"
    domain_suffix: str = "cluster.local"
    clusterset_domain: str = "clusterset.local"
    export_clusterset_only: bool = False
    multicluster_services: bool = True
    ztunnel_accounts: tuple[tuple[str, str], ...] = (("istio-system", "ztunnel"),)
    istio_classes: bool = False
    distributes_roots: bool = False
    revision: str = "default"
    remote_entries: bool = False
    ingress_service: tuple[str, str] | None = None
    ingress_addresses: tuple[str, ...] = ()
    regexes_for_whole_hosts: bool = True
    default_certificate: tuple[str, str] | None = None
    ingress_snippets: bool = False
    stale_after: float = 60.0
    stale_ttl: float | None = None
    api_server: bool = False
    accounts_read_secrets: bool = False

    def namespace_key(self, cluster: str, namespace: str) -> ObjectKey:
        """Key of a Namespace fact."""
        return _key("Namespace", cluster, namespace)

    def serves(self, revision: str) -> bool:
        """Whether an object of Istio's own kinds counts whose label istio.io/rev has this value, "" if it has none."""
        return revision in ("", self.revision)

    @property
    def mesh_config_key(self) -> ObjectKey:
        """Key of the MeshConfig fact that counts: home's."""
        return (self.cluster, "MeshConfig", self.system_namespace, "istio")


class Mesh(msgspec.Struct, frozen=True):
    """The mesh's settings in force: trust domain of all workloads, which services are global, the namespace whose
    policies are for all, the file in which gateways write a line for each request, "" for none, and who may see what
    ServiceEntries declare.
    """

    trust_domain: str
    scopes: tuple[ServiceScope, ...] | None
    root_namespace: str
    access_log_file: str = ""
    entry_visibility: EntryVisibility | None = None


def mesh_settings(graph: Graph, home: Home, mesh_configs: Source[ObjectKey, MeshConfig]) -> Callable[[At], Mesh]:
    """Declare the settings in force; the result reads them inside a derivation."""
    default = Mesh(home.trust_domain, None, home.system_namespace)

    def settings(_at: At, _key: ObjectKey, config: MeshConfig) -> Mesh:
        return Mesh(
            config.trust_domain or home.trust_domain,
            config.scopes,
            config.root_namespace or home.system_namespace,
            config.access_log_file,
            config.entry_visibility,
        )

    meshes: Collection[ObjectKey, Mesh] = graph.derive("mesh settings", mesh_configs, settings)

    def read(at: At) -> Mesh:
        return at.get(meshes, home.mesh_config_key) or default

    return read


def home_trust_domain(
    graph: Graph, home: Home, mesh: Callable[[At], Mesh], clusters: Source[ObjectKey, Cluster]
) -> Collection[tuple[str], str]:
    """Declare the trust domain of home's identities, under HOME_TRUST_DOMAIN."""

    def of_home(at: At, key: ObjectKey, _: Cluster) -> Iterable[tuple[tuple[str], str]]:
        if key[0] == home.cluster:
            yield HOME_TRUST_DOMAIN, mesh(at).trust_domain

    return graph.expand("trust domain of home", clusters, of_home)


def is_global(scopes: tuple[ServiceScope, ...] | None, service: Labels, namespace: Namespace | None) -> bool:
    """Whether a service is shared between clusters.

    With serviceScopeConfigs: the first GLOBAL entry whose selectors both match makes it global, a LOCAL entry never
    takes that back, and a service whose namespace is not known stays local. Without them: the label istio.io/global
    "true" on the Service, or else on its Namespace.
    """
    if namespace is None:
        return False
    if scopes is None:
        own = label(service, GLOBAL_LABEL)
        return (own or label(namespace.labels, GLOBAL_LABEL)).lower() == "true"
    return any(
        scope.scope == "GLOBAL" and matches(scope.namespace, namespace.labels) and matches(scope.services, service)
        for scope in scopes
    )


def visibility_of(configured: EntryVisibility | None, namespace: Namespace | None) -> str:
    """Who may see the services of a namespace's ServiceEntries: PUBLIC (all), NAMESPACE (it alone) or NONE."""
    if configured is None:
        return "PUBLIC"
    labels = namespace.labels if namespace is not None else ()
    for visibility, selectors in configured.policies:
        if any(matches(selector, labels) for selector in selectors):
            return visibility
    return configured.default


def matches(selector: LabelSelector | None, labels: Labels) -> bool:
    """Whether a label selector (metav1.LabelSelector) selects; a missing one selects everything."""
    if selector is None:
        return True
    present = dict(labels)
    if any(present.get(key) != value for key, value in selector.match_labels):
        return False
    for requirement in selector.expressions:
        value = present.get(requirement.key)
        if requirement.operator == "In":
            met = value is not None and value in requirement.values
        elif requirement.operator == "NotIn":
            met = value is None or value not in requirement.values
        elif requirement.operator == "Exists":
            met = value is not None
        else:
            met = value is None
        if not met:
            return False
    return True
