"""What ingress gateways show to backends and check them by, in whatever form they are told routes.

In: pairs and roots of the Secrets that Ingresses name (traffic.ingress_secrets). Out: secrets, under the names that
clusters have for them (xds.messages.backend_tls).
"""

from __future__ import annotations

import msgspec

from aggregator.graph import Collection, Graph, Index
from aggregator.security.certificates import Certificate
from aggregator.security.trust_bundles import Bundle
from aggregator.traffic.ingress_secrets import IngressSecrets
from aggregator.views.secrets import pair_secret, roots_secret
from aggregator.views.view import ResourceKey, View
from xds.encoded import Resource
from xds.messages.backend_tls import secret_name
from xds.messages.secret import SECRET_TYPE


class BackendSecrets(msgspec.Struct, frozen=True):
    """Pairs and roots by the names of their secrets."""

    pairs: Collection[str, Certificate]
    roots: Collection[str, Bundle]


def declare(graph: Graph, secrets: IngressSecrets) -> BackendSecrets:
    """Declare them, under the names they are asked for by."""
    return BackendSecrets(
        graph.expand(
            "pairs for backends by name",
            secrets.pairs,
            lambda _, key, one: ((secret_name("pair", *key[1:]), one),),
        ),
        graph.expand(
            "roots of backends by name",
            secrets.roots,
            lambda _, key, one: ((secret_name("roots", *key[1:]), one),),
        ),
    )


def told(
    graph: Graph, whom: str, views_by_type: Index[str, str, View], secrets: BackendSecrets
) -> list[Collection[ResourceKey, Resource]]:
    """Declare what views of secrets hold of them; `whom` they are told is for people."""
    return [
        graph.pair(
            f"pairs of {whom} for backends",
            views_by_type,
            graph.index(f"pairs for backends to tell {whom}", secrets.pairs, lambda _, __: (SECRET_TYPE,)),
            lambda _, __, name, one: pair_secret(name, one),
        ),
        graph.pair(
            f"roots of {whom} for backends",
            views_by_type,
            graph.index(f"roots of backends to tell {whom}", secrets.roots, lambda _, __: (SECRET_TYPE,)),
            lambda _, __, name, one: roots_secret(name, one),
        ),
    ]
