"""Everything secret in the demo, made for one run: a root of the mesh, a root of the web, keys, certificates, tokens.

In: a directory of the demo. Out: files as real ones would be mounted: Istio's `cacerts` for the control planes, tokens
and certificates for pods, a certificate for each web host. Nothing is kept beyond the run.
"""

from __future__ import annotations

import json
import secrets
import ssl
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from xds.server.authentication import Identity
from xds.server.certificate_authority import CertificateAuthority, PrivateKey, ServerCertificate

TRUST_DOMAIN: Final = "cluster.local"


class Credentials:
    """The secrets of one run, in files below `directory`.

    `cacerts` is for both control planes, which so share a root; `root` is that root; `identities` tells them whose
    tokens there are; `web_root` is what visitors trust.
    """

    def __init__(self, directory: Path) -> None:
        self.cacerts = directory / "cacerts"
        self.root = self.cacerts / "root-cert.pem"
        self.identities = directory / "identities.json"
        self.web_root = directory / "web-root.pem"
        self._pods = directory / "pods"
        self._mesh = CertificateAuthority.self_signed(TRUST_DOMAIN)
        self._web = CertificateAuthority.self_signed("demo.example")
        self._tokens: dict[tuple[str, str], tuple[str, Identity]] = {}

    def write(self) -> None:
        """Writes what is there from the beginning."""
        self.cacerts.mkdir()
        self._pods.mkdir()
        write_private(self.cacerts / "ca-key.pem", _pem(self._mesh.key))
        # The root signs itself: its certificate is the whole path.
        for name in ("ca-cert.pem", "cert-chain.pem", "root-cert.pem"):
            (self.cacerts / name).write_text(self._mesh.root_certificates)
        self.web_root.write_text(self._web.root_certificates)

    def token_file(self, cluster: str, pod: str) -> Path:
        """Where a pod finds its token."""
        return self._pods / f"{cluster}-{pod}.token"

    def admit(self, cluster: str, identity: Identity) -> None:
        """Gives a pod a new token, the only one of its that the control planes know from then on."""
        token = secrets.token_urlsafe(32)
        self._tokens[cluster, identity.pod] = (token, identity)
        known = {each: {"identity": str(whose), "pod": whose.pod} for each, whose in self._tokens.values()}
        write_private(self.identities, json.dumps(known).encode())
        write_private(self.token_file(cluster, identity.pod), token.encode())

    def issue(self, cluster: str, identity: Identity) -> tuple[Path, Path]:
        """A certificate of the mesh for a pod, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        *chain, _roots = self._mesh.issue(key.public_key(), identity)
        certificate = self._pods / f"{cluster}-{identity.pod}.pem"
        private = certificate.with_suffix(".key")
        certificate.write_text("".join(chain))
        write_private(private, _pem(key))
        return certificate, private

    def certify(self, host: str) -> ServerCertificate:
        """A certificate for a web host, which visitors trust."""
        return self._web.issue_server([host])

    def trust(self) -> ssl.SSLContext:
        """What a visitor's browser trusts."""
        return ssl.create_default_context(cadata=self._web.root_certificates)


def write_private(path: Path, content: bytes) -> None:
    """In one step, so that whoever watches sees all of it; readable by its owner alone from the first byte."""
    draft = path.with_name(f".{path.name}.draft")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)


def _pem(key: PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
