"""Kubeconfigs, which are hostile until read here: bytes in, the few values that are used out.

Everything is rebuilt field by field. What would start a program or open a file (exec, auth-provider, tokenFile, paths
of certificates and keys) is refused, what weakens the connection needs an Allowance, hosts that only this machine
should reach are refused, and unknown fields are dropped. No message and no repr ever shows a credential. Pure but for
`in_cluster`, which reads the service account of the pod it runs in.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from watchers.documents import UnreadableText, documents
from watchers.kubernetes.destinations import objection

MOST_BYTES = 1 << 20
"""No kubeconfig is longer: it comes from a Secret."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the credential of its service account."""

MOST_PEM = 256 << 10
"""No certificates or key are longer: the authorities of the whole web have as much, and to read it takes 50 ms."""

_MOST_VALUES = 20_000
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")

# What is refused in a user, and what to write instead.
_STARTS_A_PROGRAM = "put a token into the field token; programs are never run"
_OPENS_A_FILE = "put the content itself into the field {}; files are never opened"
_REFUSED_IN_USERS: Mapping[str, tuple[str, str]] = {
    "exec": ("would start a program", _STARTS_A_PROGRAM),
    "auth-provider": ("would start a program or ask another server", _STARTS_A_PROGRAM),
    "tokenFile": ("would open a file", _OPENS_A_FILE.format("token")),
    "client-certificate": ("would open a file", _OPENS_A_FILE.format("client-certificate-data")),
    "client-key": ("would open a file", _OPENS_A_FILE.format("client-key-data")),
    "username": ("is not read: API servers no longer take passwords", "put a token into the field token"),
    "password": ("is not read: API servers no longer take passwords", "put a token into the field token"),
    "as": ("asks to act as another user", "give the credential of that user"),
    "as-uid": ("asks to act as another user", "give the credential of that user"),
    "as-groups": ("asks to act as another user", "give the credential of that user"),
    "as-user-extra": ("asks to act as another user", "give the credential of that user"),
}


class InvalidKubeconfig(ValueError):
    """A kubeconfig that is not used. The message names context, cluster, user and field, and never a credential.

    ``place`` is where the fault is ("user 'admin': exec"), ``cause`` what it is, ``cure`` what to do.
    """

    def __init__(self, place: str, cause: str, cure: str) -> None:
        super().__init__(place, cause, cure)
        self.place = place
        self.cause = cause
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.place} {self.cause}; {self.cure}"


class Allowances(msgspec.Struct, frozen=True):
    """What is accepted of kubeconfigs besides TLS that is verified; nothing unless an operator says so."""

    plain_http: bool = False
    insecure_skip_tls_verify: bool = False
    proxy_url: bool = False


NO_ALLOWANCES = Allowances()
_ANYTHING = Allowances(plain_http=True, insecure_skip_tls_verify=True, proxy_url=True)


class ApiServer(msgspec.Struct, frozen=True):
    """An API server and the credential for it.

    ``server`` is a URL without a slash at its end; ``ca_data`` (PEM), ``tls_server_name``, ``token``,
    ``client_certificate`` and ``client_key`` (PEM) are empty where there is none; without ``ca_data`` the system's
    authorities are trusted. ``token_file`` is only ever set by `in_cluster`: the token is read from it again and again.
    """

    server: str
    ca_data: str = ""
    tls_server_name: str = ""
    token: str = ""
    client_certificate: str = ""
    client_key: str = ""
    proxy_url: str = ""
    insecure: bool = False
    token_file: str = ""

    def __repr__(self) -> str:
        return f"ApiServer({self.server!r}, {self.credential})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("server", self.server), ("credential", self.credential)]

    @property
    def place(self) -> ApiServer:
        """The same without the credential, which changes more often: equal ones are one API server."""
        return msgspec.structs.replace(self, token="", client_certificate="", client_key="", token_file="")

    @property
    def credential(self) -> str:
        """What kind of credential it is, for people."""
        kinds = (("token", self.token or self.token_file), ("client certificate", self.client_certificate))
        return " and ".join(kind for kind, given in kinds if given) or "no credential"


def read_kubeconfig(data: bytes, allowances: Allowances = NO_ALLOWANCES) -> ApiServer:
    """What the current context of a kubeconfig (YAML or JSON) says; the only context if none is current.

    Raises InvalidKubeconfig and nothing else.
    """
    document = _document(data)
    contexts = _named(document, "contexts", "context")
    current = document.get("current-context") or ""
    if not current and len(contexts) == 1:
        current = next(iter(contexts))
    if not isinstance(current, str) or not current:
        raise InvalidKubeconfig("current-context", "is missing", "name the context that is to be used")
    context = _of(contexts, "context", current)
    cluster_name = _text(context, "cluster", f"context {_shown(current)}")
    user_name = _text(context, "user", f"context {_shown(current)}")
    if not cluster_name:
        raise InvalidKubeconfig(f"context {_shown(current)}: cluster", "is missing", "name the cluster there")
    cluster = _of(_named(document, "clusters", "cluster"), "cluster", cluster_name)
    # A context without a user is one without a credential.
    user = _of(_named(document, "users", "user"), "user", user_name) if user_name else {}
    server = _server(cluster, f"cluster {_shown(cluster_name)}", allowances)
    return msgspec.structs.replace(server, **_credential(user, f"user {_shown(user_name)}"))


def with_token(data: bytes, token: str) -> bytes:
    """The kubeconfig (as JSON) with another token for the user of its current context, and all else as it is.

    Raises InvalidKubeconfig, also for one that has no token so far.
    """
    before = read_kubeconfig(data, _ANYTHING)
    document = dict(_document(data))
    contexts = _named(document, "contexts", "context")
    current = document.get("current-context") or next(iter(contexts))
    user = contexts[current].get("user")
    if not before.token or not user:
        raise InvalidKubeconfig("the kubeconfig", "has no token", "there is nothing to put another one in place of")
    entries = [dict(entry) for entry in document["users"]]
    entry = next(entry for entry in entries if entry["name"] == user)
    entry["user"] = {**entry["user"], "token": token}
    made = msgspec.json.encode({**document, "users": entries})
    # Nothing but the token may ever come out differently.
    if read_kubeconfig(made, _ANYTHING) != msgspec.structs.replace(before, token=token):
        raise InvalidKubeconfig("the kubeconfig", "cannot be written as it was read", "write it again by hand")
    return made


def in_cluster(environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> ApiServer:
    """The API server of the cluster this process runs in, by its pod's service account.

    Raises InvalidKubeconfig if this is no pod, or one without a service account token.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise InvalidKubeconfig(
            "KUBERNETES_SERVICE_HOST", "is not set: this is no pod", "name a kubeconfig or a directory as the source"
        )
    token_file = service_account / "token"
    try:
        ca_data = (service_account / "ca.crt").read_text("ascii")
        read_token(token_file)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidKubeconfig(
            str(service_account),
            f"cannot be read: {reason}",
            "set automountServiceAccountToken or mount a projected token there",
        ) from None
    bracketed = f"[{host}]" if ":" in host else host
    return ApiServer(server=f"https://{bracketed}:{port}", ca_data=ca_data, token_file=str(token_file))


def read_token(path: Path) -> str:
    """The token in a file that somebody keeps up to date; raises OSError, or InvalidKubeconfig for what is none."""
    return _checked_token(path.read_bytes().decode("ascii", "replace"), str(path))


def _document(data: bytes) -> Mapping[str, Any]:
    if len(data) > MOST_BYTES:
        raise InvalidKubeconfig("the kubeconfig", f"is longer than {MOST_BYTES} bytes", "leave out what is not needed")
    try:
        values = [document.value for document in documents(data.decode(), _MOST_VALUES)]
    except UnicodeDecodeError:
        raise InvalidKubeconfig("the kubeconfig", "is no UTF-8 text", "give the text of the file") from None
    except UnreadableText as error:
        # What the reader says of a text may quote it, and this one holds credentials.
        raise InvalidKubeconfig("the kubeconfig", f"is no YAML at line {error.line}", "correct that line") from None
    values = [value for value in values if value is not None]
    if len(values) != 1 or not isinstance(values[0], Mapping):
        raise InvalidKubeconfig("the kubeconfig", "is no single YAML mapping", "give one object of kind Config")
    kind, version = values[0].get("kind", "Config"), values[0].get("apiVersion", "v1")
    if (kind, version) != ("Config", "v1"):
        raise InvalidKubeconfig("the kubeconfig", "is of another kind", "give an object of kind Config, apiVersion v1")
    return values[0]


def _named(document: Mapping[str, Any], field: str, inner: str) -> dict[str, Mapping[str, Any]]:
    """The entries of a list of the kubeconfig by name; of entries of one name the first counts, as for kubectl."""
    entries = document.get(field)
    if entries is None:
        return {}
    if not isinstance(entries, list):
        raise InvalidKubeconfig(field, "is no list", "write a list of names and values")
    named: dict[str, Mapping[str, Any]] = {}
    for index, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, Mapping) else None
        value = (entry.get(inner) or {}) if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or not isinstance(value, Mapping):
            raise InvalidKubeconfig(f"{field}[{index}]", f"is no name with a {inner}", f"give it name and {inner}")
        named.setdefault(name, value)
    return named


def _of(entries: Mapping[str, Mapping[str, Any]], what: str, name: str) -> Mapping[str, Any]:
    if name not in entries:
        raise InvalidKubeconfig(f"{what} {_shown(name)}", "is named but not defined", f"add it to {what}s")
    return entries[name]


def _text(values: Mapping[str, Any], field: str, place: str) -> str:
    value = values.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidKubeconfig(f"{place}: {field}", "is no text", "put it in quotes")
    return value


def _flag(values: Mapping[str, Any], field: str, place: str) -> bool:
    value = values.get(field)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidKubeconfig(f"{place}: {field}", "is neither true nor false", "write true or false")


def _server(cluster: Mapping[str, Any], place: str, allowances: Allowances) -> ApiServer:
    if cluster.get("certificate-authority"):
        raise InvalidKubeconfig(
            f"{place}: certificate-authority", "would open a file", _OPENS_A_FILE.format("certificate-authority-data")
        )
    url = _url(_text(cluster, "server", place), f"{place}: server", ("https", "http"))
    if url.scheme == "http" and not allowances.plain_http:
        raise InvalidKubeconfig(f"{place}: server", "is plain http", "use https, or allow plain http in the settings")
    ca_data = _pem(cluster, "certificate-authority-data", place)
    insecure = _flag(cluster, "insecure-skip-tls-verify", place)
    if insecure and not allowances.insecure_skip_tls_verify:
        raise InvalidKubeconfig(
            f"{place}: insecure-skip-tls-verify",
            "would let anyone be the API server",
            "give certificate-authority-data, or allow it in the settings",
        )
    if insecure and ca_data:
        raise InvalidKubeconfig(
            f"{place}: insecure-skip-tls-verify", "contradicts certificate-authority-data", "leave out one of the two"
        )
    name = _text(cluster, "tls-server-name", place)
    if name and objection(name) == "is no host name":
        raise InvalidKubeconfig(f"{place}: tls-server-name", "is no host name", "give the name in the certificate")
    proxy = _text(cluster, "proxy-url", place)
    if proxy:
        if not allowances.proxy_url:
            raise InvalidKubeconfig(
                f"{place}: proxy-url", "would send everything through a proxy", "remove it, or allow it in the settings"
            )
        proxy = _url(proxy, f"{place}: proxy-url", ("http", "https")).geturl()
    return ApiServer(
        server=url.geturl().rstrip("/"), ca_data=ca_data, tls_server_name=name, proxy_url=proxy, insecure=insecure
    )


def _credential(user: Mapping[str, Any], place: str) -> dict[str, str]:
    for field, (cause, cure) in _REFUSED_IN_USERS.items():
        if user.get(field):
            raise InvalidKubeconfig(f"{place}: {field}", cause, cure)
    token = _text(user, "token", place)
    certificate, key = _pem(user, "client-certificate-data", place), _pem(user, "client-key-data", place)
    if bool(certificate) != bool(key):
        missing = "client-key-data" if certificate else "client-certificate-data"
        raise InvalidKubeconfig(f"{place}: {missing}", "is missing", "give certificate and key, or neither")
    return {
        "token": _checked_token(token, f"{place}: token") if token else "",
        "client_certificate": certificate,
        "client_key": key,
    }


def _checked_token(token: str, place: str) -> str:
    token = token.strip()
    if not _TOKEN.fullmatch(token):
        # It goes into a header: a line break in it would begin another one.
        raise InvalidKubeconfig(place, "is no token", "give visible ASCII characters without spaces")
    return token


def _pem(values: Mapping[str, Any], field: str, place: str) -> str:
    encoded = _text(values, field, place)
    if not encoded:
        return ""
    if len(encoded) > MOST_PEM:
        raise InvalidKubeconfig(f"{place}: {field}", f"is longer than {MOST_PEM} bytes", "leave out what is not needed")
    try:
        text = b64decode("".join(encoded.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise InvalidKubeconfig(f"{place}: {field}", "is no base64 of PEM", "encode the PEM text in base64") from None
    if "-----BEGIN " not in text or "\0" in text:
        raise InvalidKubeconfig(f"{place}: {field}", "is no PEM", "encode the PEM text in base64")
    return text


def _url(given: str, place: str, schemes: tuple[str, ...]) -> SplitResult:
    """A URL that may be dialled. Its text is not shown: people put passwords into URLs."""
    if not given:
        raise InvalidKubeconfig(place, "is missing", "give the URL of the API server, https://host:port")
    try:
        if not given.isascii() or not given.isprintable() or " " in given or "\\" in given:
            raise ValueError
        url = urlsplit(given)
        host, port = url.hostname, url.port
    except ValueError:
        raise InvalidKubeconfig(place, "is no URL", "write https://host:port") from None
    if url.scheme not in schemes:
        raise InvalidKubeconfig(place, "is no URL of a scheme that is read", f"begin it with {schemes[0]}://")
    if not host or port == 0:
        raise InvalidKubeconfig(place, "names no host and port", "write https://host:port")
    if "@" in url.netloc or url.query or url.fragment or "?" in given or "#" in given:
        raise InvalidKubeconfig(
            place, "has more than host, port and path", "remove user, password, query and fragment from it"
        )
    if ".." in url.path or "%" in url.path or "//" in url.path:
        raise InvalidKubeconfig(place, "has a path that is not plain", "write the path without escapes, '//' and '..'")
    wrong = objection(host)
    if wrong:
        raise InvalidKubeconfig(place, f"names a host that {wrong}", "give the address of the API server")
    return url


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:77]}...")
