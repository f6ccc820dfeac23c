"""Estimates of what the prompts of a stage take: tokens, hits of a cache, seconds and USD.

A provider's cache is billed by the provider's rules, in our order and in that of the table; one on
this machine is simulated. A provider's tokenizer is not ours, and it adds tokens of its own: around
messages, and for a schema. Both are seen in the usage of answers to the same prompts, which a
ledger keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np

from relquery.arrays import TokenIds
from relquery.backends.base import Backend
from relquery.errors import RequestError
from relquery.prices.price import MILLION, Price
from relquery.prices.table import known_price
from relquery.prompt import Prompt
from relquery.reordering.cost.billing import NEVER, Bill, bill, bill_automatic, bill_marked
from relquery.reordering.cost.measure import lru_hits, unlimited_hits
from relquery.reordering.cost.tokens import Tokens
from relquery.sql.caching import Counter, cache_plan, in_our_tokens
from relquery.sql.explain.cost import (
    Calibration,
    Length,
    Range,
    StageCost,
    expected_length,
    unshared,
)
from relquery.sql.explain.explanation import CountedBy, ExplainedCall
from relquery.sql.explain.requests import Requests

_CHARACTERS = 4  # per token; typical of English with most tokenizers
_COUNTED = 4096  # at most this many prompts are counted; of more, a sample of this size
_RUNS = 4  # of neighbours, in a sample whose prompts share prefixes as all do
_KEPT = 1024  # prompts of earlier stages that are looked for in a cache on this machine
# Seconds of an answer of a provider's model until its first token, and per token.
_FIRST = Range(0.3, 1.0, 4.0)
_PER_TOKEN = Range(1 / 150, 1 / 60, 1 / 20)
_AT_MOST = Range(0.0, 0.5, 1.0)  # of the calls after a filter of which nothing is known
_BY_TOKENIZER: CountedBy = "tokenizer"

_Bills = tuple[Bill, Bill, Bill]
"""Input at best, as expected, and if nothing is read from the cache: USD and tokens read."""


@dataclass(slots=True)
class Estimator:
    """An estimator of a statement's stages, one after the other.

    always: whether to tell costs also where no price is known. The cache is empty at first, and
    later stages find what earlier ones sent. What the first stages show of the provider's tokens is
    used for those after them.
    """

    backend: Backend
    always: bool = False
    price: Price | None = field(init=False)
    _counter: Counter = field(default_factory=Counter)
    _seen: Calibration = field(default_factory=Calibration)
    _sent: list[TokenIds] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.price = known_price(self.backend.name)

    @property
    def tells_costs(self) -> bool:
        """Whether costs are told."""
        return self.always or self.price is not None

    @property
    def needs_order(self) -> bool:
        """Whether anything is known that depends on the order of prompts."""
        return self.backend.limits.block_tokens is not None or self.tells_costs

    def told(self, call: ExplainedCall, stage: Requests) -> ExplainedCall:
        """A call with what the prompts of its stage take if they are sent next."""
        sample, rate, cost = _neighbours(stage.prompts), None, None
        counts = self.backend.insight.prompt_tokens(sample, stage.sampling)
        if self.needs_order:
            rate = self._hit_rate(sample, counts, is_new=not stage.may_come)
        if self.tells_costs:
            cost = self._cost(stage, sample, counts, rate or 0.0)
            cost = replace(cost, model=self.backend.name)
            if cost.live is not None:
                rate = cost.cached.expected / (cost.input.expected or 1.0)
            cost *= stage.most / max(1, len(stage.written))
            if call.counts == "at most":
                cost *= _AT_MOST
        call = self._with_tokens(call, stage, counts, rate)
        return replace(
            call,
            cached_tokens=None if rate is None else rate * (call.prompt_tokens or 0),
            is_sample=(cost is not None and cost.live is not None) or len(stage.written) > _COUNTED,
            cost=cost,
        )

    def _with_tokens(
        self, call: ExplainedCall, stage: Requests, counts: list[int] | None, rate: float | None
    ) -> ExplainedCall:
        """With tokens, and the time and price that follow. counts: tokens of the prompts, or of
        some. rate: the share that the cache serves.
        """
        prompts, most, by = stage.prompts, stage.most, _BY_TOKENIZER
        if counts is not None and len(prompts) > _COUNTED:  # neighbours are about equally long
            places = np.linspace(0, len(prompts) - 1, _COUNTED).astype(int).tolist()
            counts = self.backend.insight.prompt_tokens(
                [prompts[place] for place in places], stage.sampling
            )
        if counts is None:
            by, counts = "characters", [_characters(prompt) // _CHARACTERS for prompt in prompts]
        elif stage.is_guess or len(counts) < most:
            by = "sample"
        refused = min(most, counts.count(0)) if by == "tokenizer" else None
        if most < len(prompts):  # it is not known which: the longest
            counts = sorted(counts, reverse=True)[: math.ceil(len(counts) * most / len(prompts))]
        if len(counts) < most:
            counts = [round(sum(counts) / len(counts))] * most
        length = stage.sampling.max_tokens if stage.length is None else max(1, round(stage.length))
        cached = 0.0 if stage.length is None else rate or 0.0
        price, total = self.price, sum(counts)
        usd = None if price is None else sum(price.call_usd(count, length) for count in counts)
        return replace(
            call,
            prompt_tokens=total,
            counted_by=by,
            refused=refused,
            seconds=self._predicted(counts, stage, length, cached),
            usd=None if price is None or usd is None else usd * price.peak,
        )

    def _predicted(
        self, counts: Sequence[int], stage: Requests, length: float, rate: float
    ) -> float | None:
        """Seconds on this machine, with answers of a length and a share of cached tokens."""
        answers = replace(stage.sampling, max_tokens=max(1, round(length)))
        return (
            self.backend.insight.predict(counts, answers, int(rate * sum(counts)))
            if counts
            else 0.0
        )

    def _hit_rate(
        self, sample: Sequence[Prompt], counts: Sequence[int] | None, *, is_new: bool
    ) -> float | None:
        """The share of prompt tokens that a cache on this machine serves; None if not known.

        counts: tokens of each, 0 for those that are refused. is_new: whether all are sent. If not,
        those that an earlier stage sends do not come again.
        """
        size, before = self.backend.limits.block_tokens, self._sent
        new = None if size is None else self._token_ids(sample)
        if size is None or new is None:
            return None
        new = list(compress(new, counts or map(len, new)))
        if not is_new:
            texts = {ids.tobytes() for ids in new}
            before = [ids for ids in before if ids.tobytes() not in texts]
        self._sent = [*before, *new][-_KEPT:]
        total = sum(map(len, new))
        if not size or not total:
            return 0.0
        # The last token of a prompt is computed in any case.
        tokens = Tokens.of([ids[:-1] for ids in (*before, *new)])
        hits = lru_hits(tokens, max(1, (self.backend.limits.cache_tokens or 0) // size), size)
        return float(hits[len(before) :].sum()) / total

    def _token_ids(self, prompts: Sequence[Prompt]) -> list[TokenIds] | None:
        """The token ids of prompts, none of those that cannot be rendered; None if one of them has
        spans that are reused by themselves.
        """
        token_ids = []
        for prompt in prompts:
            try:
                runs = self.backend.insight.runs(prompt)
            except RequestError:
                runs = [np.empty(0, np.int32)]
            if runs is None or len(runs) != 1:
                return None
            token_ids.append(runs[0])
        return token_ids

    def _cost(
        self, stage: Requests, sample: Sequence[Prompt], counts: Sequence[int] | None, rate: float
    ) -> StageCost:
        """What all prompts cost, by a sample. rate: what a cache on this machine serves."""
        scale = len(stage.written) / len(sample) if sample else 0.0
        if counts is not None and self.price is None:
            return self._local(stage, counts, scale, rate)
        return self._of_provider(stage, sample, scale, self._calibrated(stage, sample, counts))

    def _length(self, stage: Requests) -> Length:
        """How long answers are: as those that are known, or measured, or as their type says."""
        sampling, measured = stage.sampling, stage.length
        wraps = self.backend.insight.one_pass(sampling) is None
        tokens = [answer.output_tokens for _, answer in stage.learned if answer.output_tokens]
        if not tokens and measured is not None:
            return Length(Range(measured / 2, measured, measured * 2), "answers")
        length = expected_length(sampling, self._counter.text, tokens, wraps=wraps)
        if self.price is not None and self.price.reasoning and length.source != "answers":
            high = max(length.tokens.high, float(sampling.max_tokens))
            return replace(length, tokens=replace(length.tokens, high=high))
        return length

    def _calibrated(
        self, stage: Requests, sample: Sequence[Prompt], counts: Sequence[int] | None
    ) -> Calibration:
        """From answers, or a tokenizer of the backend; else from answers of other stages."""
        ours = [self._counter.count(prompt) for prompt, _ in stage.learned]
        calibration = Calibration.of(ours, [answer.prompt_tokens for _, answer in stage.learned])
        if not calibration.answers and counts is not None:
            calibration = Calibration.of(list(map(self._counter.count, sample)), counts)
        if calibration.answers:
            self._seen = calibration
        return self._seen

    def _local(
        self, stage: Requests, counts: Sequence[int], scale: float, rate: float
    ) -> StageCost:
        calls, total, length = len(stage.written), sum(counts) * scale, self._length(stage)
        every = [round(total / calls)] * calls if scale > 1 else counts
        most = float(stage.sampling.max_tokens)
        ways = (length.tokens.low, rate), (length.tokens.expected, rate), (most, 0.0)
        known = [cost for way in ways if (cost := self._predicted(every, stage, *way)) is not None]
        return StageCost(
            Range.of(calls),
            Range.of(total),
            Range(0.0, total * rate, total * rate),
            length.tokens * float(calls),
            Range(*sorted(known)) if len(known) == len(ways) else None,
            length,
        )

    def _of_provider(
        self, stage: Requests, sample: Sequence[Prompt], scale: float, calibration: Calibration
    ) -> StageCost:
        calls, price, length = len(stage.written), self.price, self._length(stage)
        factor, error = calibration.factor, calibration.error
        counts = [self._counter.count(prompt) for prompt in sample]
        tokens = sum(counts) * scale * factor
        price = None if price is None else price.of_prompts([count * factor for count in counts])
        output, seconds = length.tokens * float(calls), self._seconds(calls, tokens, length.tokens)
        told = StageCost(
            Range.of(calls),
            Range.of(tokens, error),
            Range.of(0),
            output,
            seconds,
            length,
            calibration,
        )
        if price is None:
            return told
        each = _FIRST.expected + _PER_TOKEN.expected * length.tokens.expected
        rate = min(60 * self._under_way / each, self.backend.limits.requests_per_minute or math.inf)
        bills = self._bills(sample, price, factor, rate, is_ours=True)
        table = self._bills(_neighbours(stage.written), price, factor, rate, is_ours=False)
        best, expected, _ = bills
        scale *= factor
        answers = output * (price.output / MILLION)
        live = _usd(bills, scale, error)
        batch = None
        if price.batch is not None:  # a batch's requests run together: nothing is sure to be read
            plain = best.usd_without_cache * scale
            batch = (Range(live.low, plain, plain * (1 + error)) + answers) * price.batch
        longest = self._longest(sample, price) * factor
        return replace(
            told,
            cached=Range(0.0, expected.read * scale, best.read * scale * (1 + error)),
            live=live + answers,
            table=_usd(table, scale, error) + answers,
            batch=batch,
            unshared=unshared(longest, price) if len(sample) > 1 else None,
            reasons=price.reasoning and length.source != "answers",
        )

    def _bills(
        self, prompts: Sequence[Prompt], price: Price, factor: float, rate: float, *, is_ours: bool
    ) -> _Bills:
        """Our order is sent as planned; the table's as it is, with the marks that pay there.

        rate: requests a minute.
        """
        rules, counter = in_our_tokens(price, factor), self._counter
        later, marks = prompts, None
        if is_ours:
            plan = cache_plan(prompts, price, self._under_way, factor=factor, counter=counter)
            later = [prompts[place] for place in plan.order]
            # The plan marks somewhat shorter prefixes, too; the provider ignores those.
            lengths = [plan.lengths[place] for place in plan.order]
            marks = [tuple(length for length in own if length >= rules.minimum) for own in lengths]
        # How many requests begin, as expected, until one can be read that began with the first: all
        # that are under way, if each begins when the one that has taken longest ends; half as many
        # on average if those that begin together also end together. It is taken to be between.
        gap = math.ceil(self._under_way * 3 / 4)
        if not price.breakpoints:
            tokens = counter.tokens(prompts)
            expected = bill_automatic(counter.tokens(later), rules, gap, rate)
            return bill_automatic(tokens, rules), expected, bill_automatic(tokens, rules, NEVER)
        best, sent = bill(counter.blocks(prompts), rules), counter.blocks(later)
        marks = best.breakpoints if marks is None else marks
        return best, bill_marked(sent, rules, marks, gap), bill_marked(sent, rules, marks, NEVER)

    def _longest(self, prompts: Sequence[Prompt], price: Price) -> int:
        """Tokens of ours of the longest prefix that a cache could serve."""
        if price.breakpoints:
            return int(self._counter.blocks(prompts).tree().hits.max(initial=0))
        return int(unlimited_hits(self._counter.tokens(prompts)).max(initial=0))

    @property
    def _under_way(self) -> int:
        return self.backend.limits.concurrency or 1

    def _seconds(self, calls: int, tokens: float, length: Range) -> Range | None:
        """Until the last answer of a provider that takes all that are under way, or as many as its
        limits let through. tokens: of all prompts.
        """
        backend = self.backend
        if backend.limits.concurrency is None:
            return None
        rounds = max(calls / backend.limits.concurrency, 1.0) if calls else 0.0
        took = (_FIRST + _PER_TOKEN * length) * Range(rounds, rounds, math.ceil(rounds))
        of_requests = 60 * calls / (backend.limits.requests_per_minute or math.inf)
        of_tokens = (
            60 * (tokens + calls * length.expected) / (backend.limits.tokens_per_minute or math.inf)
        )
        return took.at_least(max(of_requests, of_tokens))


def _usd(bills: _Bills, scale: float, error: float) -> Range:
    best, expected, worst = bills
    high = max(worst.usd, worst.usd_without_cache)
    return Range(best.usd * (1 - error), expected.usd, high * (1 + error)) * scale


def _neighbours(prompts: Sequence[Prompt]) -> Sequence[Prompt]:
    """The prompts; of very many, some runs of neighbours."""
    if len(prompts) <= _COUNTED:
        return list(prompts)
    length = _COUNTED // _RUNS
    starts = np.linspace(0, len(prompts) - length, _RUNS).astype(int).tolist()
    return [prompts[index] for start in starts for index in range(start, start + length)]


def _characters(prompt: Prompt) -> int:
    return sum(len(str(span.content)) for span in prompt)
