"""How long a prompt takes, by its length and what the cache has of it (paper 004, §6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from relquery.arrays import Floats
from relquery.engine.cost.fit import non_negative


class Timed(NamedTuple):
    """A prompt of `length` tokens, `cached` of them in the cache, took so many seconds."""

    length: int
    cached: int
    seconds: float


@dataclass(frozen=True, slots=True)
class JobTime:
    """Job completion time, JCT: the seconds that a prompt takes which is computed alone.

    fixed: of any. per_token: of a token, and per_cached: what less a cached one takes. attention:
    of a token that another attends to. A prompt of n tokens, c of them cached, has n - c others
    that attend to c + (n - c) / 2 each on average, together (n² - c²) / 2. So all of it is a sum
    of what the length costs and what the cached tokens save, and requests can be ranked by the
    first where they have the second in common.
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
        """Seconds by which the first tokens, being cached, shorten any prompt."""
        return self.per_cached * cached + self.attention * cached**2 / 2


def uncached_tokens(seconds: float = 1.0) -> JobTime:
    """The proxy that paper 004 takes by default: the tokens not cached, of so many seconds each."""
    return JobTime(0.0, seconds, seconds)


@dataclass(frozen=True, slots=True)
class JobTimeFit:
    """A fitted JobTime, and how well it and the proxy tell the times that were measured.

    proxy: Pearson's correlation of the seconds with the tokens not cached; fitted: with `job_time`.
    """

    job_time: JobTime
    timed: tuple[Timed, ...]
    proxy: float
    fitted: float


def fit_job_time(timed: Sequence[Timed], *, attention: bool = True) -> JobTimeFit:
    """Least squares, no slope negative: more tokens take no less time, more cached ones no more.

    attention: with its term; else linear in both, as in paper 004.

    Raises ValueError for fewer than four measurements.
    """
    if len(timed) < 4:
        raise ValueError("a fit needs four prompts")
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
    """Pearson's correlation coefficient; 0 where one of them does not vary."""
    one, other = one - one.mean(), other - other.mean()
    spread = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / spread if spread else 0.0
