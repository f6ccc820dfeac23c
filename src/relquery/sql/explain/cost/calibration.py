"""How many tokens a provider bills for one that we count.

Its tokenizer is not ours, and it adds tokens of its own: around messages, and for a schema. Both
are seen in the usage of answers to the same prompts, which a ledger keeps. The ratio of the sums is
the factor; the spread of single answers around it gives its error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

UNSEEN = 0.3
"""The relative error of our count, taken from texts in English, before any answer is seen."""
_OF_ONE = 0.1  # the same after a single one
_LEAST = 0.01
_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Calibration:
    """factor: their tokens per token of ours. error: of the factor, relative, with 95%
    confidence. answers: from how many answers it was learned.
    """

    factor: float = 1.0
    error: float = UNSEEN
    answers: int = 0

    @property
    def told(self) -> str:
        """How tokens were counted, in words."""
        if not self.answers:
            return f"tokens are estimated from words, within about {self.error:.0%}"
        answers = "1 answer" if self.answers == 1 else f"{self.answers:,} answers"
        return (
            f"the provider bills {self.factor:.2f} tokens for each one that is counted here, as "
            f"{answers} showed, within {self.error:.0%}"
        )


def calibrate(counted: Sequence[int], billed: Sequence[int]) -> Calibration:
    """Learn from the prompts of some answers: our count of each, and what was billed.

    Answers without usage, with which 0 tokens were billed, say nothing.
    """
    pairs = [pair for pair in zip(counted, billed, strict=True) if all(pair)]
    if not pairs:
        return Calibration()
    total = sum(ours for ours, _ in pairs)
    factor = sum(theirs for _, theirs in pairs) / total
    count = len(pairs)
    if count == 1:
        return Calibration(factor, _OF_ONE, 1)
    squares = sum((theirs - factor * ours) ** 2 for ours, theirs in pairs)
    of_mean = math.sqrt(squares / (count - 1) / count) / (factor * total / count)
    return Calibration(factor, max(_LEAST, _NORMAL_95 * of_mean), count)
