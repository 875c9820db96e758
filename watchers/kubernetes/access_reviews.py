"""Whether service accounts may list the Secrets of their namespaces, asked of home's API server (SubjectAccessReview).

In: a Table of the accounts of which somebody needs to know. Out: a SecretAccess fact for each, gone with the account.
Yes counts for five minutes, no for one; then it is asked again. While nobody can be asked, what was answered last
stands for ten minutes, and after that the answer is no: an account whose rights were taken away would otherwise keep
them by keeping us from asking.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from watchers.facts.named import SecretAccess, access_key
from watchers.kubernetes.reviews import Undecided, review
from watchers.kubernetes.session import Sends
from watchers.sink import Cause, Facts

log = logging.getLogger(__name__)

ALLOWED = 300.0
"""Seconds for which yes counts."""
DENIED = 60.0
"""Seconds for which no counts."""
HONOURED = 600.0
"""Seconds for which the last answer stands while nobody can be asked, and for which one that never came is awaited."""
AT_ONCE = 8
"""Accounts that are asked about at the same time."""

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0
_SPREAD = 0.1
_LONGEST_REASON = 256


class Taken(Protocol):
    """What a cursor gives: accounts, None where nobody needs to know of one any more."""

    @property
    def changes(self) -> Mapping[tuple[str, str], object | None]:
        """The accounts that changed."""


class AccountCursor(Protocol):
    """A place in the Table of accounts."""

    def take(self) -> Taken:
        """What has changed since the last time."""

    def close(self) -> None:
        """It is not read any more."""


class Accounts(Protocol):
    """The Table of accounts: (namespace, name) -> anything."""

    def cursor(self, *, bell: Callable[[], None]) -> AccountCursor:
        """Rings the bell once there is something to take; at first that is all there is."""


class _Status(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class ReviewedAccount:
    """One account over time: what stands after every answer, and how many seconds until it is asked again (`pause`).

    Pure; moments are seconds of any clock that does not go back.
    """

    def __init__(self, now: float) -> None:
        self._allowed: bool | None = None
        self._asked = now
        self._failures = 0
        self.pause = 0.0

    def answered(self, allowed: bool, reason: str, now: float) -> SecretAccess:
        """The API server has decided."""
        self._allowed, self._asked, self._failures = allowed, now, 0
        self.pause = ALLOWED if allowed else DENIED
        return SecretAccess(allowed, "" if allowed else reason or "no role lets it list secrets")

    def undecided(self, error: Undecided, now: float) -> SecretAccess:
        """It has not."""
        self.pause = min(_FIRST_WAIT * 2 ** min(self._failures, 8), _LONGEST_WAIT)
        self._failures += 1
        reason = f"home cannot be asked what it may do: {error}"
        if now >= self._asked + HONOURED:
            return SecretAccess(False, reason)
        if self._allowed is None:
            # That we may not ask is for people to cure, and no news is to be expected before.
            return SecretAccess(False, reason, pending=not error.ours)
        return SecretAccess(self._allowed, reason)


class AccessReviews:
    """Reviews the accounts of a Table by one API server."""

    def __init__(
        self,
        accounts: Accounts,
        facts: Facts,
        requests: Sends,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._accounts = accounts
        self._facts = facts
        self._requests = requests
        self._chance = chance
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._trouble = ""

    async def run(self) -> None:
        """Reviews until cancelled."""
        bell = asyncio.Event()
        cursor = self._accounts.cursor(bell=bell.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    bell.clear()
                    for account, wanted in cursor.take().changes.items():
                        if wanted is None:
                            self._forget(account)
                        elif account not in self._tasks:
                            following = self._follow(*account)
                            self._tasks[account] = tasks.create_task(following, name=f"review {'/'.join(account)}")
                    await bell.wait()
        finally:
            cursor.close()
            self._tasks.clear()

    def _forget(self, account: tuple[str, str]) -> None:
        task = self._tasks.pop(account, None)
        if task is not None:
            task.cancel()
        self._facts.apply([(access_key(*account), None)])

    async def _follow(self, namespace: str, name: str) -> None:
        clock = asyncio.get_running_loop().time
        account, key = ReviewedAccount(clock()), access_key(namespace, name)
        told: SecretAccess | None = None
        while True:
            try:
                async with self._slots:
                    status = await self._ask(namespace, name)
            except Undecided as error:
                fact = account.undecided(error, clock())
                self._warn(str(error))
            else:
                fact = account.answered(status.allowed and not status.denied, status.reason[:_LONGEST_REASON], clock())
                self._trouble = ""
            if fact != told:
                self._facts.apply([(key, fact)], Cause(time.time_ns(), "access review", 1))
                told = fact
            await asyncio.sleep(account.pause * (1 + _SPREAD * self._chance()))

    async def _ask(self, namespace: str, name: str) -> _Status:
        spec = {
            "user": f"system:serviceaccount:{namespace}:{name}",
            # What its tokens would say: roles may be bound to these.
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": {"namespace": namespace, "verb": "list", "group": "", "resource": "secrets"},
        }
        return await review(self._requests, "authorization.k8s.io/v1", "SubjectAccessReview", spec, _Status)

    def _warn(self, cause: str) -> None:
        """Once for each trouble: every account meets it."""
        if cause != self._trouble:
            self._trouble = cause
            log.warning("access of gateways cannot be reviewed", extra={"cause": cause})
