"""Where API servers serve the kinds that are read."""

from __future__ import annotations

import pytest

from watchers.facts.kinds import KINDS
from watchers.kubernetes.resources import resources

SERVED = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "Service": "/api/v1/services",
    "MeshConfig": "/api/v1/namespaces/istio-system/configmaps",
    "RootCertificates": "/api/v1/configmaps",
    "TLSSecret": "/api/v1/secrets",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/endpointslices",
    "Gateway": "/apis/gateway.networking.k8s.io/v1/gateways",
    "GatewayClass": "/apis/gateway.networking.k8s.io/v1/gatewayclasses",
    "ReferenceGrant": "/apis/gateway.networking.k8s.io/v1/referencegrants",
    "Ingress": "/apis/networking.k8s.io/v1/ingresses",
    "IngressClass": "/apis/networking.k8s.io/v1/ingressclasses",
    "ServiceEntry": "/apis/networking.istio.io/v1/serviceentries",
    "WorkloadEntry": "/apis/networking.istio.io/v1/workloadentries",
    "AuthorizationPolicy": "/apis/security.istio.io/v1/authorizationpolicies",
    "PeerAuthentication": "/apis/security.istio.io/v1/peerauthentications",
    "ServiceExport": "/apis/multicluster.x-k8s.io/v1alpha1/serviceexports",
    "ServiceImport": "/apis/multicluster.x-k8s.io/v1alpha1/serviceimports",
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.fact)
def test_a_kind_is_asked_for_under_the_plural_that_its_api_has(kind: object) -> None:
    paths = {one.kind.fact: one.paths[0] for one in resources("istio-system")}
    assert paths[kind.fact] == SERVED[kind.fact]  # type: ignore[attr-defined]
