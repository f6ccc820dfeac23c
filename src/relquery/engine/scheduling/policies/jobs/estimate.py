"""How long a relQuery still takes: the priority estimation model (paper 003, §4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relquery.arrays import Floats
from relquery.config import EngineConfig
from relquery.engine.cost.linear import LinearCost


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches that a relQuery is cut into, summed up.

    prefill_tokens: uncached tokens of all prefill batches, and prefill_steps: how many there are.
    decode_requests: requests of all decode batches, and decode_steps: how many there are; fractions
    where outputs are expectations.
    """

    prefill_tokens: float = 0.0
    prefill_steps: int = 0
    decode_requests: float = 0.0
    decode_steps: float = 0.0

    def seconds(self, cost: LinearCost) -> float:
        """Sum of their predicted durations (eq. 9 and 10)."""
        prefill = cost.prefill_slope * self.prefill_tokens
        decode = cost.decode_slope * self.decode_requests
        fixed = cost.prefill_intercept * self.prefill_steps
        return prefill + decode + fixed + cost.decode_intercept * self.decode_steps


def decompose(
    uncached: Floats,
    outputs: Floats,
    limits: EngineConfig,
    left: Sequence[float] = (),
    unfinished: float = 0.0,
) -> Batches:
    """Cut a relQuery into batches (Algorithm 1).

    uncached: (n,) tokens to compute of each request that waits, in order. outputs: (n,) tokens
    that each of them answers. left: for each request that runs, the tokens that it still answers;
    their prompts cost nothing more but `unfinished` tokens of those that are computed in parts.

    Prompts are computed until the cache (`cap`) or the seats of a decode batch are full; then all
    that is in decodes to its end, and the next prompts follow. The printed algorithm does not set
    the cache back to empty at that point; here it does.
    """
    total = np.concatenate(([0.0], np.cumsum(uncached)))
    at, running = 0, list(left)
    tokens, prefills, requests, decodes = unfinished, int(unfinished > 0), 0.0, 0.0
    while at < len(uncached) or running:
        seats = max(limits.max_num_seqs - len(running), 0)
        fits = int(np.searchsorted(total, total[at] + limits.cache_tokens, "right")) - 1
        stop = min(fits, at + seats, len(uncached))
        if stop == at and not running:
            stop = at + 1  # alone it goes in, whatever its size
        requests += float(outputs[at:stop].sum()) + sum(running)
        decodes += max(float(outputs[at:stop].max(initial=0.0)), max(running, default=0.0))
        while at < stop:
            end = int(np.searchsorted(total, total[at] + limits.max_num_batched_tokens, "right"))
            end = min(max(end - 1, at + 1), stop)
            tokens += float(total[end] - total[at])
            prefills += 1
            at = end
        running = []
    return Batches(tokens, prefills, requests, decodes)
