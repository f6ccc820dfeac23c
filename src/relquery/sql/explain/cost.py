"""The cost of a stage's prompts in figures: tokens, seconds, USD; and as EXPLAIN (COST) shows
them, a row per stage and one for all.

Answers have the length of those to the same call that are known; else that of the type asked for;
else an assumption that the explanation states.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from operator import add
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from relquery.prices.price import Price
from relquery.prices.table import all_prices
from relquery.prompt import Compared, Sampling

Source = Literal["answers", "type", "assumed"]


@dataclass(frozen=True, slots=True)
class Range:
    """low <= expected <= high. The bounds of a sum are the sums of the bounds."""

    low: float
    expected: float
    high: float

    @classmethod
    def of(cls, value: float, error: float = 0.0) -> Range:
        """A value and its relative error, from 0 to 1."""
        return cls(value * (1 - error), value, value * (1 + error))

    def __add__(self, more: Range) -> Range:
        return Range(self.low + more.low, self.expected + more.expected, self.high + more.high)

    def __mul__(self, other: Range | float) -> Range:
        range_ = other if isinstance(other, Range) else Range(other, other, other)
        return Range(
            self.low * range_.low, self.expected * range_.expected, self.high * range_.high
        )

    def at_least(self, least: float) -> Range:
        """The same, no part of it below a limit."""
        return Range(max(self.low, least), max(self.expected, least), max(self.high, least))

    def at_most(self, most: float) -> Range:
        """The same, no part of it above a limit."""
        return Range(min(self.low, most), min(self.expected, most), min(self.high, most))


TEXT = Range(1, 60, 256)
"""Tokens of an answer in words, if nothing is known. Its high end is max_tokens if that is more."""
_STRING = ("n", "a short text", "a text of a few sentences, as a description is. " * 3)
_ITEMS = (1, 3, 8)
_NUMBERS = {"integer": (1, 42, 1234567), "number": (1, 3.5, 12345.678)}
_FORMATS = {
    "date": "2026-11-28",
    "time": "12:30:00",
    "date-time": "2026-11-28T12:30:00Z",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
_DEEPEST = 6
_T_95 = 2.26  # of ten answers, which a preview has


@dataclass(frozen=True, slots=True)
class Length:
    """The mean number of tokens per answer, and where it is from."""

    tokens: Range
    source: Source


def expected_length(
    sampling: Sampling, count: Callable[[str], int], known: Sequence[int], *, wraps: bool
) -> Length:
    """The expected length of the answers to a call.

    count: tokens of a text. known: tokens of answers to this call. wraps: whether labels come as
    JSON, as a provider is asked for them.
    """
    most = sampling.max_tokens
    if known:
        return Length(_measured(known), "answers")
    if sampling.labels:
        wrapped = wraps and not (sampling.scored or sampling.told)
        tokens = [
            count(json.dumps({"answer": label}) if wrapped else label) for label in sampling.labels
        ]
        return Length(Range(min(tokens), fmean(tokens), max(tokens)), "type")
    if sampling.schema is not None:
        schema = json.loads(sampling.schema)
        shared = schema.get("$defs") or schema.get("definitions") or {}
        sizes = (count(_dumped(_example(schema, size, shared))) for size in range(3))
        return Length(Range(*accumulate(sizes, max)).at_most(most), "type")
    if isinstance(sampling, Compared):
        longest = max(map(count, sampling.texts), default=1)
        return Length(Range(1, longest + 1, most).at_most(most), "type")
    assumed = Range(TEXT.low, TEXT.expected, max(TEXT.high, most))
    return Length(assumed.at_most(most), "assumed")


def _measured(known: Sequence[int]) -> Range:
    """The mean of answers with its 95% interval; of a single one, half and twice its length."""
    mean = fmean(known)
    if len(known) == 1:
        return Range(mean / 2, mean, mean * 2)
    error = _T_95 * stdev(known) / math.sqrt(len(known))
    return Range(max(float(min(known)), mean - error), mean, min(float(max(known)), mean + error))


def _example(schema: Any, size: int, shared: dict[str, Any], depth: int = 0) -> Any:
    """A value under a JSON Schema. size: 0 for a short one, 1 for a usual one, 2 for a long one."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None

    def inner(part: Any) -> Any:
        return _example(part, size, shared, depth + 1)

    if "$ref" in schema:
        return inner(shared.get(str(schema["$ref"]).rpartition("/")[2]))
    for key in ("anyOf", "oneOf", "allOf"):
        if options := schema.get(key):
            by_size = sorted(map(inner, options), key=_size)
            return by_size[0] if size == 0 and key != "allOf" else by_size[-1]
    if values := [schema["const"]] if "const" in schema else schema.get("enum"):
        return sorted(values, key=_size)[(0, len(values) // 2, -1)[size]]
    if "properties" in schema:
        return {name: inner(part) for name, part in schema["properties"].items()}
    return _of_type(schema, size, inner)


def _of_type(schema: dict[str, Any], size: int, inner: Callable[[Any], Any]) -> Any:
    kind: Any = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if kind == "array":
        count = max(_ITEMS[size], schema.get("minItems", 0))
        item = inner(schema.get("items", {"type": "string"}))
        return [item] * min(count, schema.get("maxItems", count))
    if kind == "string":
        text = _FORMATS.get(str(schema.get("format")), _STRING[size])
        return text[: schema.get("maxLength", len(text))]
    if kind in _NUMBERS:
        return _NUMBERS[kind][size]
    return {"boolean": True, "object": {}}.get(kind)


def _dumped(value: Any) -> str:
    """A value without blanks, as models write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _size(value: Any) -> int:
    return len(_dumped(value))


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
    """The tokens that a provider bills for one that we count. factor: its tokens per token of ours.

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
    """The cost of a stage. input: all prompt tokens; cached: those that a cache serves.

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
        known = {name: value for name in _FIGURES if (value := getattr(self, name)) is not None}
        return replace(self, **{name: value * part for name, value in known.items()})

    def __add__(self, more: StageCost) -> StageCost:
        """The same stage, for some more calls."""
        return replace(self, **sums(self, more, _FIGURES), unshared=self.unshared or more.unshared)


def unshared(longest: float, price: Price) -> str | None:
    """What to say if prompts share at most `longest` tokens of the provider; None if they suffice.

    Also None where the provider's minimum is not known.
    """
    if not 0 <= longest < price.minimum:
        return None
    lower = [price for price in all_prices().values() if 0 < price.minimum <= longest]
    cheapest = sorted(lower, key=lambda one: one.uncached)[:_SUGGESTED]
    others = ", ".join(f"{price.name} (from {price.minimum:,} on)" for price in cheapest)
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
    known = [cost for cost in costs.values() if cost is not None]
    if len(known) < len(costs):
        return {**costs, TOTAL: None}
    by_model: dict[str, list[StageCost]] = {}
    for cost in known:
        by_model.setdefault(cost.model, []).append(cost)
    sums_of = {f"{TOTAL} {model}": _sum(some) for model, some in by_model.items()}
    return {**costs, **(sums_of if len(sums_of) > 1 else {}), TOTAL: _sum(known)}


def _sum(costs: Iterable[StageCost]) -> StageCost:
    return replace(reduce(add, costs), unshared=None)


def columns(costs: Costs) -> dict[str, list[str]]:
    """Cells to show, by title; what is not known of any stage is left out."""
    rows = with_total(costs)
    shown = {"stage": list(rows)}
    for name, (title, _) in _FIGURES.items():
        shown[title] = [_cell(name, getattr(row, name, None)) for row in rows.values()]
    return {title: cells for title, cells in shown.items() if any(cells)}


def table(costs: Costs, notes: Sequence[str]) -> pa.Table:
    """As a table of COST_SCHEMA. notes: about all stages; they stand at the first one."""
    rows = []
    for index, (name, cost) in enumerate(with_total(costs).items()):
        row: dict[str, Any] = {"stage": name}
        for figure, (_, column) in _FIGURES.items():
            if (value := getattr(cost, figure, None)) is not None:
                bounds = {f"{column}_low": value.low, f"{column}_high": value.high}
                row |= {column: value.expected, **bounds}
        own = [] if cost is None or cost.unshared is None else [cost.unshared]
        row["answers"] = None if cost is None else cost.length.source
        row["note"] = "; ".join([*own, *(notes if index == 0 else ())]) or None
        rows.append(row)
    return pa.Table.from_pylist(rows, COST_SCHEMA)


def notes(costs: Costs) -> Iterator[str]:
    """What the figures rest on."""
    known = {name: cost for name, cost in costs.items() if cost is not None}
    for name, cost in known.items():
        tokens = cost.length.tokens
        if cost.calls.high:
            yield (
                f"{name}: answers {_LENGTHS[cost.length.source]} are taken to have "
                f"{tokens.expected:,.0f} tokens ({tokens.low:,.0f} to {tokens.high:,.0f})"
            )
    yield from sorted({str(cost.calibration) for cost in known.values() if cost.calibration})
    yield from reasoning(known)
    if any(cost.batch is not None for cost in known.values()):
        yield "A batch is answered within 24 hours; what its requests share may not be cached"


def reasoning(costs: Costs) -> Iterator[str]:
    """That expected figures leave out what a model thinks, if one does."""
    if any(cost.reasons for cost in costs.values() if cost is not None):
        yield (
            "The model reasons before it answers, and bills that as output. Only the high figure "
            "counts it, up to max_tokens; `preview` measures it"
        )


def _cell(name: str, figure: Range | None) -> str:
    if figure is None:
        return ""
    middle, low, high = (
        _written(name, number) for number in (figure.expected, figure.low, figure.high)
    )
    return middle if low == high == middle else f"{middle} ({low} to {high})"


def _written(name: str, value: float) -> str:
    """Whole tokens, calls and large figures; two digits of small ones."""
    if name in _COUNTS or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 or not value else f"{value:#.2g}"
