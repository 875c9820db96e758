"""The only place in the tests that polls: for what cannot be awaited, such as a counter inside another process's reach.

Prefer awaiting the event itself. A check that fails to come true says what it saw last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(check: Callable[[], T], deadline: float = 5.0, *, interval: float = 0.005) -> T:
    """Calls `check` until it returns something true, and returns that; AssertionErrors in between are tolerated.

    After `deadline` seconds the last AssertionError, or one that names the last value, is raised.
    """

    async def asked() -> T:
        return check()

    return await eventually_awaited(asked, deadline, interval=interval)


async def eventually_awaited(
    check: Callable[[], Awaitable[T]], deadline: float = 5.0, *, interval: float = 0.005
) -> T:
    """As `eventually`, for what has to be asked of another process."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline
    while True:
        failure: AssertionError | None = None
        value: object = None
        try:
            found = await check()
            if found:
                return found
            value = found
        except AssertionError as error:
            failure = error
        if loop.time() >= end:
            raise failure or AssertionError(f"still {value!r} after {deadline} s: {check!r}")
        await asyncio.sleep(interval)
