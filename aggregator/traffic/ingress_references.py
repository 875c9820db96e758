"""What annotations of an Ingress refer to: Secrets and Services, and whether it may.

In: settings as the annotations have them. Out: settings in which each reference is the one object that is meant. A
Secret is of the Ingress's own namespace. A Service that is asked about requests may be of another one if a
ReferenceGrant there says so; what is no Service of the cluster is never asked, so that nobody can make a gateway call
addresses of its choice. What a protection refers to in vain leaves the Ingress closed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from aggregator.findings import Finding
from aggregator.graph import At
from aggregator.security.references import Allows, Referrer, Target
from aggregator.traffic.annotations.authentication import ANYBODY, Authentication, Authorizer, SecretRef
from aggregator.traffic.annotations.given import UNPROTECTED
from aggregator.traffic.annotations.policies import NO_POLICIES, Policies
from aggregator.traffic.annotations.settings import Settings
from watchers.facts.keys import ObjectKey
from watchers.facts.networking import ANNOTATION_PREFIXES, Ingress

AUTHORIZERS: Final = "auth|"
"""How names of the clusters begin that are asked about requests: gateways are told them before anybody asks."""


def settled(
    at: At, key: ObjectKey, ingress: Ingress, asked: Settings, allows: Allows, domain_suffix: str
) -> Settings:
    """The settings of an Ingress with its references settled; what is wrong with those is noted."""
    if asked.policies is NO_POLICIES and asked.client_secret is None:
        return asked
    closed = asked.policies.closed
    connections, authentication = asked.connections, asked.policies.authentication
    users, authorizer = authentication.users, authentication.authorizer

    def refuse(name: str, detail: str) -> None:
        at.note(key, Finding(key, UNPROTECTED, _field(ingress, name), detail))

    secret = asked.client_secret
    if secret is not None:
        if _own(secret, key[2]):
            connections = msgspec.structs.replace(connections, secret=secret.name)
        else:
            closed = True
            refuse("proxy-ssl-secret", f"Secrets of {secret.namespace} are not for {key[2]}")
    if users is not None:
        if not _own(users, key[2]):
            closed = True
            refuse("auth-secret", f"Secrets of {users.namespace} are not for {key[2]}")
        users = SecretRef(key[2], users.name) if _own(users, key[2]) else None
    if authorizer is not None:
        try:
            authorizer = _found(at, key[2], authorizer, allows, domain_suffix)
        except _Refused as error:
            closed, authorizer = True, None
            refuse("auth-url", str(error))
    policies = msgspec.structs.replace(
        asked.policies,
        authentication=Authentication(users, authorizer) if users or authorizer else ANYBODY,
        closed=closed,
    )
    return msgspec.structs.replace(asked, connections=connections, policies=policies)


class _Refused(ValueError):
    """A reference that does not count; the text says why."""


def backends(namespace: str, policies: Policies) -> tuple[str, ...]:
    """Keys of the backends that policies of an Ingress of a namespace need, once they are settled."""
    if policies is NO_POLICIES:
        return ()
    authorizer = policies.authentication.authorizer
    found = () if authorizer is None else (authorizer.backend,)
    return found if policies.errors is None else (*found, error_backend(namespace, policies.errors.service))


def error_backend(namespace: str, service: str) -> str:
    """The key of the backend that gives answers for others: a Service's first port."""
    return f"ing|{namespace}|{service}|"


def _own(secret: SecretRef, namespace: str) -> bool:
    return secret.namespace in ("", namespace)


def _found(at: At, own: str, asked: Authorizer, allows: Allows, domain_suffix: str) -> Authorizer:
    """Who is asked, with the key of its backend. Raises _Refused."""
    stem = asked.host.removesuffix(f".svc.{domain_suffix}").removesuffix(".svc")
    service, dot, namespace = stem.partition(".")
    if not dot and stem == asked.host:
        namespace = own
    if not service or not namespace or "." in namespace:
        raise _Refused(f"{asked.host[:80]} is no Service of the cluster (<service>.<namespace>.svc)")
    referrer, target = Referrer("networking.k8s.io", "Ingress", own), Target("", "Service", namespace, service)
    if not allows(at, referrer, target):
        detail = f"no ReferenceGrant in {namespace[:63]} lets Ingresses of {own} ask its Service {service[:63]}"
        raise _Refused(detail)
    key = f"{AUTHORIZERS}{namespace}|{service}|{asked.port}"
    return msgspec.structs.replace(asked, backend=f"{key}|https" if asked.scheme == "https" else key)


def _field(ingress: Ingress, name: str) -> str:
    """Where an Ingress has its annotation of that name."""
    given = {key for key, _ in ingress.annotations}
    found = next((prefix + name for prefix in ANNOTATION_PREFIXES if prefix + name in given), name)
    return f'metadata.annotations["{found}"]'
