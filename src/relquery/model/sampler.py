"""Turning logits into token ids, greedy or sampled, free or restricted; or into token weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import cast

import numpy as np
import numpy.typing as npt

from relquery.arrays import Int64s, Words
from relquery.engine.executor import NOT_FINITE, Drawn, Failure
from relquery.engine.requests.request import Draw, History
from relquery.model.grammar import ids_of, masks
from relquery.prompt import TokenLogprob

Rows = npt.NDArray[np.float32]
COLDEST, HOTTEST = 1e-30, 1e30  # temperatures that float32 can tell apart from 0 and infinity
FEW = 1_024
"""Allowed tokens that are picked out of a row; if there are more, the others are hidden."""
_TINY, _NEARLY_ONE = np.finfo(np.float32).tiny, 1 - 2**-24


@dataclass(frozen=True, slots=True)
class Logits:
    """The logits that tokens are drawn from.

    largest: (rows,) the token of each row's largest logit, the first of several, or NOT_FINITE.
    row: gives one, (vocabulary,) in float32, which takes time and memory; nobody writes to it.
    """

    largest: Int64s
    row: Callable[[int], Rows]


def follow_draws(logits: Logits, draws: Sequence[Draw]) -> list[Drawn]:
    """The result of each row's draw: a token id, also with log-probabilities, the weights of
    the allowed tokens, NOT_FINITE, or what the draw raised.

    A row's result depends only on its own logits and draw.
    """
    if are_plain(draws):
        return list(logits.largest.tolist())
    results: list[Drawn] = []
    try:
        greedy = _largest_allowed(logits, draws)
    except Exception:  # of which row, only its own draw tells
        greedy = None
    for row, draw in enumerate(draws):
        try:
            alone = greedy if greedy is not None else _largest_allowed(logits, draws, row)
            results.append(_follow(logits, row, draw, alone))
        except Exception as error:
            results.append(Failure(error))
    return results


def _follow(logits: Logits, row: int, draw: Draw, greedy: Mapping[int, int]) -> Drawn:
    if draw.weigh:
        weights = _weigh(logits.row(row), draw)
        return NOT_FINITE if any(map(isnan, weights)) else weights
    if row in greedy and draw.history is None:
        token = greedy[row]
    elif _is_restricted(draw):
        token = _draw(logits.row(row), draw)
    else:
        token = int(logits.largest[row])
    return token if draw.logprobs is None else _told(logits.row(row), token, draw.logprobs)


def are_plain(draws: Sequence[Draw]) -> bool:
    """Whether each draw is of the likeliest of all tokens, and returns nothing but it."""
    return not any(
        _is_restricted(draw) or draw.weigh or draw.logprobs is not None for draw in _kinds(draws)
    )


def tokens_read(draws: Sequence[Draw]) -> Int64s | None:
    """The only tokens whose logits the draws read, ascending, beside the largest of all; None if
    they may read any, or need none."""
    kinds = [draw for draw in _kinds(draws) if not are_plain([draw])]
    if not kinds or not all(draw.weigh and not draw.among_all for draw in kinds):
        return None
    return np.unique(np.array([token for draw in kinds for token in draw.allowed], np.int64))


def _kinds(draws: Sequence[Draw]) -> Collection[Draw]:
    """The draws that are different objects: the requests of one call share one."""
    return {id(draw): draw for draw in draws}.values()


def _is_restricted(draw: Draw) -> bool:
    """Whether a draw is not of the likeliest of all tokens."""
    is_free = draw.matcher is None and draw.history is None
    return draw.temperature > 0 or bool(draw.allowed) or not is_free


def _weigh(row: Rows, draw: Draw) -> tuple[float, ...]:
    """The log-probabilities of the allowed tokens at temperature 1.

    Normalised in float64, so that two tokens are equally likely only if their logits are equal,
    consistent with the largest.
    """
    kept = row[list(draw.allowed)].astype(np.float64)
    total = _log_sum(row.astype(np.float64) if draw.among_all else kept)
    return tuple((kept - total).tolist())


def _log_sum(logits: npt.NDArray[np.float64]) -> float:
    highest = logits.max()
    if not np.isfinite(highest):
        return float(highest if highest > 0 or np.isnan(highest) else -np.inf)
    return float(highest + np.log(np.exp(logits - highest).sum()))


def _told(row: Rows, token: int, count: int) -> Drawn:
    """A token with its log-probability and so many likeliest tokens, whatever it was drawn with;
    NOT_FINITE also where a number is not finite among those that it was not chosen from."""
    logits = row.astype(np.float64)
    total = _log_sum(logits)
    if token == NOT_FINITE or not np.isfinite(total):
        return NOT_FINITE
    top = _likeliest(logits, min(count, len(row)))
    logs = (logits[top] - total).tolist()
    told = tuple(zip(top.tolist(), logs, strict=True))
    rank = 1 + int(np.count_nonzero(logits > logits[token]))
    return TokenLogprob(token, float(logits[token] - total), told, rank)


def _likeliest(logits: npt.NDArray[np.float64], count: int) -> Int64s:
    """The likeliest tokens; of equal ones the first come first, as where one is drawn."""
    if not count:
        return np.empty(0, dtype=np.int64)
    bound = np.partition(logits, len(logits) - count)[len(logits) - count]
    among = np.flatnonzero(logits >= bound)
    return among[np.lexsort((among, -logits[among]))][:count]


def _draw(row: Rows, draw: Draw) -> int:
    """A token, or NOT_FINITE, from a row's own logits."""
    logits = row.astype(np.float32, copy=True)
    if draw.history is not None:
        _adjust(logits, draw.history)
    if draw.allowed:
        hidden = np.full_like(logits, -np.inf)
        hidden[list(draw.allowed)] = logits[list(draw.allowed)]
        logits = hidden
    if draw.matcher is not None:
        logits[~_allowed(masks([draw.matcher])[0], len(logits))] = -np.inf
    if draw.temperature > 0:
        logits = _perturbed(logits, draw)
    return _largest(logits)


def _adjust(logits: Rows, history: History) -> None:
    """Change logits by a request's settings and its tokens; see Adjustments."""
    given, output = history.adjustments, np.array(history.output, np.int64)
    for token, bias in given.logit_bias:
        logits[token] += np.float32(bias)
    if len(output) < given.min_tokens:
        logits[[token for token in history.end if token < len(logits)]] = -np.inf
    drawn, counts = np.unique(output, return_counts=True)
    if given.repetition_penalty != 1:
        seen = np.union1d(history.prompt, drawn)
        seen = seen[seen < len(logits)]
        penalty = np.float32(given.repetition_penalty)
        known = logits[seen]
        logits[seen] = np.where(known > 0, known / penalty, known * penalty)
    if given.frequency_penalty or given.presence_penalty:
        taken = given.frequency_penalty * counts.astype(np.float32) + given.presence_penalty
        logits[drawn] -= taken.astype(np.float32)


def _largest(row: Rows) -> int:
    """The place of the largest number, the first of several; NaN counts for nothing."""
    kept = np.where(np.isnan(row), -np.inf, row)
    place = int(kept.argmax())
    return place if np.isfinite(kept[place]) else NOT_FINITE


def _perturbed(logits: Rows, draw: Draw) -> Rows:
    """Logits whose largest is a sample of the tempered and truncated distribution (Gumbel-max)."""
    heat = np.float32(min(max(float(draw.temperature), COLDEST), HOTTEST))
    # Counted from the largest: however cold, that one is finite.
    scaled = (logits - logits.max()) / heat
    if draw.top_k or draw.top_p < 1:
        scaled = _truncated(scaled, draw)
    if draw.history is not None and draw.history.adjustments.min_p:
        scaled[np.exp(scaled) < draw.history.adjustments.min_p] = -np.inf
    generator = np.random.Generator(np.random.Philox(draw.seed % 2**63))
    noise = np.clip(generator.random(len(logits), dtype=np.float32), _TINY, _NEARLY_ONE)
    return cast(Rows, scaled - np.log(-np.log(noise)))


def _truncated(logits: Rows, draw: Draw) -> Rows:
    """Hide all but the top_k likeliest tokens, then all beyond the top_p of probability mass."""
    order = np.argsort(-logits, kind="stable")[: draw.top_k or len(logits)]
    values = logits[order]
    if draw.top_p < 1:
        weights = np.exp(values - values[0])
        before = np.cumsum(weights) / weights.sum() - weights / weights.sum()
        # The mass before a token decides, so that the likeliest token always stays.
        kept = (before < draw.top_p) | (np.arange(len(values)) == 0)
        order, values = order[kept], values[kept]
    cut = np.full_like(logits, -np.inf)
    cut[order] = values
    return cut


def _largest_allowed(
    logits: Logits, draws: Sequence[Draw], only: int | None = None
) -> dict[int, int]:
    """By row, the likeliest token of those that matchers allow, the first of several.

    The likeliest of all tokens is known; in the text of a string it is nearly always allowed. Only
    other rows are looked at.
    """
    matchers = {
        row: draw.matcher
        for row, draw in enumerate(draws)
        if draw.matcher is not None and draw.temperature == 0 and only in (None, row)
    }
    if not matchers:
        return {}
    rows, mask = list(matchers), masks(list(matchers.values()))
    largest = logits.largest[rows]
    ids = np.maximum(largest, 0)
    bits = mask[np.arange(len(rows)), ids // 32] >> (ids % 32).astype(np.uint32) & 1
    for place in np.flatnonzero((bits == 0) & (largest != NOT_FINITE)).tolist():
        largest[place] = _largest_of(logits.row(rows[place]), mask[place])
    return dict(zip(rows, largest.tolist(), strict=True))


def _largest_of(row: Rows, mask: Words) -> int:
    """The likeliest token of those in a mask."""
    if np.bitwise_count(mask).sum(dtype=np.int64) <= FEW:
        allowed = ids_of(mask)
        place = _largest(row[allowed])
        return place if place == NOT_FINITE else int(allowed[place])
    return _largest(np.where(_allowed(mask, len(row)), row, np.float32(-np.inf)))


def _allowed(mask: Words, count: int) -> npt.NDArray[np.bool_]:
    """Whether each token is in a mask."""
    bits = np.unpackbits(mask.view(np.uint8), count=count, bitorder="little")
    return bits.view(np.bool_)
