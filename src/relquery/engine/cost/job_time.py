"""How long a prompt takes, by its length and its cached tokens (paper 004, §6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from relquery.arrays import Floats
from relquery.engine.cost.fit import non_negative


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


def uncached_tokens(seconds: float = 1.0) -> JobTime:
    """The default proxy of paper 004: uncached tokens, times the given seconds per token."""
    return JobTime(0.0, seconds, seconds)


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
    one = np.ones_like(length)
    columns = [one, -one, length, -cached]  # what any prompt takes may have either sign
    if attention:
        columns.append((length**2 - cached**2) / 2)
    table = np.stack(columns, axis=1)
    usual = seconds.mean()
    found = non_negative(table / usual, seconds / usual)
    above, below, *slopes = found.tolist()
    return JobTimeFit(
        JobTime(above - below, *slopes),
        tuple(timed),
        proxy=pearson(seconds, length - cached),
        fitted=pearson(seconds, table @ found),
    )


def pearson(one: Floats, other: Floats) -> float:
    """Pearson's correlation coefficient; 0 if one of the two does not vary."""
    one, other = one - one.mean(), other - other.mean()
    spread = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / spread if spread else 0.0
