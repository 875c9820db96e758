"""The default certificate: what clients are shown that name no host, or one without a good certificate.

In: the Secret that the settings name, and the certificates in force. Out: the certificate, under the name that gateways
ask for where a client names none. Which hosts fall back on it is decided where names are looked up
(xds.session.server_names), so that it costs nothing for each host.
"""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.findings import Finding
from aggregator.graph import At, Collection, Graph, Outcome, Source, Withheld
from aggregator.mesh.home import Home
from aggregator.security.certificates import Certificate
from watchers.facts.cluster import Cluster
from watchers.facts.keys import ObjectKey
from xds.messages.downstream_tls import NO_NAME


def default_key(home: Home) -> ObjectKey | None:
    """The key of the Secret with the default certificate; None where there is to be none."""
    return (home.cluster, "TLSSecret", *home.default_certificate) if home.default_certificate is not None else None


def declare(
    graph: Graph, home: Home, clusters: Source[ObjectKey, Cluster], certificates: Collection[ObjectKey, Certificate]
) -> Collection[str, Certificate]:
    """Declare the default certificate, under NO_NAME."""
    secret = default_key(home)

    def default(at: At, _key: ObjectKey, cluster: Cluster) -> Iterable[tuple[str, Outcome[Certificate]]]:
        if secret is None:
            return
        found = at.get(certificates, secret)
        if found is None:
            if cluster.state == "synced":
                detail = f"there is no good certificate in {secret[2]}/{secret[3]}"
                at.note(secret, Finding(secret, "DefaultCertificateNotFound", "", detail))
            yield NO_NAME, Withheld("TlsSecretNotFound")
            return
        yield NO_NAME, found

    return graph.expand(
        "default certificate", clusters, default, unless=lambda key, _: secret is None or key[0] != home.cluster
    )
