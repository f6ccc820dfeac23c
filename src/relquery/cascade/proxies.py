"""Probabilities from a proxy's scores: probabilities fitted to labels, and a head on embeddings."""

from __future__ import annotations

import numpy as np

from relquery.arrays import Bools, Floats

_STEPS = 25
_SURE = 1e-6
"""Scores nearer to 0 or 1 are taken as this near."""
_FAR = 8.0
"""Standard deviations beyond which a feature says no more."""


def fit_logistic(features: Floats, yes: Bools, ridge: float, prior: Floats | None = None) -> Floats:
    """The weights (features,) of a logistic regression, by Newton's method.

    features: (rows, features), the first column 1. ridge: pulls each weight to the prior (0 by
    default), the first one hardly.
    """
    start = np.zeros(features.shape[1]) if prior is None else prior
    pull = np.full(len(start), ridge)
    pull[0] = min(ridge, 0.1)
    weights = start.astype(np.float64)
    for _ in range(_STEPS):
        chance = _logistic(features @ weights)
        curvature = features.T @ (features * (chance * (1 - chance) + 1e-9)[:, None])
        slope = features.T @ (yes - chance) - pull * (weights - start)
        move = np.linalg.solve(curvature + np.diag(pull), slope)
        weights = weights + np.clip(move, -2, 2)
        if float(np.abs(move).max()) < 1e-6:
            break
    return weights


def calibrate(scores: Floats, labelled: Bools, yes: Bools) -> Floats:
    """How likely yes is for each row, (rows,), where labels of some rows are known.

    A logistic curve over the scores' logits and ranks. It decides how many rows are drawn, and has
    no part in what is guaranteed. yes: read where `labelled`.
    """
    features = _features(scores)
    share = (float(yes[labelled].sum()) + 0.5) / (int(labelled.sum()) + 1)
    prior = np.array([np.log(share / (1 - share)), 0.5, 0.5])
    fitted = fit_logistic(features[labelled], yes[labelled], 0.3, prior)
    return _logistic(features @ fitted)


def fit_head(vectors: Floats, labelled: Bools, yes: Bools) -> Floats:
    """Scores (rows,) of a logistic head on embeddings (rows, dimensions), trained on some labels.

    NaN for rows whose vector has a NaN.
    """
    whole = np.isfinite(vectors).all(axis=1)
    known = labelled & whole
    scores = np.full(len(vectors), np.nan)
    if not known.any():
        return scores
    spread = vectors[whole].std(axis=0)
    scaled = (vectors - vectors[whole].mean(axis=0)) / np.where(spread > 0, spread, 1)
    features = np.concatenate([np.ones((len(vectors), 1)), scaled], axis=1)
    weights = _dual_logistic(features[known], yes[known])
    scores[whole] = _logistic(features[whole] @ weights)
    return scores


def certainty(scores: Floats) -> Floats:
    """How sure a proxy is of its answer, yes from 0.5 on. scores: of yes, 0 to 1."""
    return np.maximum(scores, 1 - scores)


def _dual_logistic(features: Floats, yes: Bools) -> Floats:
    """A head of many dimensions over few rows: the regression in the space that the rows span."""
    _, values, axes = np.linalg.svd(features[:, 1:], full_matrices=False)
    kept = axes[values > 1e-9 * max(float(values.max(initial=0.0)), 1e-300)]
    small = np.concatenate([np.ones((len(features), 1)), features[:, 1:] @ kept.T], axis=1)
    weights = fit_logistic(small, yes, float(features.shape[1]) / 4)
    return np.concatenate([weights[:1], weights[1:] @ kept])


def _features(scores: Floats) -> Floats:
    low, high = float(scores.min(initial=0.0)), float(scores.max(initial=1.0))
    unit = scores if low >= 0 and high <= 1 else (scores - low) / max(high - low, 1e-300)
    inside = np.clip(unit, _SURE, 1 - _SURE)
    logits = np.log(inside) - np.log1p(-inside)
    deviation = float(logits.std()) or 1.0
    scaled = np.clip((logits - logits.mean()) / deviation, -_FAR, _FAR)
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    middle = (np.cumsum(count) - count / 2)[place] / max(len(scores), 1)
    return np.stack([np.ones(len(scores)), scaled, 3 * middle - 1.5], axis=1)


def _logistic(logits: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))))
