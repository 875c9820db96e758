"""What an operator's own kubeconfig may do: apply manifests, and have tokens made. For the command line alone.

In: a kubeconfig that is trusted, as kubectl trusts it: it may start programs and open files, so the official client
reads it. Nothing of it ever comes from a cluster; what does is read in `kubeconfig`. Out: requests to its API server,
how others reach that server, and Refusals with a cure. No message shows a credential.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import aiohttp
import msgspec
import yaml
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.config import ConfigException

from watchers.kubernetes.remote_secret import Reach
from watchers.reader_role import RBAC, Manifest

FIELD_MANAGER = "isthmus-create-remote-secret"

Trouble = Literal["kubeconfig", "unreachable", "timeout", "refused"]

_PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}


_CURES = {
    401: "log in again: the credential of this context is not accepted",
    403: f"use a context that may (to write roles: one of {RBAC} cluster-admin)",
    409: "another tool keeps this object: leave it as it is, and use --rotate, which only makes a token",
}


class Refusal(Exception):
    """Something could not be done; the message says what, why and what to do. ``status`` is that of HTTP, or 0."""

    def __init__(self, trouble: Trouble, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.status = status


class Token(msgspec.Struct, frozen=True):
    """A token and when it expires, in seconds of Unix time."""

    text: str
    expires: float

    def __repr__(self) -> str:
        return f"Token(expires={self.expires})"


class Operator:
    """An API server, asked with the rights of a context of an operator's kubeconfig."""

    def __init__(self, api: client.ApiClient, reach: Reach, *, seconds: float) -> None:
        self.reach = reach
        self._api = api
        self._seconds = seconds

    async def apply(self, manifest: Manifest) -> None:
        """Applies a manifest on the server's side. Fields of other managers stay theirs: that is a Refusal."""
        kind, named = manifest["kind"], manifest["metadata"]
        where = f"/namespaces/{quote(named['namespace'], safe='')}" if "namespace" in named else ""
        version = manifest["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        path = f"{root}{where}/{_PLURALS[kind]}/{quote(named['name'], safe='')}"
        await self._ask(
            f"apply {kind} {named['name']}",
            "PATCH",
            path,
            manifest,
            query=[("fieldManager", FIELD_MANAGER)],
            content_type="application/apply-patch+yaml",
        )

    async def create_token(self, namespace: str, account: str, seconds: float) -> Token:
        """A new token of a service account, for the API server itself; the server may grant less time."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": int(seconds)},
        }
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(account, safe='')}/token"
        answer = await self._ask(f"create a token of ServiceAccount {namespace}/{account}", "POST", path, body)
        status = answer.get("status") or {}
        token, expires = status.get("token"), status.get("expirationTimestamp")
        if not isinstance(token, str) or not isinstance(expires, str):
            raise Refusal("refused", f"{self.reach.server} answers a TokenRequest without a token; see its log")
        return Token(token, datetime.fromisoformat(expires).timestamp())

    async def get(self, what: str, path: str, query: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body of the answer to a GET request, whatever they are; ``what`` says what it is for."""
        with self._reaching(what):
            async with asyncio.timeout(self._seconds):
                answer = await self._api.call_api(
                    path,
                    "GET",
                    query_params=list((query or {}).items()),
                    header_params={"Accept": "application/json"},
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=self._seconds,
                )
                async with answer:
                    return int(answer.status), bytes(await answer.read())

    @asynccontextmanager
    async def connect(
        self, what: str, path: str, query: Mapping[str, str], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket to the API server, which ends with the time of one request."""
        rest, headers = self._api.rest_client, dict(self._api.default_headers)
        with self._reaching(what):
            async with asyncio.timeout(self._seconds):
                await self._api.update_params_for_auth(headers, [], ["BearerToken"])
                async with rest.pool_manager.ws_connect(
                    f"{self.reach.server}{path}",
                    params=query,
                    headers=headers,
                    protocols=(protocol,),
                    proxy=rest.proxy or None,
                    proxy_headers=rest.proxy_headers or None,
                    server_hostname=rest.server_hostname or None,
                ) as socket:
                    yield socket

    async def _ask(
        self,
        what: str,
        method: str,
        path: str,
        body: Manifest,
        *,
        query: list[tuple[str, str]] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        with self._reaching(what):
            answer = await self._api.call_api(
                path,
                method,
                query_params=query or [],
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
                response_types_map={200: "object", 201: "object"},
                _return_http_data_only=True,
                _request_timeout=self._seconds,
            )
        return answer if isinstance(answer, dict) else {}

    @contextmanager
    def _reaching(self, what: str) -> Iterator[None]:
        """Turns whatever keeps a request from a good answer into a Refusal."""
        server = self.reach.server
        try:
            yield
        except ApiException as error:
            raise _refused(what, error) from None
        except TimeoutError:
            raise Refusal(
                "timeout", f"cannot {what}: {server} has not answered within {self._seconds:g} s; try again"
            ) from None
        except aiohttp.WSServerHandshakeError as error:
            cure = _CURES.get(error.status, "check that the server of the context is the API server itself")
            said = f"cannot {what}: {server} answers {error.status}; {cure}"
            raise Refusal("refused", said, status=error.status) from None
        except (aiohttp.ClientError, OSError) as error:
            why = _reason(error)
            raise Refusal(
                "unreachable", f"cannot {what}: {server} is not reached: {why}; check the server of the context"
            ) from None


@asynccontextmanager
async def operator(kubeconfig: Path | None, context: str | None, *, seconds: float = 15.0) -> AsyncIterator[Operator]:
    """The API server of a context (the current one unless it is named) of this kubeconfig, or of the usual one:
    $KUBECONFIG or ~/.kube/config. Every request may take so many ``seconds``. Raises Refusal.
    """
    # It logs what it raises as well, and plugins' output with it.
    logging.getLogger("kubernetes_asyncio").addHandler(logging.NullHandler())
    logging.getLogger("kubernetes_asyncio").propagate = False
    paths = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"
    _check_context(paths, context)
    configuration = client.Configuration()
    try:
        async with asyncio.timeout(max(seconds, 60.0)):  # Plugins may ask a person to log in.
            await config.load_kube_config(
                paths, context=context, client_configuration=configuration, persist_config=kubeconfig is None
            )
        reach = Reach(
            server=configuration.host or "",
            ca_data=_ca_data(configuration.ssl_ca_cert),
            tls_server_name=configuration.tls_server_name or "",
            insecure=not configuration.verify_ssl,
            proxied=bool(configuration.proxy),
        )
        api = client.ApiClient(configuration)
    except TimeoutError:
        raise Refusal(
            "timeout", f"--kubeconfig: the program that logs in ({paths}) has not ended; run it once by hand"
        ) from None
    except ConfigException as error:
        raise Refusal("kubeconfig", f"--kubeconfig: {_config_problem(paths, error)}") from None
    except (OSError, ssl.SSLError, ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        # Of the text of these nothing is shown: it may quote the file.
        raise Refusal(
            "kubeconfig",
            f"--kubeconfig: {paths} cannot be used ({type(error).__name__}); check it with kubectl config view",
        ) from None
    async with api:
        yield Operator(api, reach, seconds=seconds)


def _check_context(paths: str, context: str | None) -> None:
    """What the client would report with the entry, credentials included, or with an assertion."""
    names: list[str] = []
    current: object = None
    found = [path for path in (Path(part).expanduser() for part in paths.split(os.pathsep) if part) if path.exists()]
    if not found:
        raise Refusal("kubeconfig", f"--kubeconfig: there is no {paths}; name the kubeconfig of the cluster to be read")
    for path in found:
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise Refusal("kubeconfig", f"--kubeconfig: {path} cannot be read: {reason}") from None
        except yaml.YAMLError:
            raise Refusal("kubeconfig", f"--kubeconfig: {path} is no YAML; check it with kubectl config view") from None
        if not isinstance(document, Mapping):
            raise Refusal("kubeconfig", f"--kubeconfig: {path} is no kubeconfig; give an object of kind Config")
        entries = document.get("contexts")
        names += [
            entry["name"]
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
        ]
        current = current or document.get("current-context")
    wanted = context or current
    known = f"name one of {', '.join(names)}" if names else "it has none at all"
    if not wanted:
        raise Refusal("kubeconfig", f"--context: {paths} has no current context; {known}")
    if wanted not in names:
        raise Refusal("kubeconfig", f"--context: there is no {wanted!r} in {paths}; {known}")


def _config_problem(paths: str, error: ConfigException) -> str:
    """What may be shown of it: the text of others quotes entries of the file."""
    text = str(error)
    if text.startswith(("exec: process returned", "exec: malformed request. missing", "File does not exist")):
        return f"{paths}: {text.splitlines()[0][:300]}; check that kubectl works with this context"
    return f"{paths} is incomplete or its login fails; check that kubectl works with this context"


def _ca_data(path: str | None) -> str:
    return b64encode(Path(path).read_bytes()).decode() if path else ""


def _refused(what: str, error: ApiException) -> Refusal:
    try:
        said = json.loads(error.body or "{}").get("message") or error.reason
    except (ValueError, AttributeError):
        said = error.reason
    cure = _CURES.get(error.status, "correct what it names")
    return Refusal("refused", f"cannot {what}: {said}; {cure}", status=error.status or 0)


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not accepted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    return getattr(error, "strerror", None) or type(error).__name__
