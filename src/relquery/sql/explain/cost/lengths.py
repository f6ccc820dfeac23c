"""How many tokens answers are expected to have.

The best source that there is: answers to the same call that are known, then the type asked for,
then an assumption that the explanation states.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from relquery.prompt import Compared, Sampling

Source = Literal["answers", "type", "assumed"]
Count = Callable[[str], int]


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


ONE = Range(1, 1, 1)
NONE = Range(0, 0, 0)

TEXT = Range(1, 60, 256)
"""Tokens of an answer in words, if nothing is known. Its high end is max_tokens if that is less."""
_STRING = ("n", "a short text", "a text of a few sentences, as a description is. " * 3)
_ITEMS = (1, 3, 8)
_DEEPEST = 6
_NUMBERS = {"integer": ("1", "42", "1234567"), "number": ("1", "3.5", "12345.678")}
_FORMATS = {
    "date": "2026-11-28",
    "time": "12:30:00",
    "date-time": "2026-11-28T12:30:00Z",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
_T_95 = 2.26  # of ten answers, which a preview has


@dataclass(frozen=True, slots=True)
class Length:
    """The mean number of tokens per answer, and where it is from."""

    tokens: Range
    source: Source


def expected_length(
    sampling: Sampling, count: Count, known: Sequence[int], *, wraps: bool
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
        texts = [json.dumps({"answer": one}) if wrapped else one for one in sampling.labels]
        tokens = [count(text) for text in texts]
        return Length(Range(min(tokens), fmean(tokens), max(tokens)), "type")
    if sampling.schema is not None:
        low, middle, high = (count(text) for text in _examples(json.loads(sampling.schema)))
        return Length(_within(Range(low, max(low, middle), max(low, middle, high)), most), "type")
    if isinstance(sampling, Compared):
        longest = max((count(text) for text in sampling.texts), default=1)
        return Length(_within(Range(1, longest + 1, most), most), "type")
    return Length(_within(Range(TEXT.low, TEXT.expected, max(TEXT.high, most)), most), "assumed")


def _measured(known: Sequence[int]) -> Range:
    """The mean of answers with its 95% interval; of a single one, half and twice its length."""
    mean = fmean(known)
    if len(known) == 1:
        return Range(mean / 2, mean, mean * 2)
    error = _T_95 * stdev(known) / math.sqrt(len(known))
    return Range(max(float(min(known)), mean - error), mean, min(float(max(known)), mean + error))


def _within(tokens: Range, most: int) -> Range:
    return Range(min(tokens.low, most), min(tokens.expected, most), min(tokens.high, most))


def _examples(schema: dict[str, Any]) -> list[str]:
    """A short, a usual and a long answer under a JSON Schema, without blanks as models write it."""
    shared = schema.get("$defs") or schema.get("definitions") or {}
    return [_written(schema, size, shared, 0) for size in range(3)]


def _written(schema: Any, size: int, shared: dict[str, Any], depth: int) -> str:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return "null"
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _written(shared.get(name), size, shared, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if options := schema.get(key):
            texts = sorted((_written(one, size, shared, depth + 1) for one in options), key=len)
            return texts[0] if size == 0 and key != "allOf" else texts[-1]
    if "const" in schema:
        return _dumped(schema["const"])
    if values := schema.get("enum"):
        texts = sorted(map(_dumped, values), key=len)
        return (texts[0], texts[len(texts) // 2], texts[-1])[size]
    return _of_type(schema, size, shared, depth)


def _of_type(schema: dict[str, Any], size: int, shared: dict[str, Any], depth: int) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind == "object" or "properties" in schema:
        parts = (
            f"{_dumped(name)}:{_written(one, size, shared, depth + 1)}"
            for name, one in schema.get("properties", {}).items()
        )
        return f"{{{','.join(parts)}}}"
    if kind == "array":
        count = max(_ITEMS[size], schema.get("minItems", 0))
        count = min(count, schema.get("maxItems", count))
        item = schema.get("items", {"type": "string"})
        return f"[{','.join([_written(item, size, shared, depth + 1)] * count)}]"
    if kind == "string":
        text = _FORMATS.get(str(schema.get("format")), _STRING[size])
        return _dumped(text[: schema.get("maxLength", len(text))])
    if kind in _NUMBERS:
        return _NUMBERS[kind][size]
    return "true" if kind == "boolean" else "null"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
