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
"""Tokens of the longest prompt, under which times are mostly noise."""
FEWEST, MOST = 6, 16  # lengths on the grid, where the cache is small or large


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

    What lies in the cache is overwritten. vocabulary: token ids are below it. longest: tokens of
    the longest prompt, by default all that the cache holds. step_tokens: that one step computes of
    a prompt, by default those of the limits. attention: see fit_job_time. repeats: runs of each,
    of which the median counts, after one to warm up. progress: called with ("prompts", computed so
    far, in all).

    Raises ConfigError if no four prompts fit.
    """
    rng = np.random.default_rng(seed)
    most = min(longest or limits.cache_tokens, limits.cache_tokens)
    pairs = list(grid(most))
    if len(pairs) < 4:
        raise ConfigError(
            f"Prompts have {most} tokens at most, too few to time; raise cache_tokens to 8 or more."
        )
    at_once = step_tokens or limits.max_num_batched_tokens
    prompts = [
        list(_chunks(rng.integers(0, vocabulary, length).astype(np.int32), cached, at_once))
        for length, cached in pairs
    ]
    # All of them in each pass: where the machine is slow for a minute, all have their share of it.
    # The first pass warms up.
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
    """(length, cached) tokens: multiples of a grain, by which `longest` has some lengths."""
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
