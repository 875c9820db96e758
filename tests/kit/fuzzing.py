"""Fuzzing for as long as somebody has time: hypothesis, round after round, until the time is over.

`fuzz` is called inside a test. `ISTHMUS_FUZZ_SECONDS` is how long the tests of one module go on together (3 by default,
30 in CI, 600 at night). Rounds are seeded with their numbers, so that two runs of one commit try the same inputs and a
failure is the commit's; `ISTHMUS_FUZZ_SEED=random` tries others, as is done at night. An input that fails is shrunk and
shown, with the seed of its round: with that seed in `ISTHMUS_FUZZ_SEED` the same round runs alone. `bounded` runs a
parser and fails if it takes far more CPU than an event loop can spare, in three attempts out of three: what takes ten
times as long as it should grows with more than the length of its input. The limit is stretched on a machine that is
slow at the time.
"""

from __future__ import annotations

import gc
import json
import os
import time
import warnings
from collections.abc import Callable
from random import SystemRandom
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

T = TypeVar("T")

SECONDS = float(os.environ.get("ISTHMUS_FUZZ_SECONDS", "3"))
"""How long the tests of one module go on, together."""
MOST_SECONDS = 0.5
"""CPU that a parser may take for an input, for each megabyte of it that was begun: ten times what it does take."""
_SEED = os.environ.get("ISTHMUS_FUZZ_SEED", "")
_RANDOM = _SEED == "random"
_REFERENCE = b"[" + b"[0]," * 100_000 + b"0]"
_REFERENCE_SECONDS = 0.02
"""CPU that the standard library's reader of JSON takes for the reference, on a machine of today."""
_ROUND = 50
_PHASES = (Phase.explicit, Phase.generate, Phase.target, Phase.shrink)


def fuzz(check: Callable[..., object], *inputs: st.SearchStrategy[Any], share: float = 1.0) -> int:
    """Calls ``check`` with inputs, for this ``share`` of the module's time and at least one round; returns how often.

    Raises what `check` raises, for the smallest input found that makes it do so.
    """
    end = time.monotonic() + SECONDS * share
    calls = rounds = 0
    while True:
        rounds += 1
        number = SystemRandom().getrandbits(64) if _RANDOM else int(_SEED or rounds)

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
            with warnings.catch_warnings():
                # Else it is this that fails, in place of the input it wants to show.
                warnings.filterwarnings("ignore", "Generating overly large repr", HypothesisWarning)
                one_round()
        except BaseException as error:
            error.add_note(f"To run this round again: ISTHMUS_FUZZ_SEED={number}")
            raise
        if (_SEED and not _RANDOM) or time.monotonic() >= end:
            return calls


def bounded(call: Callable[[], T], size: int = 0) -> T:
    """The outcome of ``call``, which reads an input of ``size`` bytes; fails if it takes more CPU than it may."""
    most = MOST_SECONDS * max(1, -(-size >> 20))
    spent: list[float] = []
    while True:
        collecting = gc.isenabled()
        gc.disable()  # What a collection costs depends on what the other tests have left.
        begun = time.thread_time()
        outcome: T
        failure: Exception | None = None
        try:
            outcome = call()
        except Exception as error:  # noqa: BLE001 - raised below: a refusal has to be as quick as an answer.
            failure = error
        spent.append(time.thread_time() - begun)
        if collecting:
            gc.enable()
        if spent[-1] <= most or len(spent) == 3:
            break
    if spent[-1] > most:
        most *= _slowness()
        assert min(spent) <= most, (
            f"{min(spent) * 1000:.0f} ms of CPU for {size} bytes; {most * 1000:.0f} ms is the limit"
        )
    if failure is not None:
        raise failure
    return outcome


def _slowness() -> float:
    """How many times longer than a machine of today this one takes now; 1 at least."""
    begun = time.thread_time()
    json.loads(_REFERENCE)
    return max(1.0, (time.thread_time() - begun) / _REFERENCE_SECONDS)
