"""What the demo changes while it runs, all of it by writing manifests, as a person or a GitOps agent would.

In: a stage. Out: changed files, each in one step, and the moment at which they changed.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

import yaml

from aggregator.demo.stage import NAMESPACE, Site, Stage, StageError
from aggregator.operate.bootstrap import GatewayProxy

SECOND_GATEWAY_PORT: Final = 15018
_SECOND_ADDRESS: Final = "0.11"

_POD: Final = """\
# The pod of the second gateway.
apiVersion: v1
kind: Pod
metadata:
  name: east-west-2
  namespace: istio-system
  labels:
    gateway.istio.io/managed: isthmus.dev-east-west-gateway
    gateway.networking.k8s.io/gateway-name: east-west-2
spec:
  nodeName: east-node
  serviceAccountName: east-west-2
  containers:
  - name: envoy
status:
  phase: Running
  podIPs:
  - {{ip: {address}}}
  conditions:
  - {{type: Ready, status: "True"}}
"""

_GATEWAY: Final = """\
# A second way into east, on a port of its own. It is known to others once it has an address.
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: east-west-2
  namespace: istio-system
  labels: {{topology.istio.io/network: {network}}}
spec:
  gatewayClassName: istio-east-west
  listeners:
  - name: mesh
    port: {port}
    protocol: HBONE
    tls:
      mode: Terminate
      options: {{gateway.istio.io/tls-terminate-mode: ISTIO_MUTUAL}}
status:
  addresses: [{addresses}]
"""

_INGRESS: Final = """\
# One more host, whose service is only in east.
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {name}
  namespace: {namespace}
spec:
  ingressClassName: isthmus
  tls:
  - hosts: [{host}]
    secretName: {secret}
  rules:
  - host: {host}
    http:
      paths:
      - path: /
        pathType: Prefix
        backend:
          service: {{name: {service}, port: {{number: 80}}}}
"""


def set_ready(site: Site, pod: str, ready: bool) -> float:
    """Makes a pod ready or not; returns when, in seconds since the epoch. Raises StageError if there is no such pod."""
    for file in sorted(site.manifests.glob("*.yaml")):
        documents = file.read_text().split("\n---\n")
        for number, text in enumerate(documents):
            document = yaml.safe_load(text)
            if document and document["kind"] == "Pod" and document["metadata"]["name"] == pod:
                status = "True" if ready else "False"
                documents[number] = re.sub(r'(type: Ready, status: )"\w+"', rf'\1"{status}"', text)
                return _write(file, "\n---\n".join(documents))
    raise StageError(f"{site.manifests} has no pod {pod}; start with the examples as they are shipped")


def add_gateway(stage: Stage) -> GatewayProxy:
    """Adds a second gateway into east, which nobody is told of yet; returns the pod to start."""
    site = stage.east
    _write(site.manifests / "second-gateway.yaml", _gateway(site, announced=False))
    text = _POD.format(address=site.address(_SECOND_ADDRESS))
    _write(site.manifests / "second-gateway-pod.yaml", text)
    stage.admit(site, yaml.safe_load(text))
    (proxy,) = (proxy for proxy in stage.gateways(site) if proxy.pod == "east-west-2")
    return proxy


def announce_gateway(stage: Stage) -> float:
    """Gives the second gateway its address, so that others send through it; returns when."""
    return _write(stage.east.manifests / "second-gateway.yaml", _gateway(stage.east, announced=True))


def _gateway(site: Site, *, announced: bool) -> str:
    address = f"{{type: IPAddress, value: {site.address(_SECOND_ADDRESS)}}}" if announced else ""
    return _GATEWAY.format(network=site.network, port=SECOND_GATEWAY_PORT, addresses=address)


def add_host(stage: Stage, host: str, service: str) -> float:
    """Adds a web host in west, with a certificate; returns when the last of it was written."""
    secret = stage.certify(host)
    name = host.partition(".")[0]
    text = _INGRESS.format(name=name, namespace=NAMESPACE, host=host, secret=secret, service=service)
    return _write(stage.west.manifests / f"{name}.yaml", text)


def _write(path: Path, text: str) -> float:
    """In one step, so that whoever watches sees all of it or nothing."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    moment = time.time()
    draft.replace(path)
    return moment
