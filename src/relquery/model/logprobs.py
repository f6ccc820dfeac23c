"""How likely the model finds the tokens that are drawn, whatever they are drawn with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from relquery.engine.executor import NOT_FINITE
from relquery.prompt import TokenLogprob

ROWS_AT_ONCE = 16


def token_logprobs(
    logits: Tensor, tokens: Sequence[int], counts: Sequence[int]
) -> list[TokenLogprob | int]:
    """Each row's token with its log-probability and the likeliest tokens; or NOT_FINITE, also where
    the row has a number that is not finite among those that the token was not chosen from.

    logits: (rows, vocabulary), as the network gives them. tokens: (rows,) ids, or NOT_FINITE.
    counts: (rows,) how many of the likeliest. Logits are copied in float64, so few rows are done at
    a time.
    """
    found: list[TokenLogprob | int] = []
    for start in range(0, len(tokens), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        found += _of_some(logits[some].double(), tokens[some], counts[some])
    return found


def _of_some(
    logits: Tensor, tokens: Sequence[int], counts: Sequence[int]
) -> list[TokenLogprob | int]:
    at = torch.tensor(tokens, device=logits.device).clamp(min=0)
    totals = logits.logsumexp(-1, keepdim=True)
    logs = (logits.gather(1, at[:, None]) - totals)[:, 0].tolist()
    is_whole = totals[:, 0].isfinite().tolist()
    tops = _likeliest(logits, totals, max(counts))
    return [
        TokenLogprob(token, log, top[:count]) if whole and token != NOT_FINITE else NOT_FINITE
        for token, log, whole, top, count in zip(tokens, logs, is_whole, tops, counts, strict=True)
    ]


def _likeliest(logits: Tensor, totals: Tensor, most: int) -> list[tuple[tuple[int, float], ...]]:
    """Ids and log-probabilities of each row's likeliest tokens; of equal ones the first come first,
    as they do where one is drawn."""
    most = min(most, logits.shape[1])
    if most == 0:
        return [()] * len(logits)
    least = logits.topk(most).values[:, -1:]  # which ones of equal logits it takes is not defined
    rows, ids = (logits >= least).nonzero(as_tuple=True)
    logs = (logits[rows, ids] - totals[rows, 0]).cpu().numpy()
    numbers, tokens = rows.cpu().numpy(), ids.cpu().numpy()
    order = np.lexsort((tokens, -logs, numbers))
    bounds = np.searchsorted(numbers, np.arange(len(logits) + 1)).tolist()
    places = [order[start:stop][:most] for start, stop in pairwise(bounds)]
    return [tuple(zip(tokens[at].tolist(), logs[at].tolist(), strict=True)) for at in places]
