"""The whole graph on one page: facts at the top, what is published at the bottom.

Read downwards it is the order of evaluation. Each line calls the module that gives the meaning; none is given here.
A new kind of fact is a source and the module that reads it; a new class of proxies is a module of `views` and a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggregator.findings import Finding, derivation_failed
from aggregator.graph import At, Graph, Source
from aggregator.mesh import (
    allocated_addresses,
    answers,
    exposure,
    global_services,
    networks,
    selection,
    service_entries,
    service_exports,
    services,
    split_horizon,
    standing,
    waypoints,
    workloads,
)
from aggregator.mesh import trust_domains as domains
from aggregator.mesh.home import Home, home_trust_domain, mesh_settings
from aggregator.security import (
    admissions,
    authorization_policies,
    certificates,
    credentials,
    peer_authentication,
    policy_references,
    references,
)
from aggregator.traffic import (
    backends,
    default_certificate,
    hosts,
    ingress_classes,
    ingress_secrets,
    ingresses,
    tls_classes,
)
from aggregator.views import (
    completeness,
    east_west_gateway,
    ingress_backend_secrets,
    ingress_compatible,
    ingress_endpoints,
    ingress_gateway,
    ingress_scopes,
    rejections,
    ztunnel,
)
from aggregator.views import credentials as credential_views
from aggregator.views.view import ResourceKey, View
from aggregator.writes import authorization_policies as policy_writes
from aggregator.writes import gateways as gateway_writes
from aggregator.writes import ingresses as ingress_writes
from aggregator.writes import root_certificates as root_writes
from aggregator.writes import service_entries as entry_writes
from aggregator.writes import service_exports as export_writes
from aggregator.writes import service_imports as import_writes
from aggregator.writes import services as service_writes
from aggregator.writes import workload_entries as workload_entry_writes
from watchers.facts.cluster import Answered, Cluster, SourceFault
from watchers.facts.core import Namespace, Node, Pod, Service
from watchers.facts.discovery import EndpointSlice
from watchers.facts.gateway_api import Gateway, GatewayClass
from watchers.facts.istio_networking import ServiceEntry, WorkloadEntry
from watchers.facts.istio_security import AuthorizationPolicy, PeerAuthentication
from watchers.facts.keys import ObjectKey
from watchers.facts.mesh_config import MeshConfig
from watchers.facts.multicluster import ServiceExport, ServiceImport
from watchers.facts.named import Reading, RootsConfigMap, SecretAccess
from watchers.facts.names import ResolvedName
from watchers.facts.networking import Ingress, IngressClass
from watchers.facts.reference_grants import ReferenceGrant
from watchers.facts.root_certificates import RootCertificates
from watchers.facts.secrets import NamedSecret, TLSSecret

RESOURCES, SETTLED, ADMISSIONS, HOSTNAMES = "resources", "settled", "admissions", "hostnames"
WRITES, TRUST_DOMAIN = "writes", "trust domain"
WANTED, REVIEWS = "objects to read by name", "accounts to review"
AWAITED = "hosts that await a certificate"
SELECTIONS, PAST_LIMIT = "selections", "clusters past their limit"
DOMAINS = "domains"


class Pipeline:
    """The graph of one control plane, its sources by name, and the collections that others ask about."""

    def __init__(self, home: Home) -> None:
        graph = self.graph = Graph(failed=derivation_failed(home.cluster))

        # Facts, by kind, what proxies ask for, and what they are to trust.
        clusters: Source[ObjectKey, Cluster] = graph.source("clusters")
        answered: Source[ObjectKey, Answered] = graph.source("answers of clusters")
        faults: Source[ObjectKey, SourceFault] = graph.source("source faults")
        namespaces: Source[ObjectKey, Namespace] = graph.source("namespaces")
        nodes: Source[ObjectKey, Node] = graph.source("nodes")
        pods: Source[ObjectKey, Pod] = graph.source("pods")
        kube_services: Source[ObjectKey, Service] = graph.source("kubernetes services")
        slices: Source[ObjectKey, EndpointSlice] = graph.source("endpoint slices")
        gateways: Source[ObjectKey, Gateway] = graph.source("gateways")
        gateway_classes: Source[ObjectKey, GatewayClass] = graph.source("gateway classes")
        mesh_configs: Source[ObjectKey, MeshConfig] = graph.source("mesh configs")
        kube_ingresses: Source[ObjectKey, Ingress] = graph.source("kubernetes ingresses")
        kube_classes: Source[ObjectKey, IngressClass] = graph.source("ingress classes")
        secrets: Source[ObjectKey, TLSSecret | NamedSecret] = graph.source("secrets")
        config_maps: Source[ObjectKey, RootsConfigMap] = graph.source("config maps with roots")
        readings: Source[ObjectKey, Reading] = graph.source("readings by name")
        accesses: Source[ObjectKey, SecretAccess] = graph.source("access to secrets")
        grants: Source[ObjectKey, ReferenceGrant] = graph.source("reference grants")
        resolved_names: Source[ObjectKey, ResolvedName] = graph.source("resolved names")
        kube_entries: Source[ObjectKey, ServiceEntry] = graph.source("kubernetes service entries")
        workload_entries: Source[ObjectKey, WorkloadEntry] = graph.source("kubernetes workload entries")
        policies: Source[ObjectKey, AuthorizationPolicy] = graph.source("kubernetes authorization policies")
        authentications: Source[ObjectKey, PeerAuthentication] = graph.source("kubernetes peer authentications")
        kube_exports: Source[ObjectKey, ServiceExport] = graph.source("kubernetes service exports")
        kube_imports: Source[ObjectKey, ServiceImport] = graph.source("kubernetes service imports")
        kube_roots: Source[ObjectKey, RootCertificates] = graph.source("kubernetes root certificates")
        node_proxies: Source[admissions.AccountKey, bool] = graph.source("accounts of node proxies")
        interest: Source[tuple[str], View] = graph.source("interest")
        refused: Source[ResourceKey, rejections.Rejection] = graph.source("rejections")
        roots: Source[tuple[str], str] = graph.source("trusted roots")

        # The model: the mesh as seen from home.
        mesh = mesh_settings(graph, home, mesh_configs)
        selected = selection.declare(graph, home, mesh_configs, clusters, answered, namespaces)
        counts = selected.includes
        standings = standing.declare(graph, home, clusters)
        own_trust_domain = home_trust_domain(graph, home, mesh, clusters)
        trust_domains = domains.declare(graph, home, clusters)
        have_answered = answers.declare(graph, home, clusters)
        network = networks.declare(
            graph,
            home,
            counts,
            standings.of,
            trust_domains,
            clusters,
            namespaces,
            gateways,
            gateway_classes,
            pods,
            resolved_names,
        )
        through = waypoints.declare(
            graph, home, counts, network.of_cluster, namespaces, gateways, gateway_classes
        )
        exports = service_exports.declare(graph, counts, kube_services, kube_exports)
        own, exported = services.declare(
            graph,
            home,
            mesh,
            counts,
            network.of_cluster,
            namespaces,
            through,
            kube_services,
            exports.exported,
            kube_imports,
        )
        entries = service_entries.declare(
            graph,
            home,
            mesh,
            counts,
            network.of_cluster,
            namespaces,
            through,
            kube_services,
            kube_entries,
        )
        declared = services.index(graph, home, own, exported, entries)
        workload = workloads.declare(
            graph,
            home,
            counts,
            standings.of,
            trust_domains,
            network.of_cluster,
            declared,
            through,
            workloads.Objects(pods, slices, kube_entries, workload_entries),
        )
        allocated = allocated_addresses.declare(graph, home, network.of_cluster, have_answered, declared)
        merged = global_services.declare(
            graph, home, mesh, trust_domains, network.of_cluster, declared, allocated, workload
        )
        split = split_horizon.declare(graph, home, network, merged, workload)
        exposed = exposure.declare(graph, home, merged.services)
        admitted = admissions.declare(graph, home, counts, network.of_cluster, pods, node_proxies)
        enforced = authorization_policies.declare(graph, home, mesh, counts, policies)
        modes = peer_authentication.declare(graph, home, mesh, counts, authentications)
        policies_of = policy_references.declare(graph, mesh, workload.label_sets, enforced, modes)
        graph.derive("unusable manifests", faults, _unusable_manifest)

        # The model: what comes in from outside.
        in_force = certificates.declare(graph, home, counts, secrets)
        judge = ingress_classes.declare(graph, home, kube_classes)
        allows = references.declare(graph, home, counts, grants)
        claims = ingresses.declare(graph, home, counts, kube_ingresses, judge, in_force, allows)
        served = hosts.declare(graph, home, claims, in_force)
        of_credentials = credentials.Sources(
            secrets, config_maps, readings, accesses, gateways, gateway_classes, allows
        )
        used = ingress_secrets.declare(graph, home, have_answered, claims, in_force, of_credentials)
        behind = backends.declare(graph, home, claims, merged.services, used)

        # Views: what proxies are told, and whether that is all.
        told = ztunnel.declare(
            graph,
            home,
            interest,
            ztunnel.Sources(mesh, nodes, network, workload, merged, split, enforced, modes, policies_of),
        )
        reached = ingress_endpoints.declare(
            graph, home, ingress_endpoints.Sources(mesh, network, workload, merged, split, behind)
        )
        by_name = credential_views.declare(
            graph,
            home,
            counts,
            have_answered,
            interest,
            in_force,
            tls_classes.demanded_roots(graph, served),
            of_credentials,
            used,
        )
        default_pair = default_certificate.declare(graph, home, clusters, in_force)
        classes = tls_classes.declare(
            graph, home, served, kube_ingresses, lambda at, name: at.get(by_name.demanded, name)
        )
        scopes = ingress_scopes.declare(graph, served, used)
        for_backends = ingress_backend_secrets.declare(graph, used)
        told += ingress_gateway.declare(
            graph,
            home,
            interest,
            ingress_gateway.Sources(
                mesh,
                trust_domains,
                network,
                served,
                scopes,
                classes,
                by_name.demanded,
                default_pair,
                behind,
                reached,
                for_backends,
            ),
        )
        told += ingress_compatible.declare(
            graph,
            home,
            interest,
            ingress_compatible.Sources(mesh, network, served, scopes, in_force, for_backends),
        )
        told += east_west_gateway.declare(
            graph, home, interest, east_west_gateway.Sources(mesh, trust_domains, gateways, nodes, workload, exposed)
        )
        told += [by_name.secrets]
        settled = completeness.declare(graph, have_answered, network, interest, by_name.unknown, used)

        rejected = rejections.declare(graph, refused, told)

        # Writes: what home's objects are told.
        of_ingresses = ingress_writes.declare(graph, home, counts, clusters, kube_services, kube_ingresses, judge)
        of_gateways = gateway_writes.declare(
            graph, home, counts, gateway_writes.Sources(clusters, gateways, gateway_classes, network, rejected)
        )
        of_services = service_writes.declare(
            graph, home, have_answered, service_writes.Sources(kube_services, own, merged.services, through)
        )
        of_entries = entry_writes.declare(
            graph, home, have_answered, entry_writes.Sources(kube_entries, entries, allocated, through)
        )
        of_workload_entries = workload_entry_writes.declare(
            graph, home, have_answered, counts, through, workload_entries
        )
        of_policies = policy_writes.declare(graph, home, have_answered, enforced.verdicts, rejected, policies)
        of_exports = export_writes.declare(graph, home, counts, have_answered, kube_services, kube_exports, exports)
        of_imports = import_writes.declare(
            graph,
            home,
            counts,
            have_answered,
            import_writes.Sources(answered, namespaces, kube_imports, exports, allocated),
        )
        of_roots = root_writes.declare(
            graph, home, counts, have_answered, root_writes.Sources(answered, namespaces, kube_roots, roots)
        )

        graph.publish(RESOURCES, *told)
        graph.publish(SETTLED, settled)
        graph.publish(TRUST_DOMAIN, own_trust_domain)
        graph.publish(ADMISSIONS, admitted.accounts, admitted.pods)
        graph.publish(
            WRITES,
            of_ingresses,
            *of_gateways,
            of_services,
            of_entries,
            of_workload_entries,
            of_policies,
            of_exports,
            of_imports,
            of_roots,
        )
        graph.publish(PAST_LIMIT, standings.past_limit)
        graph.publish(SELECTIONS, selected.of_cluster)
        graph.publish(HOSTNAMES, network.hostnames)
        graph.publish(AWAITED, served.awaited)
        graph.publish(WANTED, by_name.asked.wanted)
        graph.publish(REVIEWS, by_name.asked.reviews)
        graph.publish(DOMAINS, served.hosts)

        self.home = home
        self.interest = interest
        self.rejections = refused
        self.roots = roots
        self.told = told
        self.node_proxies = node_proxies
        self.networks = network
        self.declared = declared
        self.services = merged.services
        self.allocated = allocated
        self.exposed = exposed
        self.workloads = workload
        self.clusters = clusters
        self.certificates = in_force
        self.credentials = by_name.asked
        self.bundles = by_name.bundles
        self.claims = claims
        self.hosts = served
        self.tls_classes = classes
        self.backends = behind
        self._by_kind: dict[str, Source[ObjectKey, Any]] = {
            "Cluster": clusters,
            "Answered": answered,
            "SourceFault": faults,
            "Namespace": namespaces,
            "Node": nodes,
            "Pod": pods,
            "Service": kube_services,
            "EndpointSlice": slices,
            "Gateway": gateways,
            "GatewayClass": gateway_classes,
            "MeshConfig": mesh_configs,
            "Ingress": kube_ingresses,
            "IngressClass": kube_classes,
            "TLSSecret": secrets,
            "NamedSecret": secrets,
            "RootsConfigMap": config_maps,
            "Reading": readings,
            "SecretAccess": accesses,
            "ReferenceGrant": grants,
            "ServiceEntry": kube_entries,
            "WorkloadEntry": workload_entries,
            "ServiceExport": kube_exports,
            "ServiceImport": kube_imports,
            "AuthorizationPolicy": policies,
            "PeerAuthentication": authentications,
            "ResolvedName": resolved_names,
            "RootCertificates": kube_roots,
        }

    def facts(self, changes: Mapping[ObjectKey, Any]) -> dict[Source[ObjectKey, Any], dict[ObjectKey, Any]]:
        """Changed facts (None: gone) sorted by source, as `Graph.begin` takes them."""
        inputs: dict[Source[ObjectKey, Any], dict[ObjectKey, Any]] = {}
        for key, fact in changes.items():
            inputs.setdefault(self._by_kind[key[1]], {})[key] = fact
        return inputs


def _unusable_manifest(at: At, key: ObjectKey, fault: SourceFault) -> SourceFault:
    at.note(key, Finding(key, "ManifestUnusable", f"{fault.file}:{fault.line}", fault.cause))
    return fault
