"""What a decode step takes in Python: all but the native runtime, which computes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from benchmarks.engine.sizes import Sizes
from benchmarks.engine.worker import ours

CACHE_BYTES = 2**29


class Overhead(NamedTuple):
    """Seconds of a step, and those of them that it was not in the runtime; medians."""

    step: float
    outside: float


def measure_overhead(folder: Path, dtype: str, batch: int, sizes: Sizes, seed: int) -> Overhead:
    """Decode that many requests, as the comparison with vLLM does."""
    from relquery.engine.loop import Loop
    from relquery.model.native_runtime import NativeExecutor

    run, forget = ours(str(folder), dtype, CACHE_BYTES)
    random = np.random.default_rng(seed)
    prompts = random.integers(10, sizes.vocabulary, (batch, sizes.start)).tolist()
    steps: list[Overhead] = []
    within = 0.0

    def computing(function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            nonlocal within
            begin = perf_counter()
            result = function(*arguments)
            within += perf_counter() - begin
            return result

        return timed

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            nonlocal within
            within, begin = 0.0, perf_counter()
            result = function(*arguments)
            seconds = perf_counter() - begin
            steps.append(Overhead(seconds, seconds - within))
            return result

        return timed

    with (
        patch.object(NativeExecutor, "_run", computing(NativeExecutor._run)),
        patch.object(Loop, "step", stepping(Loop.step)),
    ):
        for _ in range(3):  # the first warms up
            forget()
            steps.clear()
            run(prompts, sizes.steps)
    return Overhead(median(each.step for each in steps), median(each.outside for each in steps))
