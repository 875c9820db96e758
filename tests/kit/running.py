"""Something that runs until it is cancelled, at work while a context is open; if it has failed, that fails the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """The context in which it runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
