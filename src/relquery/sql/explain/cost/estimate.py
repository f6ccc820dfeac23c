"""What one stage costs: by the rules of the provider, in our order and in that of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any

import numpy as np

from relquery.backends.base import Backend
from relquery.prices.price import Price
from relquery.prices.table import all_prices, known_price
from relquery.prompt import Answer, Prompt, Sampling
from relquery.sql.caching.plan import Counter, cache_plan, in_our_tokens
from relquery.sql.explain.cost.calibration import Calibration, calibrate
from relquery.sql.explain.cost.lengths import NONE, ONE, Length, Range, expected_length
from relquery.table.cost.billing import Bill, bill
from relquery.table.cost.flight import NEVER, bill_automatic, bill_marked
from relquery.table.cost.hits import unlimited_hits

_COUNTED = 4096  # at most this many prompts are billed; of more, some runs of neighbours
_RUNS = 4
_LEARNED = 256  # answers from which the factor of tokens is learned
# Seconds of an answer of a provider's model until its first token, and per token.
_FIRST = Range(0.3, 1.0, 4.0)
_PER_TOKEN = Range(1 / 150, 1 / 60, 1 / 20)
_SUGGESTED = 3  # models with a lower minimum

Known = Sequence[tuple[Prompt, Answer]]


@dataclass(frozen=True, slots=True)
class Unshared:
    """No prompt begins with as many shared tokens as the provider caches.

    longest: tokens that two prompts share at most. model, minimum: the price's. lower: models that
    cache prefixes as short as these, with their minimum.
    """

    longest: int
    model: str
    minimum: int
    lower: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        missing = self.minimum - self.longest
        others = ", ".join(f"{name} (from {least:,} on)" for name, least in self.lower)
        elsewhere = f"; or another model: {others}" if others else ""
        return (
            f"sharing saves nothing: prompts begin with at most {self.longest:,} shared tokens, "
            f"and {self.model} caches prefixes of {self.minimum:,} or more. {missing:,} more would "
            "change that: a longer instruction, with examples, or more text that several rows "
            f"have, sent first{elsewhere}"
        )


def unshared(longest: float, price: Price) -> Unshared | None:
    """What to say if prompts share at most `longest` tokens of the provider; None if they suffice.

    Also None where the provider's minimum is not known.
    """
    if not 0 <= longest < price.minimum:
        return None
    lower = [one for one in all_prices().values() if 0 < one.minimum <= longest]
    cheapest = sorted(lower, key=lambda one: one.uncached)[:_SUGGESTED]
    names = tuple((one.name, one.minimum) for one in cheapest)
    return Unshared(int(longest), price.name, price.minimum, names)


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage takes. input: all prompt tokens; cached: those that a cache serves.

    live: USD in our order. table: USD in the order of the table, with the provider's cache too.
    batch: USD through the batch API. None where no price is known. length: of the
    answers. calibration: how tokens were corrected; None if a tokenizer counted them.
    reasons: whether the model also reasons, unseen, and is paid for it.
    """

    calls: Range
    input: Range
    cached: Range
    output: Range
    seconds: Range | None
    live: Range | None
    table: Range | None
    batch: Range | None
    length: Length
    calibration: Calibration | None
    unshared: Unshared | None = None
    reasons: bool = False

    def __mul__(self, part: Range | float) -> StageCost:
        """For a part of the calls."""
        figures: dict[str, Any] = {}
        for name in FIGURES:
            one: Range | None = getattr(self, name)
            figures[name] = None if one is None else one * part
        return replace(self, **figures)

    def plus(self, more: StageCost) -> StageCost:
        """The same stage, for some more calls."""
        sums: dict[str, Any] = {}
        for name in FIGURES:
            one, other = getattr(self, name), getattr(more, name)
            sums[name] = None if one is None or other is None else one + other
        found = self if self.unshared is None else more
        return replace(self, **sums, unshared=found.unshared)


FIGURES = ("calls", "input", "cached", "output", "seconds", "live", "table", "batch")


@dataclass(frozen=True, slots=True)
class _Bills:
    """Input at best, as expected, and if nothing is read from the cache; USD and tokens read."""

    best: Bill
    expected: Bill
    worst: Bill

    def usd(self, scale: float, error: float) -> Range:
        high = max(self.worst.usd, self.worst.usd_without_cache)
        return Range(
            self.best.usd * scale * (1 - error),
            self.expected.usd * scale,
            high * scale * (1 + error),
        )


@dataclass(slots=True)
class Estimator:
    """Estimates the stages of a statement, one after the other.

    What the first stages show of the provider's tokens is used for those after them.
    """

    backend: Backend
    price: Price | None = field(init=False)
    _counter: Counter = field(default_factory=Counter)
    _seen: Calibration = field(default_factory=Calibration)

    def __post_init__(self) -> None:
        self.price = known_price(self.backend.name)

    def stage(
        self,
        ours: Sequence[Prompt],
        written: Sequence[Prompt],
        sampling: Sampling,
        known: Known,
        length: float | None = None,
        hit_rate: float | None = None,
    ) -> StageCost:
        """What prompts cost that are sent in our order; written: the same in the table's order.

        known: prompts of this call that have been answered, with their answers. length: tokens of
        its answers on average, if they were measured. hit_rate: of a cache on this machine.
        """
        sample = _neighbours(ours)
        counts = self.backend.prompt_tokens(sample, sampling)
        lengths = self._length(sampling, known, length)
        scale = len(ours) / len(sample) if sample else 0.0
        if counts is not None and self.price is None:
            return self._local(len(ours), counts, scale, sampling, lengths, hit_rate or 0.0)
        calibration = self._calibrated(known, sample, counts)
        return self._of_provider(ours, sample, _neighbours(written), lengths, calibration)

    def _length(self, sampling: Sampling, known: Known, measured: float | None) -> Length:
        wraps = self.backend.one_pass(sampling) is None
        tokens = [answer.output_tokens for _, answer in known if answer.output_tokens]
        if not tokens and measured is not None:
            return Length(Range(measured / 2, measured, measured * 2), "answers")
        found = expected_length(sampling, self._counter.text, tokens, wraps=wraps)
        if self.price is not None and self.price.reasoning and found.source != "answers":
            high = max(found.tokens.high, float(sampling.max_tokens))
            return replace(found, tokens=replace(found.tokens, high=high))
        return found

    def _calibrated(
        self, known: Known, sample: Sequence[Prompt], counts: Sequence[int] | None
    ) -> Calibration:
        """From a tokenizer of the backend; or from answers, else from those of other stages."""
        some = known[:_LEARNED]
        prompts = [prompt for prompt, _ in some]
        found = calibrate(
            [self._counter.count(prompt) for prompt in prompts],
            [answer.prompt_tokens for _, answer in some],
        )
        if not found.answers and counts is not None:
            found = calibrate([self._counter.count(prompt) for prompt in sample], counts)
        if found.answers:
            self._seen = found
        return self._seen

    def _local(
        self,
        calls: int,
        counts: Sequence[int],
        scale: float,
        sampling: Sampling,
        length: Length,
        hit_rate: float,
    ) -> StageCost:
        total, most = sum(counts) * scale, float(sampling.max_tokens)
        all_counts = [round(total / calls)] * calls if scale > 1 else list(counts)
        ways = (length.tokens.low, hit_rate), (length.tokens.expected, hit_rate), (most, 0.0)
        seconds = [self._predicted(all_counts, sampling, *way) for way in ways]
        known = [one for one in seconds if one is not None]
        took = Range(min(known), sorted(known)[1], max(known)) if len(known) == 3 else None
        return StageCost(
            ONE * float(calls),
            Range.of(total),
            Range(0.0, total * hit_rate, total * hit_rate),
            length.tokens * float(calls),
            took,
            None,
            None,
            None,
            length,
            None,
        )

    def _predicted(
        self, counts: Sequence[int], sampling: Sampling, length: float, hit_rate: float
    ) -> float | None:
        """Seconds on this machine, with answers of a length."""
        answers = replace(sampling, max_tokens=max(1, round(length)))
        cached = int(hit_rate * sum(counts))
        return self.backend.predict(counts, answers, cached) if counts else 0.0

    def _of_provider(
        self,
        ours: Sequence[Prompt],
        sample: Sequence[Prompt],
        written: Sequence[Prompt],
        length: Length,
        calibration: Calibration,
    ) -> StageCost:
        calls, price, error = len(ours), self.price, calibration.error
        scale = calls / len(sample) if sample else 0.0
        counted = sum(map(self._counter.count, sample))
        tokens = counted * scale * calibration.factor
        output = length.tokens * float(calls)
        told = StageCost(
            ONE * float(calls),
            Range.of(tokens, error),
            NONE,
            output,
            self._seconds(calls, tokens, length.tokens),
            None,
            None,
            None,
            length,
            calibration,
        )
        if price is None:
            return told
        each = _FIRST.expected + _PER_TOKEN.expected * length.tokens.expected
        most = self.backend.requests_per_minute
        rate = min(60 * self._under_way / each, inf if most is None else most)
        bills = self._bills(sample, price, calibration.factor, rate, is_ours=True)
        table = self._bills(written, price, calibration.factor, rate, is_ours=False)
        scale *= calibration.factor
        answers = output * (price.output / 1e6)
        live = bills.usd(scale, error)
        batch = None
        if price.batch is not None:  # a batch's requests run together: nothing is sure to be read
            plain = bills.best.usd_without_cache * scale
            batch = Range(live.low, plain, plain * (1 + error)) + answers
            batch *= price.batch
        longest = self._longest(sample, price) * calibration.factor
        return replace(
            told,
            cached=Range(0.0, bills.expected.read * scale, bills.best.read * scale * (1 + error)),
            live=live + answers,
            table=table.usd(scale, error) + answers,
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
        rules, gap = in_our_tokens(price, factor), self._unread
        if is_ours:
            plan = cache_plan(prompts, price, self._under_way, factor=factor, counter=self._counter)
            later = [prompts[at] for at in plan.order]
            # The plan marks somewhat shorter prefixes, too; the provider ignores those.
            lengths = [plan.lengths[at] for at in plan.order]
            marks = [tuple(one for one in own if one >= rules.minimum) for own in lengths]
        if not price.breakpoints:
            tokens = self._counter.tokens(prompts)
            sent = self._counter.tokens(later) if is_ours else tokens
            return _Bills(
                bill_automatic(tokens, rules),
                bill_automatic(sent, rules, gap, rate),
                bill_automatic(tokens, rules, NEVER),
            )
        blocks = self._counter.blocks(prompts)
        best = bill(blocks, rules)
        if not is_ours:
            marks = best.breakpoints
        sent_blocks = self._counter.blocks(later) if is_ours else blocks
        return _Bills(
            best,
            bill_marked(sent_blocks, rules, marks, gap),
            bill_marked(sent_blocks, rules, marks, NEVER),
        )

    def _longest(self, prompts: Sequence[Prompt], price: Price) -> int:
        """Tokens of ours of the longest prefix that a cache could serve."""
        if price.breakpoints:
            return int(self._counter.blocks(prompts).tree().hits.max(initial=0))
        return int(unlimited_hits(self._counter.tokens(prompts)).max(initial=0))

    @property
    def _under_way(self) -> int:
        return self.backend.concurrency or 1

    @property
    def _unread(self) -> int:
        """How many requests begin, as expected, until one can be read that began with the first.

        All that are under way, if each begins when the one that has taken longest ends; half as
        many on average if those that begin together also end together. It is taken to be between.
        """
        return -(-3 * self._under_way // 4)

    def _seconds(self, calls: int, tokens: float, length: Range) -> Range | None:
        """Until the last answer of a provider that takes all that are under way, or as many as its
        limits let through. tokens: of all prompts.
        """
        if self.backend.concurrency is None:
            return None
        each = _FIRST + _PER_TOKEN * length
        rounds = max(calls / self.backend.concurrency, 1.0) if calls else 0.0
        took = Range(each.low * rounds, each.expected * rounds, each.high * ceil(rounds))
        least = 0.0
        if (limit := self.backend.requests_per_minute) is not None:
            least = 60 * calls / limit
        if (limit := self.backend.tokens_per_minute) is not None:
            least = max(least, 60 * (tokens + calls * length.expected) / limit)
        return Range(max(took.low, least), max(took.expected, least), max(took.high, least))


def _neighbours(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts; of very many, some runs of neighbours."""
    if len(prompts) <= _COUNTED:
        return list(prompts)
    length = _COUNTED // _RUNS
    starts = np.linspace(0, len(prompts) - length, _RUNS).astype(int).tolist()
    return [prompts[at] for start in starts for at in range(start, start + length)]
