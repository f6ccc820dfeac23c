"""What a provider bills for its requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from benchmarks.standin.cache import AutomaticCache, Cache, MarkedCache, Reading
from benchmarks.standin.prompt import Counter, Sent
from benchmarks.standin.rules import BATCH, RULES, Rules


def usd(rules: Rules, reading: Reading, answered: int, *, in_batch: bool = False) -> float:
    """What one request costs. answered: output tokens."""
    cost = (
        reading.uncached * rules.input
        + reading.read * rules.cached
        + reading.written * rules.write
        + reading.written_hour * rules.write_hour
        + answered * rules.output
    )
    return cost / 1e6 * (BATCH if in_batch else 1.0)


@dataclass(slots=True)
class Totals:
    """What was billed: requests, USD, and tokens by kind."""

    requests: int = 0
    usd: float = 0.0
    uncached: int = 0
    read: int = 0
    written: int = 0
    answered: int = 0

    @property
    def input(self) -> int:
        """Input tokens of all kinds."""
        return self.uncached + self.read + self.written


@dataclass(slots=True)
class Account:
    """A customer: caches by model, and what has been billed."""

    counter: Counter = field(default_factory=Counter)
    """Counts tokens as the provider does."""
    capacity: float = inf
    """The most tokens that each cache holds."""
    totals: Totals = field(default_factory=Totals)
    _caches: dict[str, Cache] = field(default_factory=dict)

    def look_up(self, model: str, sent: Sent, now: float) -> Reading:
        """What a request reads and will write. now: seconds."""
        if model not in self._caches:
            rules = RULES[model]
            kind = MarkedCache if rules.breakpoints else AutomaticCache
            self._caches[model] = kind(rules, self.counter, self.capacity)
        return self._caches[model].look_up(sent, now)

    def bill(self, model: str, reading: Reading, answer: str, *, in_batch: bool = False) -> int:
        """Charge for an answered request; returns the output tokens."""
        answered, totals = len(self.counter.encode(answer)), self.totals
        totals.requests += 1
        totals.usd += usd(RULES[model], reading, answered, in_batch=in_batch)
        totals.uncached += reading.uncached
        totals.read += reading.read
        totals.written += reading.written + reading.written_hour
        totals.answered += answered
        return answered
