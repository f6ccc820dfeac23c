"""How likely each label is, from the probabilities that a server gives of an answer's first token.

That is the label's own where each label begins with another token. What the first token says of a
text with several tokens is not more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log
from typing import Any

MOST = 20
"""Likeliest tokens that are asked for."""
FEWER = 5
"""The same of a server that does not give so many."""
_SHARED = 0.01
"""What may go to tokens with which several labels begin, as a part of what goes to labels."""


def label_scores(logprobs: Any, labels: Sequence[str]) -> dict[str, float] | str:
    """Log-probability of each label among the labels, -inf if it is not among the likeliest
    tokens; or why that is not known.

    logprobs: see Said.
    """
    likeliest = _likeliest(logprobs)
    if likeliest is None:
        return (
            "The server gave no token probabilities (logprobs), so the labels have no scores. "
            "Use a model that gives them, or the embedded engine."
        )
    weights, shared = dict.fromkeys(labels, 0.0), 0.0
    for token, probability in likeliest:
        begun = [label for label in labels if token and label.strip().startswith(token)]
        if len(begun) == 1:
            weights[begun[0]] += probability
        elif begun:
            shared += probability
    total = sum(weights.values())
    if shared > _SHARED * (total + shared):
        return "Several labels begin with the same token. Give labels that begin differently."
    if total == 0:
        said = ", ".join(repr(token) for token, _ in likeliest[:3])
        return f"No label is among the likeliest first tokens, which are {said}."
    return {label: log(weight / total) if weight > 0 else -inf for label, weight in weights.items()}


def _likeliest(logprobs: Any) -> list[tuple[str, float]] | None:
    """The first token's alternatives without white space, and their probabilities."""
    try:
        found = logprobs[0]["top_logprobs"]
        return [(str(each["token"]).strip(), exp(min(0.0, each["logprob"]))) for each in found]
    except (LookupError, TypeError):
        return None
