"""Filter chains of gateways that cannot fetch certificates by host: one for each certificate, however many keep it.

In: hosts and their certificates (traffic.hosts). Out: the chain of each host, and what each chain shows. Certificates
are often one for many hosts, and then a copy of it lies in the Secret of every namespace; those with the same bytes
share a chain. It is named by the first of their Secrets, so that a renewal is a new certificate under the same name and
leaves the listener, and with it all connections, alone.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from aggregator.graph import At, Collection, Graph, Index, Outcome, Sums, Withheld
from aggregator.security.certificates import Certificate
from aggregator.traffic.annotations.tls import NO_TLS_SETTINGS
from aggregator.traffic.hosts import Hosts
from watchers.facts.keys import ObjectKey

ALL: Final = "all"
"""The one group of what is told as a whole."""


class Chains(msgspec.Struct, frozen=True):
    """The part of the graph this module declares.

    `of_hosts` has the name of the chain of each host that can be served by TLS, by ("all", host); `certificates` what
    each chain shows, by its name.
    """

    of_hosts: Collection[tuple[str, str], str]
    certificates: Collection[str, Certificate]


class Shown(msgspec.Struct, frozen=True, gc=False):
    """The certificate of a host: where it comes from, and a digest of all that is told of it.

    It is a `former` one where what is in the Secret now is not for the host.

    The digest is one that nobody can steer to another's, since Secrets of different owners are compared by it.
    """

    secret: ObjectKey
    digest: bytes
    former: bool


def chain_name(secret: ObjectKey) -> str:
    """The name of a Secret's chain, and of its certificate; no host can be called so."""
    return f"tls|{secret[2]}|{secret[3]}"


def names_chain(name: str) -> bool:
    """Whether a certificate is asked for by the name of a chain, and not by that of a host."""
    return name.startswith("tls|")


def declare(
    graph: Graph,
    asked: Index[str, str, bool],
    hosts: Hosts,
    in_force: Collection[ObjectKey, Certificate],
) -> Chains:
    """Declare chains for whoever is in `asked`; nothing is made while nobody is."""
    digests = graph.pair(
        "certificates to compare",
        asked,
        graph.index("hosts with certificates", hosts.certificates, lambda _, __: (ALL,)),
        lambda _, __, ___, certificate: _digest(certificate),
    )

    def shown(at: At, key: tuple[str, str], digest: bytes) -> Outcome[Shown]:
        host = at.get(hosts.hosts, key[1])
        if host is None or host.tls is None:
            return Withheld("HostHasNoCertificate")
        if host.speaks != NO_TLS_SETTINGS:
            return Withheld("HostHasTlsSettings")  # which no chain here has: nobody gets in without them
        former = at.get(in_force, host.tls) != at.get(hosts.certificates, key[1])
        return Shown(host.tls, digest, former)

    certificates = graph.derive("certificates of chains", digests, shown)
    copies = graph.fold("copies of certificates", certificates, lambda _, one: ((one.digest, one.secret, 1),))

    def first(_at: At, _digest: bytes, secrets: Sums) -> ObjectKey:
        """Of thousands of copies this looks at the keys of all, some 0.1 us each; nearly always it stays the same."""
        return min(secrets)  # type: ignore[type-var,return-value]  # the tags above

    firsts = graph.derive("first copies of certificates", copies, first)

    def chain(at: At, _key: tuple[str, str], one: Shown) -> Outcome[str]:
        found = at.get(firsts, one.digest)
        if found is None:
            return Withheld("HostHasNoCertificate")
        return f"{chain_name(found)}|{one.digest.hex()}" if one.former else chain_name(found)

    of_hosts = graph.derive("chains of hosts", certificates, chain)
    used = graph.fold("hosts of chains", of_hosts, lambda key, name: ((name, key[1], 1),))

    def certificate(at: At, _name: str, named: Sums) -> Outcome[Certificate]:
        """That of any of its hosts, as it is the same for all: of thousands, this looks at the names of all."""
        host: str = min(named)  # type: ignore[type-var,assignment]  # the tags above
        found = at.get(hosts.certificates, host)
        return found if found is not None else Withheld("HostHasNoCertificate")

    return Chains(of_hosts, graph.derive("certificates by chain", used, certificate))


def _digest(certificate: Certificate) -> bytes:
    digest = blake2b(digest_size=16)
    for part in (certificate.chain, certificate.key):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
