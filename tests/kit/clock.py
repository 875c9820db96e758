"""Time that passes only when everything waits: a day takes a test no longer than a millisecond.

Not for anything that talks to the outside: while gRPC or a socket is waited for, this clock runs ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import looptime

P = ParamSpec("P")


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs an async test in a loop of its own, whose clock starts at 0 and jumps from timer to timer."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(start=0)) as runner:
            runner.run(test(*args, **kwargs))

    return run
