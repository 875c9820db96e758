"""Why a call ends: a gRPC status, and a message that names the cure.

Authentication, access, streams and the certificate authority raise a Refusal; the listener turns it into the status
of the call. The message travels to the peer and into its log, so it never holds a token or a key.
"""

from __future__ import annotations

from typing import Any, Final

import grpc

# Messages travel in an HTTP/2 header, and clients drop the whole status when headers grow beyond some 8 KiB.
LONGEST_MESSAGE: Final = 1024


class Refusal(Exception):
    """The call ends with `code`, a grpc.StatusCode, and `message`.

    Never with OK, for which there is no constructor below: a ztunnel reconnects after OK without any delay.
    """

    def __init__(self, code: Any, message: str) -> None:
        self.code: Final = code
        self.message: Final = message[:LONGEST_MESSAGE]
        super().__init__(f"{code.name}: {self.message}")


def unauthenticated(message: str) -> Refusal:
    """Nobody knows who calls: no credential, or one that is not accepted."""
    return Refusal(grpc.StatusCode.UNAUTHENTICATED, message)


def denied(message: str) -> Refusal:
    """It is known who calls, and that is not enough for what was asked."""
    return Refusal(grpc.StatusCode.PERMISSION_DENIED, message)


def invalid(message: str) -> Refusal:
    """What was sent is wrong in itself; sending it again will not help."""
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


def exhausted(message: str) -> Refusal:
    """A limit of this server is reached; the message names the limit."""
    return Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def unavailable(message: str) -> Refusal:
    """Not now: another replica, or a later attempt, will do."""
    return Refusal(grpc.StatusCode.UNAVAILABLE, message)


def late(message: str) -> Refusal:
    """The peer took longer than the server waits."""
    return Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, message)


def internal(message: str) -> Refusal:
    """A fault of this server, which its own log explains."""
    return Refusal(grpc.StatusCode.INTERNAL, message)


def unknown(message: str) -> Refusal:
    """What was asked for does not exist here."""
    return Refusal(grpc.StatusCode.NOT_FOUND, message)
