"""Tokens of service accounts and the keys they are signed with, as an API server makes and publishes them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode

from tests.kit.certificates import p256

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""What most clusters call their issuer."""
AUDIENCE = "istio-ca"


class SigningKey:
    """A key that signs tokens, P-256 unless it is given; its id is the digest of its public part, as Kubernetes'."""

    def __init__(self, key: PrivateKey | None = None, algorithm: str = "ES256") -> None:
        self.key = key or p256()
        self.algorithm = algorithm
        public = self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.id = base64url_encode(sha256(public).digest()).decode()

    def published(self) -> dict[str, Any]:
        """The public part in a key set."""
        key = self.key
        wire = (
            RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
            if isinstance(key, rsa.RSAPrivateKey)
            else ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        )
        wire.pop("key_ops", None)
        return {**wire, "use": "sig", "kid": self.id, "alg": self.algorithm}

    def sign(self, claims: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> str:
        """A token with these claims; ``header`` changes what stands in its header, None takes a field away."""
        fields = {"typ": None, "kid": self.id, "alg": self.algorithm, **(header or {})}
        head = {name: value for name, value in fields.items() if value is not None}
        parts = [base64url_encode(json.dumps(part).encode()) for part in (head, claims)]
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        return b".".join([*parts, base64url_encode(algorithm.sign(b".".join(parts), self.key))]).decode()


def claims(
    account: str,
    *,
    audiences: Sequence[str] = (AUDIENCE,),
    issuer: str = ISSUER,
    now: float,
    seconds: float = 3600.0,
    pod: str = "",
    node: str = "",
) -> dict[str, Any]:
    """What an API server claims of `namespace/name`, of a pod of that namespace and its node if they are named."""
    namespace, _, name = account.partition("/")
    bound: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": name, "uid": f"uid-of-{name}"}}
    if pod:
        bound["pod"] = {"name": pod, "uid": f"uid-of-{pod}"}
    if node:
        bound["node"] = {"name": node, "uid": f"uid-of-{node}"}
    return {
        "aud": list(audiences),
        "exp": int(now + seconds),
        "iat": int(now),
        "iss": issuer,
        "jti": "3f1b",
        "kubernetes.io": bound,
        "nbf": int(now),
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }


class TokenIssuer:
    """The service accounts of one API server: signs with the first of its keys, and publishes them all."""

    def __init__(self, issuer: str = ISSUER) -> None:
        self.issuer = issuer
        self.keys = [SigningKey()]

    def rotate(self) -> None:
        """It signs with a new key, and the old one counts no more."""
        self.keys = [SigningKey()]

    def token(self, account: str, **claimed: Any) -> str:
        """A token that counts from now on; see `claims`."""
        return self.keys[0].sign(claims(account, **{"issuer": self.issuer, "now": time.time(), **claimed}))

    def review(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The status of a TokenReview: whose the token is, if one of the keys signed it and it is for the audience."""
        for key in self.keys:
            with contextlib.suppress(jwt.PyJWTError):
                said = jwt.decode(spec["token"], key.key.public_key(), [key.algorithm], audience=spec["audiences"])
                bound = said["kubernetes.io"]
                extra = {
                    f"authentication.kubernetes.io/{kind}-{field}": [bound[kind][field]]
                    for kind in ("pod", "node")
                    for field in ("name", "uid")
                    if kind in bound
                }
                groups = ["system:serviceaccounts", "system:authenticated"]
                user = {"username": said["sub"], "groups": groups, "extra": extra}
                return {"authenticated": True, "user": user, "audiences": said["aud"]}
        return {"error": "invalid bearer token"}

    def configuration(self) -> dict[str, Any]:
        """Its OpenID configuration, which says as real ones do that the keys are where nobody else can ask."""
        return {
            "issuer": self.issuer,
            "jwks_uri": "https://192.0.2.1:6443/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted({key.algorithm for key in self.keys}),
        }

    def published(self) -> dict[str, Any]:
        """Its key set."""
        return {"keys": [key.published() for key in self.keys]}
