"""Drawing among the tokens that a matcher allows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from relquery.arrays import Int64s, Words
from relquery.engine.executor import NOT_FINITE
from relquery.engine.request.matcher import Matcher
from relquery.model.forward.stock import Logits
from relquery.model.grammar import ids_of, masks
from relquery.model.kernels.largest import places_of_largest

FEW = 1_024
"""Allowed tokens that are picked out of a row; if there are more, the others are hidden."""


def largest_allowed(given: Logits, matchers: Mapping[int, Matcher]) -> dict[int, int]:
    """The likeliest token of some rows among those allowed, the first of several; or NOT_FINITE.

    matchers: by row. The likeliest of all tokens is known, or found in one pass; in the text of a
    string it is nearly always allowed. Only other rows are looked at again.
    """
    rows, mask = list(matchers), masks(list(matchers.values()))
    found = given.largest if given.largest is not None else places_of_largest(given.rows)
    found = found[rows]
    at = np.maximum(found, 0)
    bits = mask[np.arange(len(rows)), at // 32] >> (at % 32).astype(np.uint32) & 1
    other = np.flatnonzero((bits == 0) & (found != NOT_FINITE))
    few = np.bitwise_count(mask[other]).sum(1, dtype=np.int64) <= FEW
    for some, choose in ((other[few], _pick), (other[~few], _hide)):
        if len(some):
            found[some] = choose(given.rows[torch.tensor(rows)[some]], mask[some])
    return dict(zip(rows, found.tolist(), strict=True))


def hide_disallowed(logits: Tensor, matchers: Mapping[int, Matcher]) -> None:
    """Give all tokens that some rows do not allow the logit -inf. matchers: by row."""
    rows = torch.tensor(list(matchers), device=logits.device)
    logits[rows] = _hidden(logits[rows], masks(list(matchers.values())))


def _pick(logits: Tensor, mask: Words) -> Int64s:
    """The likeliest allowed token of each row, of which few are allowed."""
    allowed = [ids_of(bits) for bits in mask]
    ids = np.zeros((len(mask), max(map(len, allowed))), np.int64)
    none = np.ones(ids.shape, bool)
    for row, each in enumerate(allowed):
        ids[row, : len(each)], none[row, : len(each)] = each, False
    device = logits.device
    kept = logits.gather(1, torch.from_numpy(ids).to(device))
    kept.masked_fill_(torch.from_numpy(none).to(device), -torch.inf)
    places = places_of_largest(kept)
    return np.where(places < 0, NOT_FINITE, ids[np.arange(len(ids)), places])


def _hide(logits: Tensor, mask: Words) -> Int64s:
    """The likeliest allowed token of each row, of which many are allowed."""
    return places_of_largest(_hidden(logits, mask))


def _hidden(logits: Tensor, mask: Words) -> Tensor:
    """Logits that are -inf for all tokens but the allowed ones."""
    width = logits.shape[1]
    bits = np.unpackbits(mask.view(np.uint8), axis=1, count=width, bitorder="little")
    return logits.masked_fill(torch.from_numpy(bits == 0).to(logits.device), -torch.inf)
