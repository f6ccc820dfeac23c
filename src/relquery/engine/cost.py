"""What steps and prompts cost: linear models, how they are fitted, job times (paper 004, §6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from relquery.arrays import Floats


@dataclass(frozen=True, slots=True)
class LinearCost:
    """Seconds of one step, linear in its work (paper 003, eq. 9, with a term for the context).

    prefill_slope: per prompt token computed; prefill_intercept: per step that computes prompts.
    decode_slope: per request that decodes a token; decode_intercept: per step that decodes. A step
    that does both reads the weights once, so only the larger of the two intercepts counts.
    context_slope: per cached token that a request attends to.
    """

    prefill_slope: float = 1e-4
    prefill_intercept: float = 0.02
    decode_slope: float = 2e-4
    decode_intercept: float = 0.02
    context_slope: float = 0.0

    def seconds(
        self, prefill_tokens: float, decode_requests: int, context_tokens: int = 0
    ) -> float:
        """Predicted duration of a step."""
        return (
            self.prefill_slope * prefill_tokens
            + self.decode_slope * decode_requests
            + max(
                self.prefill_intercept if prefill_tokens else 0.0,
                self.decode_intercept if decode_requests else 0.0,
            )
            + self.context_slope * context_tokens
        )


TRUSTED = 0.8
"""The lowest R² at which a cost model is useful."""


@dataclass(frozen=True, slots=True)
class Step:
    """A measured step: its work, and the seconds it took."""

    prefill_tokens: int
    decode_requests: int
    context_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted cost model. steps: the fitted steps. r2: on those. held_out: R² on other steps."""

    cost: LinearCost
    steps: int
    r2: float
    held_out: float | None = None


def fit(steps: Sequence[Step], held_out: Sequence[Step] = ()) -> Fit:
    """Fit steps that only compute prompts, and steps that only decode (paper 003, eq. 9).

    Relative errors are minimised, so short steps are predicted as well as long ones. No parameter
    is negative. Steps of both kinds belong in `held_out`: the model has no parameter for them.

    Raises ValueError if one kind has fewer than three steps.
    """
    prefill = [step for step in steps if step.prefill_tokens and not step.decode_requests]
    decode = [step for step in steps if step.decode_requests and not step.prefill_tokens]
    if min(len(prefill), len(decode)) < 3:
        raise ValueError("a fit needs three steps that compute prompts and three that decode")
    rows = [[each.prefill_tokens, 1, 0, 0, each.context_tokens] for each in prefill]
    rows += [[0, 0, each.decode_requests, 1, each.context_tokens] for each in decode]
    seconds = np.array([step.seconds for step in [*prefill, *decode]])
    found = non_negative(np.array(rows, np.float64) / seconds[:, None], np.ones(len(seconds)))
    result = Fit(LinearCost(*found.tolist()), len(rows), 0.0)
    return replace(
        result,
        r2=r_squared(result.cost, [*prefill, *decode]),
        held_out=r_squared(result.cost, held_out) if held_out else None,
    )


def r_squared(cost: LinearCost, steps: Sequence[Step]) -> float:
    """Share of the variance of the steps' seconds that the model explains."""
    measured = np.array([step.seconds for step in steps])
    predicted = np.array(
        [
            cost.seconds(step.prefill_tokens, step.decode_requests, step.context_tokens)
            for step in steps
        ]
    )
    spread = float(((measured - measured.mean()) ** 2).sum())
    missed = float(((measured - predicted) ** 2).sum())
    return 1.0 - missed / spread if spread else float(missed == 0)


def non_negative(rows: Floats, values: Floats) -> Floats:
    """Least squares whose solution has no negative entry: Lawson and Hanson's active set."""
    columns = rows.shape[1]
    scale = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
    scaled = rows / scale
    solution, free = np.zeros(columns), np.zeros(columns, np.bool_)
    for _ in range(3 * columns):
        pull = scaled.T @ (values - scaled @ solution)
        pull[free] = -np.inf
        if free.all() or pull.max() <= 1e-10:
            break
        free[pull.argmax()] = True
        while True:
            trial = np.zeros(columns)
            trial[free] = np.linalg.lstsq(scaled[:, free], values, rcond=None)[0]
            if (trial[free] > 0).all():
                solution = trial
                break
            over = free & (trial <= 0)
            step = (solution[over] / (solution[over] - trial[over])).min()
            solution += step * (trial - solution)
            free &= solution > 1e-15
            solution[~free] = 0.0
    return np.asarray(solution / scale, np.float64)


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
