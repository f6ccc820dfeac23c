"""The cost of steps: a linear model, and its fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    coefficients = non_negative(
        np.array(rows, np.float64) / seconds[:, None], np.ones(len(seconds))
    )
    result = Fit(LinearCost(*coefficients.tolist()), len(rows), 0.0)
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
