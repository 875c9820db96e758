"""Reviews: questions that an API server answers by the status of an object that is created and never stored.

In: what is asked. Out: the status, or that nothing was decided. What an answer means is judged by whoever asks.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from watchers.kubernetes.events import refusal
from watchers.kubernetes.session import Broken, Sends

Status = TypeVar("Status")

_SECONDS = 5.0


class Undecided(Exception):
    """Nobody could be asked, or nobody answered: it says nothing of what was asked. ``ours``: we may not even ask."""

    def __init__(self, reason: str = "", *, ours: bool = False) -> None:
        super().__init__(reason)
        self.ours = ours


class _Review(msgspec.Struct, Generic[Status]):
    status: Status


async def review(requests: Sends, api_version: str, kind: str, spec: dict[str, Any], wanted: type[Status]) -> Status:
    """The status, of the type that is ``wanted``, that an API server gives a review; raises Undecided.

    No error quotes the spec, which may hold a token.
    """
    document = {"apiVersion": api_version, "kind": kind, "spec": spec}
    plural = f"{kind.lower()}s"
    try:
        reply = await requests.send(
            "POST", f"/apis/{api_version}/{plural}", {}, msgspec.json.encode(document), seconds=_SECONDS
        )
    except Broken as error:
        raise Undecided(str(error)) from None
    if reply.status not in (200, 201):
        said = str(refusal(reply.status, reply.body, reply.headers))
        ours = reply.status == 403
        raise Undecided(f"{said}; grant this process create on {plural}" if ours else said, ours=ours)
    try:
        return msgspec.json.decode(reply.body, type=_Review[wanted]).status  # type: ignore[valid-type]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Undecided(f"the answer is no {kind}") from None
