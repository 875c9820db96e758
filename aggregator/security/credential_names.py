"""Names under which gateways ask for credentials, and what each stands for.

| name | stands for |
|---|---|
| `kubernetes://<name>`, `kubernetes://<namespace>/<name>` | a Secret in the gateway's own namespace |
| `kubernetes-gateway://<namespace>/<name>` | a Secret that the Gateway refers to |
| `configmap://<namespace>/<name>` | the roots in a ConfigMap |
| any of these with `-cacert` at its end | the roots that belong to it |

Every other name with a scheme stands for nothing: it is not for this server to hand out (`file-cert`, `sds`), or meant
to be refused (`invalid`, `builtin`). Names are hostile, so what comes out here consists of names that objects can have.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast, get_args

import msgspec

from watchers.facts.invalid import InvalidObject
from watchers.facts.keys import dns_label, subdomain

Scheme: TypeAlias = Literal["kubernetes", "kubernetes-gateway", "configmap"]

ROOTS_SUFFIX: Final = "-cacert"
_SCHEME_END: Final = "://"
_LONGEST: Final = len("kubernetes-gateway") + len(_SCHEME_END) + 63 + 1 + 253 + len(ROOTS_SUFFIX)


class CredentialName(msgspec.Struct, frozen=True, gc=False):
    """What a name stands for: the pair of a Secret, or the `roots` of a Secret or ConfigMap.

    `names` are those of the objects that may hold it: the first that exists does.
    """

    scheme: Scheme
    namespace: str
    names: tuple[str, ...]
    roots: bool


def has_scheme(asked: str) -> bool:
    """Whether a name is one of those that are told apart here; others are host names, and names of the proxy's own."""
    return _SCHEME_END in asked


def credential_name(asked: str, own_namespace: str) -> CredentialName | None:
    """What a name stands for that a gateway of a namespace asks for; None if it stands for nothing there."""
    scheme, _, rest = asked.partition(_SCHEME_END)
    if len(asked) > _LONGEST or scheme not in get_args(Scheme):
        return None
    namespace, slash, name = rest.rpartition("/")
    if scheme == "kubernetes":
        if slash and namespace != own_namespace:
            return None
        namespace = own_namespace
    stem = name.removesuffix(ROOTS_SUFFIX)
    roots = stem != name
    names = (name, stem) if roots else (name,)
    try:
        dns_label(namespace)
        for one in names:
            subdomain(one)
    except InvalidObject:
        return None
    return CredentialName(cast("Scheme", scheme), namespace, names, roots or scheme == "configmap")
