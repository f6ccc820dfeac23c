"""How long a relQuery still takes: the priority estimation model (paper 003, §4.2)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from relquery.arrays import Floats
from relquery.config import EngineConfig
from relquery.engine.cost.linear import LinearCost


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches that a relQuery is cut into, summed up.

    prefill_tokens: uncached tokens of all prefill batches. prefill_steps: the number of batches.
    decode_requests: requests of all decode batches. decode_steps: the number of batches. Both are
    fractions if outputs are expectations.
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

    uncached: (n,) tokens to compute for each waiting request, in order. outputs: (n,) tokens
    that each of them generates. left: for each running request, the tokens that it will still
    generate; of their prompts only `unfinished` tokens, of partly computed ones, still cost time.

    Prompts are computed until the cache (`cap`) or the seats of a decode batch are full; then all
    admitted requests decode to the end, and the next prompts follow. The printed algorithm does
    not reset the cache to empty at that point; this one does.
    """
    if left and not len(uncached):  # none of its requests waits
        return Batches(unfinished, int(unfinished > 0), sum(left), max(left))
    # Lists, because most relQueries are small and reading single numbers of an array is slow.
    total, answers = [0.0, *uncached.cumsum().tolist()], outputs.tolist()
    at, running = 0, list(left)
    tokens, prefills, requests, decodes = unfinished, int(unfinished > 0), 0.0, 0.0
    while at < len(uncached) or running:
        seats = max(limits.max_num_seqs - len(running), 0)
        fits = bisect_right(total, total[at] + limits.cache_tokens, at) - 1
        stop = min(fits, at + seats, len(uncached))
        if stop == at and not running:
            stop = at + 1  # a request on its own is always admitted, whatever its size
        decoding = answers[at:stop] + running
        requests += sum(decoding)
        decodes += max(decoding)
        while at < stop:
            end = bisect_right(total, total[at] + limits.max_num_batched_tokens, at)
            end = min(max(end - 1, at + 1), stop)
            tokens += total[end] - total[at]
            prefills += 1
            at = end
        running = []
    return Batches(tokens, prefills, requests, decodes)
