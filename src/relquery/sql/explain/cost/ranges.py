"""A figure with its bounds."""

from __future__ import annotations

from dataclasses import dataclass


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
