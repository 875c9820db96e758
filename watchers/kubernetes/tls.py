"""TLS to API servers: the settings a kubeconfig asks for, and connections that hold less memory.

In: certificates and keys as text. Out: contexts for `session`. Keys never touch a disk.
"""

from __future__ import annotations

import os
import ssl
from asyncio import sslproto
from functools import lru_cache

from watchers.kubernetes.kubeconfig import ApiServer, InvalidKubeconfig

TLS_BUFFER = 32 * 1024
"""Bytes asyncio holds per TLS connection to read into, in place of 256 KiB: of all a cluster costs the largest part."""


def lower_tls_buffers(size: int = TLS_BUFFER) -> bool:
    """Makes every later TLS connection of asyncio hold a smaller buffer; whether that was possible.

    It is an attribute nobody promised. Where it is missing (another loop, a later Python) connections work as before.
    """
    present = getattr(sslproto.SSLProtocol, "max_size", None)
    if not isinstance(present, int):
        return False
    if present > size:
        sslproto.SSLProtocol.max_size = size
    return True


def tls_context(server: ApiServer) -> ssl.SSLContext:
    """The TLS settings for a server; raises InvalidKubeconfig if certificates or key cannot be used."""
    if not (server.insecure or server.ca_data or server.client_certificate):
        return _of_the_system()
    if server.insecure:
        # Nothing is verified, so no authorities have to be read either.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        try:
            context = ssl.create_default_context(cadata=server.ca_data or None)
        except (ssl.SSLError, ValueError):
            raise InvalidKubeconfig(
                "certificate-authority-data", "holds no certificate that can be read", "encode its PEM text in base64"
            ) from None
    _settle(context)
    if server.client_certificate:
        _load_pair(context, server.client_certificate, server.client_key)
    return context


def _settle(context: ssl.SSLContext) -> None:
    # Authorities of clusters seldom have all the extensions RFC 5280 asks for; kubectl does not insist either.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])


@lru_cache(1)
def _of_the_system() -> ssl.SSLContext:
    """The settings that trust the authorities of the system and show no certificate: 45 ms of reading, once."""
    context = ssl.create_default_context()
    _settle(context)
    return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """OpenSSL reads pairs from files alone: from one in memory that has no name and is gone afterwards."""
    file = os.memfd_create("client-certificate")
    try:
        data = f"{certificate}\n{key}".encode()
        while data:
            data = data[os.write(file, data) :]
        # A key with a password would make OpenSSL ask for it at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{file}", password=_no_password)
    except (ssl.SSLError, ValueError):
        raise InvalidKubeconfig(
            "client-certificate-data", "and client-key-data are no pair that can be read", "give both without password"
        ) from None
    finally:
        os.close(file)


def _no_password() -> str:
    raise ValueError("the key has a password")
