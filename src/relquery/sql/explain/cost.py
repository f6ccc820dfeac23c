"""What the prompts of a stage take, in figures: tokens, seconds, USD; and as EXPLAIN (COST) shows
them, a row per stage and one for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa

from relquery.prices.price import Price
from relquery.prices.table import all_prices
from relquery.sql.explain.lengths import Length, Range

TOTAL = "total"
UNSEEN = 0.3
"""The relative error of our count, taken from texts in English, before any answer is seen."""
_OF_ONE = 0.1  # the same after a single one
_LEAST = 0.01
_NORMAL_95 = 1.96
_SUGGESTED = 3  # models with a lower minimum
_FIGURES = {
    "calls": ("calls", "calls"),
    "input": ("input tokens", "input_tokens"),
    "cached": ("cached", "cached_tokens"),
    "output": ("output tokens", "output_tokens"),
    "seconds": ("seconds", "seconds"),
    "live": ("USD", "usd"),
    "table": ("USD in table order", "usd_table_order"),
    "batch": ("USD as a batch", "usd_batch"),
}  # of a stage: the title of each, and its column in a table
_COUNTS = ("calls", "input", "cached", "output")
_LENGTHS = {
    "answers": "as long as those that are known",
    "type": "as long as their type makes them",
    "assumed": "of no known length",
}


def sums(one: object, more: object, names: Iterable[str]) -> dict[str, Any]:
    """The sums of some attributes; None for one that is not known of both."""
    pairs = {name: (getattr(one, name), getattr(more, name)) for name in names}
    return {name: None if a is None or b is None else a + b for name, (a, b) in pairs.items()}


@dataclass(frozen=True, slots=True)
class Calibration:
    """How many tokens a provider bills for one that we count. factor: its tokens per token of ours.

    error: of the factor, relative, with 95% confidence. answers: from how many it was learned.
    """

    factor: float = 1.0
    error: float = UNSEEN
    answers: int = 0

    @classmethod
    def of(cls, counted: Sequence[int], billed: Sequence[int]) -> Calibration:
        """Learned from the prompts of some answers: our count of each, and what was billed.

        Answers without usage, with which 0 tokens were billed, say nothing.
        """
        pairs = [pair for pair in zip(counted, billed, strict=True) if all(pair)]
        if not pairs:
            return cls()
        ours, theirs = np.array(pairs, np.float64).T
        factor, count = float(theirs.sum() / ours.sum()), len(pairs)
        if count == 1:
            return cls(factor, _OF_ONE, 1)
        squares = float(((theirs - factor * ours) ** 2).sum())
        of_mean = math.sqrt(squares / (count - 1) / count) / (factor * float(ours.mean()))
        return cls(factor, max(_LEAST, _NORMAL_95 * of_mean), count)

    def __str__(self) -> str:
        if not self.answers:
            return f"Tokens are estimated from words, within about {self.error:.0%}"
        answers = "1 answer" if self.answers == 1 else f"{self.answers:,} answers"
        return (
            f"The provider bills {self.factor:.2f} tokens for each one that is counted here, as "
            f"{answers} showed, within {self.error:.0%}"
        )


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage takes. input: all prompt tokens; cached: those that a cache serves.

    live: USD in our order. table: USD in the order of the table, with the provider's cache too.
    batch: USD through the batch API. None where no price is known. length: of the answers.
    calibration: how tokens were corrected; None if a tokenizer counted them. unshared: why sharing
    saves nothing, if it does not. reasons: whether the model also reasons, unseen, and is paid for
    it. model: that is asked.
    """

    calls: Range
    input: Range
    cached: Range
    output: Range
    seconds: Range | None
    length: Length
    calibration: Calibration | None = None
    live: Range | None = None
    table: Range | None = None
    batch: Range | None = None
    unshared: str | None = None
    reasons: bool = False
    model: str = ""

    def __mul__(self, part: Range | float) -> StageCost:
        """For a part of the calls."""
        known = {name: one for name in _FIGURES if (one := getattr(self, name)) is not None}
        return replace(self, **{name: one * part for name, one in known.items()})

    def __add__(self, more: StageCost) -> StageCost:
        """The same stage, for some more calls."""
        return replace(self, **sums(self, more, _FIGURES), unshared=self.unshared or more.unshared)


def unshared(longest: float, price: Price) -> str | None:
    """What to say if prompts share at most `longest` tokens of the provider; None if they suffice.

    Also None where the provider's minimum is not known.
    """
    if not 0 <= longest < price.minimum:
        return None
    lower = [one for one in all_prices().values() if 0 < one.minimum <= longest]
    cheapest = sorted(lower, key=lambda one: one.uncached)[:_SUGGESTED]
    others = ", ".join(f"{one.name} (from {one.minimum:,} on)" for one in cheapest)
    elsewhere = f"; or another model: {others}" if others else ""
    return (
        f"sharing saves nothing: prompts begin with at most {int(longest):,} shared tokens, and "
        f"{price.name} caches prefixes of {price.minimum:,} or more. "
        f"{price.minimum - int(longest):,} more would change that: a longer instruction, with "
        f"examples, or more text that several rows have, sent first{elsewhere}"
    )


COST_SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        *(
            (f"{column}{bound}", pa.float64())
            for _, column in _FIGURES.values()
            for bound in ("_low", "", "_high")
        ),
        ("answers", pa.string()),
        ("note", pa.string()),
    ]
)
"""One row per stage, and one for all. NULL for what is not known."""

Costs = Mapping[str, StageCost | None]
"""By stage; None where nothing is known before the run."""


def with_total(costs: Costs) -> Costs:
    """The stages, and their sum if there are several; None if one of them is not known. Of several
    models, first the sum of each."""
    if len(costs) < 2:
        return costs
    known = [one for one in costs.values() if one is not None]
    if len(known) < len(costs):
        return {**costs, TOTAL: None}
    by_model: dict[str, list[StageCost]] = {}
    for one in known:
        by_model.setdefault(one.model, []).append(one)
    sums_of = {f"{TOTAL} {model}": _sum(some) for model, some in by_model.items()}
    return {**costs, **(sums_of if len(sums_of) > 1 else {}), TOTAL: _sum(known)}


def _sum(costs: Iterable[StageCost]) -> StageCost:
    return replace(reduce(add, costs), unshared=None)


def columns(costs: Costs) -> dict[str, list[str]]:
    """Cells to show, by title; what is not known of any stage is left out."""
    rows = with_total(costs)
    shown = {"stage": list(rows)}
    for name, (title, _) in _FIGURES.items():
        shown[title] = [_cell(name, getattr(one, name, None)) for one in rows.values()]
    return {title: cells for title, cells in shown.items() if any(cells)}


def table(costs: Costs, notes: Sequence[str]) -> pa.Table:
    """As a table of COST_SCHEMA. notes: about all stages; they stand at the first one."""
    rows = []
    for at, (name, cost) in enumerate(with_total(costs).items()):
        row: dict[str, Any] = {"stage": name}
        for figure, (_, column) in _FIGURES.items():
            if (found := getattr(cost, figure, None)) is not None:
                bounds = {f"{column}_low": found.low, f"{column}_high": found.high}
                row |= {column: found.expected, **bounds}
        own = [] if cost is None or cost.unshared is None else [cost.unshared]
        row["answers"] = None if cost is None else cost.length.source
        row["note"] = "; ".join([*own, *(notes if at == 0 else ())]) or None
        rows.append(row)
    return pa.Table.from_pylist(rows, COST_SCHEMA)


def notes(costs: Costs) -> Iterator[str]:
    """What the figures rest on."""
    known = {name: one for name, one in costs.items() if one is not None}
    for name, one in known.items():
        tokens = one.length.tokens
        if one.calls.high:
            yield (
                f"{name}: answers {_LENGTHS[one.length.source]} are taken to have "
                f"{tokens.expected:,.0f} tokens ({tokens.low:,.0f} to {tokens.high:,.0f})"
            )
    yield from sorted({str(one.calibration) for one in known.values() if one.calibration})
    yield from reasoning(known)
    if any(one.batch is not None for one in known.values()):
        yield "A batch is answered within 24 hours; what its requests share may not be cached"


def reasoning(costs: Costs) -> Iterator[str]:
    """That expected figures leave out what a model thinks, if one does."""
    if any(one.reasons for one in costs.values() if one is not None):
        yield (
            "The model reasons before it answers, and bills that as output. Only the high figure "
            "counts it, up to max_tokens; `preview` measures it"
        )


def _cell(name: str, figure: Range | None) -> str:
    if figure is None:
        return ""
    middle, low, high = (_written(name, one) for one in (figure.expected, figure.low, figure.high))
    return middle if low == high == middle else f"{middle} ({low} to {high})"


def _written(name: str, value: float) -> str:
    """Whole tokens, calls and large figures; two digits of small ones."""
    if name in _COUNTS or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 or not value else f"{value:#.2g}"
