"""Seconds that a relQuery still takes: the priority estimation model (PEM: paper 003, §4.2)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from weakref import WeakKeyDictionary

import numpy as np

from relquery.arrays import Floats
from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.reuse import cached_tokens


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
    start, running = 0, list(left)
    tokens, prefills, requests, decodes = unfinished, int(unfinished > 0), 0.0, 0.0
    while start < len(uncached) or running:
        seats = max(limits.max_num_seqs - len(running), 0)
        fits = bisect_right(total, total[start] + limits.cache_tokens, start) - 1
        stop = min(fits, start + seats, len(uncached))
        if stop == start and not running:
            stop = start + 1  # a request on its own is always admitted, whatever its size
        decoding = answers[start:stop] + running
        requests += sum(decoding)
        decodes += max(decoding)
        while start < stop:
            end = bisect_right(total, total[start] + limits.max_num_batched_tokens, start)
            end = min(max(end - 1, start + 1), stop)
            tokens += total[end] - total[start]
            prefills += 1
            start = end
        running = []
    return Batches(tokens, prefills, requests, decodes)


_AT_ONCE = 256
"""Rows that have not come and are cut into batches; further ones take as long as these."""

_NONE = np.empty(0)
_MOVED = 0.1
"""Share of a relQuery's queue that leaves it before what is cached is looked up again."""
_Known = tuple[int, tuple[int, float | None], float]
"""Of a sample: how many waited, the relQuery's size and when it started, and the share."""


class Remaining:
    """An Estimate: the remaining work is cut into batches, and their durations are summed.

    Answers are assumed to have the maximum length. Declared rows that have not come count as if
    they waited: each with a prompt of mean length, of which as much is uncached as of those that
    have come, and with an answer of the maximum length. sample: number of requests from which the
    uncached share of its prompts is estimated (eq. 11). seed: for drawing them; the draw depends
    only on the seed and how many wait, so equal relQueries are estimated alike. shared: whether
    `Priorities` charges only a part of the fixed seconds of decode steps, because all running
    relQueries decode in the same steps.
    """

    def __init__(
        self, cost: LinearCost, sample: int = 10, seed: int = 0, *, shared: bool = False
    ) -> None:
        self._cost, self._sample, self._seed, self.shared = cost, sample, seed, shared
        self._own = replace(cost, decode_intercept=0.0)
        self._ratios: WeakKeyDictionary[RelQuery, _Known]
        self._ratios = WeakKeyDictionary()

    def __call__(self, relquery: RelQuery, state: State) -> float:
        """See Estimate."""
        seconds, steps = self.parts(relquery, state)
        return seconds + self.step_seconds * steps

    @property
    def step_seconds(self) -> float:
        """Seconds that a step takes which decodes, however many decode in it."""
        return self._cost.decode_intercept

    def parts(self, relquery: RelQuery, state: State) -> tuple[float, float]:
        """Seconds of its own, and steps that it decodes in, which others may share."""
        return self._parts(relquery, state)

    def look_again(self, relquery: RelQuery) -> None:
        """Look up, the next time, what is cached by now."""
        self._ratios.pop(relquery, None)

    def alone(self, relquery: RelQuery, state: State, usual: float) -> float:
        """Seconds that it takes if it goes first. usual: share of its limit that an answer has."""
        seconds, steps = self._parts(relquery, state, usual)
        return state.pace * (seconds + self.step_seconds * steps)

    def work(self, relquery: RelQuery, state: State) -> tuple[float, float]:
        """Seconds that it takes of a machine whose seats are all taken by other requests, too.

        And seconds of all work there while its longest answer is drawn.
        """
        usual = 1.0 if state.length_ratio is None else state.length_ratio
        left, unfinished = self._begun(relquery, usual)
        coming = len(relquery.waiting) + relquery.expected
        answers = sum(left) + usual * relquery.mean_limit * coming
        prompts = float(relquery.waiting.lengths.sum()) * self.miss_ratio(relquery, state)
        if relquery.expected:
            prompts += (
                relquery.expected * relquery.mean_prompt * self._expected_ratio(relquery, state)
            )
        if coming:
            left.append(usual * relquery.output_limit)
        decode = self._decode(state)
        work = self._cost.prefill_slope * (prompts + unfinished) + decode * answers
        return work, decode * state.limits.max_num_seqs * max(left, default=0.0)

    def done(self, relquery: RelQuery, state: State) -> float:
        """Seconds of work done so far, in the units of `work`."""
        prompts = self._cost.prefill_slope * relquery.computed_prompts
        return prompts + self._decode(state) * relquery.drawn_tokens

    def _decode(self, state: State) -> float:
        """Seconds per answer token when all seats are taken."""
        return self._cost.decode_slope + self._cost.decode_intercept / state.limits.max_num_seqs

    def _parts(self, relquery: RelQuery, state: State, usual: float = 1.0) -> tuple[float, float]:
        left, unfinished = self._begun(relquery, usual)
        if not relquery.waiting and not relquery.expected:
            return self._apart(decompose(_NONE, _NONE, state.limits, left, unfinished))
        lengths = relquery.waiting.lengths
        uncached = lengths.astype(np.float64) * self.miss_ratio(relquery, state)
        outputs, further = np.maximum(1.0, usual * self.outputs(relquery)), (0.0, 0.0)
        if relquery.expected:
            count = min(relquery.expected, _AT_ONCE)
            prompts = np.full(count, relquery.mean_prompt * self._expected_ratio(relquery, state))
            answers = np.full(count, max(1.0, usual * relquery.output_limit))
            if relquery.expected > count:
                seconds, steps = self._apart(decompose(prompts, answers, state.limits))
                times = relquery.expected / count - 1
                further = times * seconds, times * steps
            uncached = np.concatenate((uncached, prompts))
            outputs = np.concatenate((outputs, answers))
        cut = decompose(uncached, outputs, state.limits, left, unfinished)
        seconds, steps = self._apart(cut)
        return further[0] + seconds, further[1] + steps

    def _apart(self, batches: Batches) -> tuple[float, float]:
        return batches.seconds(self._own), batches.decode_steps

    def _begun(self, relquery: RelQuery, usual: float) -> tuple[list[float], int]:
        """Tokens each running request will still generate, and prompt tokens not computed yet."""
        saved, left, unfinished = 1.0 - usual, [], 0
        for request in relquery.running:
            left.append(max(1.0, self.left(request) - saved * request.max_tokens))
            unfinished += max(0, request.prompt_tokens - request.computed)
        return left, unfinished

    def left(self, request: Request) -> float:
        """Tokens that a request may still generate."""
        return request.max_tokens - len(request.output)

    def outputs(self, relquery: RelQuery) -> Floats:
        """(n,) tokens that each waiting request may still generate."""
        return np.full(len(relquery.waiting), float(relquery.output_limit))

    def _expected_ratio(self, relquery: RelQuery, state: State) -> float:
        """The uncached share of prompts that have not come."""
        if len(relquery.waiting):
            return self.miss_ratio(relquery, state)
        begun = sum(min(each.computed, each.prompt_tokens) for each in relquery.running)
        open_prompts = sum(each.prompt_tokens for each in relquery.running)
        served = relquery.prompt_tokens - open_prompts + begun
        return min(1.0, relquery.computed_prompts / served) if served > 0 else 1.0

    def miss_ratio(self, relquery: RelQuery, state: State) -> float:
        """The uncached share of the waiting prompts, estimated from a random sample.

        It is drawn again once a request has joined the queue, the first has left it, or a tenth
        have: then more may be cached.
        """
        count, known = len(relquery.waiting), self._ratios.get(relquery)
        since = relquery.size, relquery.started
        if known is not None:
            drawn, same, ratio = known
            if same == since and (1 - _MOVED) * drawn <= count <= drawn:
                return ratio
        ratio = self._sampled(relquery, state) if count else 1.0
        self._ratios[relquery] = count, since, ratio
        return ratio

    def _sampled(self, relquery: RelQuery, state: State) -> float:
        count = len(relquery.waiting)
        chosen: Sequence[int] = range(count)
        if count > self._sample:
            draw = Random(f"{self._seed} {count}")
            chosen = draw.sample(chosen, self._sample)
        sampled = relquery.waiting.pick(chosen)
        cached = sum(sum(cached_tokens(request, state.limits, state.pool)) for request in sampled)
        return 1.0 - cached / sum(request.length for request in sampled)
