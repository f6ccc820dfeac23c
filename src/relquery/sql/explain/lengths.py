"""How many tokens answers are expected to have.

The best source that there is: answers to the same call that are known, then the type asked for,
then an assumption that the explanation states.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, stdev
from typing import Any, Literal

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
        one = other if isinstance(other, Range) else Range(other, other, other)
        return Range(self.low * one.low, self.expected * one.expected, self.high * one.high)

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
        tokens = [count(json.dumps({"answer": one}) if wrapped else one) for one in sampling.labels]
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
        kind = next((one for one in kind if one != "null"), "null")
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
