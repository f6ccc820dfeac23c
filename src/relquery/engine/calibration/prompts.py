"""Measuring how long prompts take on an executor, by length and cached tokens (paper 004, §6.3)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from relquery.arrays import TokenIds
from relquery.config import EngineConfig
from relquery.engine.calibration.steps import Progress
from relquery.engine.clock import Clock
from relquery.engine.cost.job_time import JobTimeFit, Timed, fit_job_time
from relquery.engine.executor import Chunk, Executor, Segment
from relquery.engine.request.request import Draw
from relquery.errors import ConfigError

GRAIN = 1_000  # tokens between two lengths, as in the paper
LEAST = 64
"""Tokens of the longest prompt below which times are mostly noise."""
FEWEST, MOST = 6, 16  # number of lengths on the grid, for a small or a large cache


def measure_jct(
    executor: Executor,
    limits: EngineConfig,
    clock: Clock,
    *,
    vocabulary: int,
    longest: int | None = None,
    step_tokens: int | None = None,
    attention: bool = True,
    repeats: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> JobTimeFit:
    """Time prompts over a grid of (length, cached) tokens, one at a time, and fit their JobTime.

    The content of the cache is overwritten. vocabulary: token ids are below it. longest: tokens of
    the longest prompt, by default as many as the cache holds. step_tokens: prompt tokens computed
    in one step, by default from the limits. attention: see fit_job_time. repeats: timed runs of
    each prompt, after one warm-up run; their median is used. progress: called with ("prompts",
    computed so far, total).

    Raises ConfigError if fewer than four prompts fit.
    """
    rng = np.random.default_rng(seed)
    most = min(longest or limits.cache_tokens, limits.cache_tokens)
    pairs = list(grid(most))
    if len(pairs) < 4:
        raise ConfigError(
            f"Prompts can have at most {most} tokens, too few to time. Set cache_tokens to 8 or "
            "more."
        )
    at_once = step_tokens or limits.max_num_batched_tokens
    prompts = [
        list(_chunks(rng.integers(0, vocabulary, length).astype(np.int32), cached, at_once))
        for length, cached in pairs
    ]
    # Each pass runs all prompts: if the machine is slow for a minute, that affects all of them.
    # The first pass is a warm-up.
    runs: list[list[float]] = [[] for _ in pairs]
    for number in range(repeats + 1):
        for at, chunks in enumerate(prompts):
            begin = clock.now()
            for chunk in chunks:
                executor.execute([chunk])
            runs[at].append(clock.now() - begin)
            if progress is not None:
                progress("prompts", number * len(pairs) + at + 1, (repeats + 1) * len(pairs))
    timed = [Timed(*pair, median(each[1:])) for pair, each in zip(pairs, runs, strict=True)]
    return fit_job_time(timed, attention=attention)


def grid(longest: int) -> Iterator[tuple[int, int]]:
    """(length, cached) tokens: multiples of a grain chosen to give enough lengths."""
    grain = max(min(GRAIN, longest // FEWEST), longest // MOST, 1)
    for length in range(grain, longest + 1, grain):
        for cached in range(0, length, grain):
            yield length, cached


def _chunks(tokens: TokenIds, cached: int, at_once: int) -> Iterator[Chunk]:
    """What the engine would compute of a prompt, step by step."""
    for start in range(cached, len(tokens), at_once):
        stop = min(start + at_once, len(tokens))
        context = (Segment(np.arange(start)),) if start else ()
        draw = Draw() if stop == len(tokens) else None
        yield Chunk(0, tokens[start:stop], start, context, np.arange(start, stop), draw)
