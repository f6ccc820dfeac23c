"""Job completion time, JCT: how long a prompt takes by its length and by what of it is cached,
measured and fitted (paper 004, section 6.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from relquery.arrays import Floats, TokenIds
from relquery.config import EngineConfig
from relquery.engine.calibration import Progress
from relquery.engine.cost import non_negative
from relquery.engine.executor import Chunk, Clock, Executor, Segment
from relquery.engine.requests.request import Draw
from relquery.errors import ConfigError


class Timed(NamedTuple):
    """The measured seconds of a prompt of `length` tokens, `cached` of them in the cache."""

    length: int
    cached: int
    seconds: float


@dataclass(frozen=True, slots=True)
class JobTime:
    """Job completion time, JCT: the seconds that a prompt takes if it is computed alone.

    fixed: seconds of any prompt. per_token: seconds per token. per_cached: seconds saved per cached
    token. attention: seconds per token that another token attends to. A prompt of n tokens, c of
    them cached, has n - c uncached tokens that attend to c + (n - c) / 2 tokens each on average,
    together (n² - c²) / 2. So the JCT is the cost of the length minus what the cached tokens save,
    and requests with the same saving can be ranked by the cost of their lengths alone.
    """

    fixed: float = 0.0
    per_token: float = 1.0
    per_cached: float = 1.0
    attention: float = 0.0

    def __call__(self, length: float, cached: float) -> float:
        """Seconds of a prompt of `length` tokens, `cached` of them in the cache."""
        return self.alone(length) - self.saved(cached)

    def alone(self, length: float) -> float:
        """Seconds with nothing cached."""
        return self.fixed + self.per_token * length + self.attention * length**2 / 2

    def saved(self, cached: float) -> float:
        """Seconds that a prompt saves if its first tokens are cached."""
        return self.per_cached * cached + self.attention * cached**2 / 2


@dataclass(frozen=True, slots=True)
class JobTimeFit:
    """A fitted JobTime, and how well it and the proxy predict the measured times.

    proxy: Pearson's correlation of the seconds with the uncached tokens. fitted: with `job_time`.
    """

    job_time: JobTime
    timed: tuple[Timed, ...]
    proxy: float
    fitted: float


def fit_job_time(timed: Sequence[Timed], *, attention: bool = True) -> JobTimeFit:
    """Least squares without negative slopes: more tokens never take less time, and more cached
    tokens never take more.

    attention: include its term; otherwise linear in both, as in paper 004.

    Raises ValueError for fewer than four measurements.
    """
    if len(timed) < 4:
        raise ValueError(f"a fit needs at least 4 prompts, got {len(timed)}")
    length, cached, seconds = np.array(timed, np.float64).T
    ones = np.ones_like(length)
    columns = [ones, -ones, length, -cached]  # what any prompt takes may have either sign
    if attention:
        columns.append((length**2 - cached**2) / 2)
    table = np.stack(columns, axis=1)
    usual = seconds.mean()
    coefficients = non_negative(table / usual, seconds / usual)
    above, below, *slopes = coefficients.tolist()
    return JobTimeFit(
        JobTime(above - below, *slopes),
        tuple(timed),
        proxy=pearson(seconds, length - cached),
        fitted=pearson(seconds, table @ coefficients),
    )


def pearson(one: Floats, other: Floats) -> float:
    """Pearson's correlation coefficient; 0 if one of the two does not vary."""
    one, other = one - one.mean(), other - other.mean()
    spread = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / spread if spread else 0.0


GRAIN = 1_000  # tokens between two lengths, as in the paper
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
        list(_of_prompt(rng.integers(0, vocabulary, length).astype(np.int32), cached, at_once))
        for length, cached in pairs
    ]
    # Each pass runs all prompts: if the machine is slow for a minute, that affects all of them.
    # The first pass is a warm-up.
    runs: list[list[float]] = [[] for _ in pairs]
    for number in range(repeats + 1):
        for index, chunks in enumerate(prompts):
            begin = clock.now()
            for chunk in chunks:
                executor.execute([chunk])
            runs[index].append(clock.now() - begin)
            if progress is not None:
                progress("prompts", number * len(pairs) + index + 1, (repeats + 1) * len(pairs))
    timed = [Timed(*pair, median(each[1:])) for pair, each in zip(pairs, runs, strict=True)]
    return fit_job_time(timed, attention=attention)


def grid(longest: int) -> Iterator[tuple[int, int]]:
    """(length, cached) tokens: multiples of a grain chosen to give enough lengths."""
    grain = max(min(GRAIN, longest // FEWEST), longest // MOST, 1)
    for length in range(grain, longest + 1, grain):
        for cached in range(0, length, grain):
            yield length, cached


def _of_prompt(tokens: TokenIds, cached: int, at_once: int) -> Iterator[Chunk]:
    """What the engine would compute of a prompt, step by step."""
    for start in range(cached, len(tokens), at_once):
        stop = min(start + at_once, len(tokens))
        context = (Segment(np.arange(start)),) if start else ()
        draw = Draw() if stop == len(tokens) else None
        yield Chunk(0, tokens[start:stop], start, context, np.arange(start, stop), draw)
