"""Fuzzing for as long as somebody has time: hypothesis, round after round with fresh seeds, until the time is over.

`fuzz` is called inside a test. `ISTHMUS_FUZZ_SECONDS` is how long the tests of one module go on together (3 by default,
30 in CI, 600 at night). An input that fails is shrunk and shown, with the seed of its round: with that seed in
`ISTHMUS_FUZZ_SEED` the same round runs alone. `bounded` runs a parser and fails if it takes far more CPU than an event
loop can spare, in three attempts out of three: what takes ten times as long as it should grows with more than the
length of its input, on whatever machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import SystemRandom
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

T = TypeVar("T")

SECONDS = float(os.environ.get("ISTHMUS_FUZZ_SECONDS", "3"))
"""How long the tests of one module go on, together."""
MOST_SECONDS = 0.5
"""CPU that a parser may take for an input, for each megabyte of it that was begun: ten times what it does take."""
_SEED = os.environ.get("ISTHMUS_FUZZ_SEED", "")
_ROUND = 50
_PHASES = (Phase.explicit, Phase.generate, Phase.target, Phase.shrink)


def fuzz(check: Callable[..., object], *inputs: st.SearchStrategy[Any], share: float = 1.0) -> int:
    """Calls ``check`` with inputs, for this ``share`` of the module's time and at least one round; returns how often.

    Raises what `check` raises, for the smallest input found that makes it do so.
    """
    end = time.monotonic() + SECONDS * share
    calls = 0
    while True:
        number = int(_SEED) if _SEED else SystemRandom().getrandbits(64)

        @seed(number)
        @settings(
            max_examples=_ROUND,
            deadline=None,
            database=None,
            derandomize=False,
            phases=_PHASES,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.tuples(*inputs))
        def one_round(given_input: tuple[Any, ...]) -> None:
            nonlocal calls
            calls += 1
            check(*given_input)

        try:
            one_round()
        except BaseException as error:
            error.add_note(f"To run this round again: ISTHMUS_FUZZ_SEED={number}")
            raise
        if _SEED or time.monotonic() >= end:
            return calls


def bounded(call: Callable[[], T], size: int = 0) -> T:
    """The outcome of ``call``, which reads an input of ``size`` bytes; fails if it takes more CPU than it may."""
    most = MOST_SECONDS * max(1, -(-size >> 20))
    spent: list[float] = []
    while True:
        begun = time.thread_time()
        outcome: T
        failure: Exception | None = None
        try:
            outcome = call()
        except Exception as error:  # noqa: BLE001 - raised below: a refusal has to be as quick as an answer.
            failure = error
        spent.append(time.thread_time() - begun)
        if spent[-1] <= most or len(spent) == 3:
            break
    assert spent[-1] <= most, f"{min(spent) * 1000:.0f} ms of CPU for {size} bytes; {most * 1000:.0f} ms are the limit"
    if failure is not None:
        raise failure
    return outcome
