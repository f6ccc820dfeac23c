"""Turning logits into token ids, greedy or sampled, free or restricted; or into token weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isnan
from typing import cast

import numpy as np
import torch
from torch import Tensor

from relquery.engine.executor import NOT_FINITE, Drawn, Failure
from relquery.engine.request.request import Draw
from relquery.model.forward.stock import Logits
from relquery.model.kernels.largest import places_of_largest
from relquery.model.logprobs import token_logprobs
from relquery.model.matching import hide_disallowed, largest_allowed

COLDEST, HOTTEST = 1e-30, 1e30  # temperatures that float32 can tell apart from 0 and infinity
ROWS_AT_ONCE = 16


def follow_draws(given: Logits, draws: Sequence[Draw]) -> list[Drawn]:
    """The result of each row's draw: a token id, also with log-probabilities, the weights of
    the allowed tokens, NOT_FINITE, or what the draw raised.

    A row's result depends only on its own logits and draw.
    """
    try:
        return _follow_all(given, draws)
    except Exception:  # of which row, only its own draw tells
        return [_follow_one(given, row, draw) for row, draw in enumerate(draws)]


def _follow_one(given: Logits, row: int, draw: Draw) -> Drawn:
    largest = None if given.largest is None else given.largest[row : row + 1]
    try:
        return _follow_all(Logits(given.rows[row : row + 1], largest), [draw])[0]
    except Exception as error:
        return Failure(error)


def _follow_all(given: Logits, draws: Sequence[Draw]) -> list[Drawn]:
    """The same, but it raises what any draw raises; the logits stay as they are."""
    if given.largest is not None and are_plain(draws):
        return list(given.largest.tolist())
    if not any(draw.weigh or draw.matcher or draw.logprobs is not None for draw in _kinds(draws)):
        return list(draw_tokens(given.rows, draws))
    counts = {row: draw.logprobs for row, draw in enumerate(draws) if draw.logprobs is not None}
    if not counts:
        return _choose(given, draws)
    raw = given.rows[list(counts)]
    results = _choose(given, draws)
    for row, told in zip(counts, _told(raw, results, counts), strict=True):
        results[row] = told
    return results


def _told(raw: Tensor, results: Sequence[Drawn], counts: Mapping[int, int]) -> list[Drawn]:
    """Some rows' tokens with their log-probabilities. raw: logits of these rows; counts: by row."""
    tokens = [cast(int, results[row]) for row in counts]
    return list(token_logprobs(raw, tokens, list(counts.values())))


def _choose(given: Logits, draws: Sequence[Draw]) -> list[Drawn]:
    """The same without log-probabilities."""
    if given.largest is not None and are_free(draws):
        return list(given.largest.tolist())
    logits = given.rows
    results: dict[int, Drawn] = {}
    weighed = {row: draw for row, draw in enumerate(draws) if draw.weigh}
    if weighed:
        results |= {
            row: NOT_FINITE if any(map(isnan, logs)) else logs
            for row, logs in weigh_tokens(logits, weighed).items()
        }
    matched = {
        row: draw.matcher
        for row, draw in enumerate(draws)
        if draw.matcher is not None and draw.temperature == 0
    }
    if matched:
        results |= largest_allowed(given, matched)
    drawn = [row for row in range(len(draws)) if row not in results]
    if drawn:
        results |= zip(drawn, draw_tokens(logits[drawn], [draws[i] for i in drawn]), strict=True)
    return [results[row] for row in range(len(draws))]


def are_free(draws: Sequence[Draw]) -> bool:
    """Whether each draw is of the likeliest of all tokens."""
    return not any(map(_is_restricted, _kinds(draws)))


def are_plain(draws: Sequence[Draw]) -> bool:
    """Whether each draw is of the likeliest of all tokens, and returns nothing but it."""
    return not any(_is_restricted(draw) or draw.logprobs is not None for draw in _kinds(draws))


def _kinds(draws: Sequence[Draw]) -> Collection[Draw]:
    """The draws that are different objects: the requests of one call share one."""
    return {id(draw): draw for draw in draws}.values()


def _is_restricted(draw: Draw) -> bool:
    """Whether a draw is not of the likeliest of all tokens."""
    return draw.temperature > 0 or bool(draw.allowed) or draw.matcher is not None


def weigh_tokens(logits: Tensor, draws: Mapping[int, Draw]) -> dict[int, tuple[float, ...]]:
    """The log-probabilities of the allowed tokens at temperature 1, by row.

    draws: by row of the logits. One gather and one transfer for all rows. Normalised in float64, so
    that two tokens are equally likely only if their logits are equal, consistent with argmax.
    """
    widest = max(len(draw.allowed) for draw in draws.values())
    allowed = np.zeros((len(draws), widest), dtype=np.int64)
    hidden = np.ones(allowed.shape, dtype=bool)
    rows: dict[tuple[int, ...], list[int]] = {}
    for number, draw in enumerate(draws.values()):
        rows.setdefault(draw.allowed, []).append(number)
    for tokens, of_them in rows.items():
        allowed[of_them, : len(tokens)] = tokens
        hidden[of_them, : len(tokens)] = False
    at = torch.tensor(list(draws), device=logits.device)
    kept = logits[at[:, None], torch.from_numpy(allowed).to(logits.device)].cpu().double()
    kept.masked_fill_(torch.from_numpy(hidden), -torch.inf)
    totals = kept.logsumexp(-1)
    among_all = [number for number, draw in enumerate(draws.values()) if draw.among_all]
    if among_all:
        totals[among_all] = _log_sums(logits, at[among_all])
    logs = (kept - totals[:, None]).tolist()
    return {
        row: tuple(found[: len(draw.allowed)])
        for (row, draw), found in zip(draws.items(), logs, strict=True)
    }


def _log_sums(logits: Tensor, rows: Tensor) -> Tensor:
    """Log-sum-exp over the vocabulary in float64; this copies, so few rows are done at a time."""
    parts = (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
    return torch.cat([logits[part].double().logsumexp(-1) for part in parts]).cpu()


def draw_tokens(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """One token id per row, or NOT_FINITE. logits: (rows, vocabulary); draws: how, per row.

    A row's token depends only on its own logits and draw, not on other rows.
    """
    if are_free(draws):
        return cast("list[int]", places_of_largest(logits).tolist())
    sampled = [row for row, draw in enumerate(draws) if draw.temperature > 0]
    logits = logits.to(torch.float32, copy=True)
    for row, draw in enumerate(draws):
        if draw.allowed:
            allowed = torch.tensor(draw.allowed, device=logits.device)
            kept = logits[row, allowed]
            logits[row] = -torch.inf
            logits[row, allowed] = kept
    matched = {i: draw.matcher for i, draw in enumerate(draws) if draw.matcher is not None}
    if matched:
        hide_disallowed(logits, matched)
    if sampled:
        logits[sampled] = _perturb(logits[sampled], [draws[row] for row in sampled])
    return cast("list[int]", places_of_largest(logits).tolist())


def _perturb(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Logits whose argmax is a sample of the tempered and truncated distribution (Gumbel-max)."""
    device = logits.device
    heat = [[min(max(float(draw.temperature), COLDEST), HOTTEST)] for draw in draws]
    # Counted from the largest: however cold, that one is finite.
    scaled = (logits - logits.amax(-1, keepdim=True)) / torch.tensor(heat, device=device)
    if any(draw.top_k or draw.top_p < 1 for draw in draws):
        scaled = _truncate(scaled, draws)
    noise = torch.stack([_uniform(draw.seed, logits.shape[1]) for draw in draws]).to(device)
    return scaled - torch.log(-torch.log(noise))


def _truncate(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Hide all but the top_k likeliest tokens, then all beyond the top_p of probability mass."""
    values, order = logits.sort(-1, descending=True)
    rank = torch.arange(logits.shape[1], device=logits.device)
    everything = logits.shape[1]
    counts = [[min(draw.top_k or everything, everything)] for draw in draws]
    top_k = torch.tensor(counts, device=logits.device)
    # Rounded sums may reach 1 before the last token; top_p = 1 keeps all, whatever other rows do.
    bounds = [[draw.top_p if draw.top_p < 1 else torch.inf] for draw in draws]
    top_p = torch.tensor(bounds, device=logits.device)
    values = values.masked_fill(rank >= top_k, -torch.inf)
    mass = values.softmax(-1).cumsum(-1) - values.softmax(-1)
    # The mass before a token decides, so that the likeliest token always stays.
    values = values.masked_fill((mass >= top_p) & (rank > 0), -torch.inf)
    return torch.empty_like(logits).scatter_(-1, order, values)


def _uniform(seed: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed % 2**63)
    tiny = torch.finfo(torch.float32).tiny
    return torch.rand(count, generator=generator).clamp_(tiny, 1 - 2**-24)
