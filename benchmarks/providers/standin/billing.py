"""What a provider bills for its requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from benchmarks.providers.standin.cache import Cache, Reading, cache_of
from benchmarks.providers.standin.prompt import Counter, Sent
from benchmarks.providers.standin.rules import BATCH, RULES, Rules
from benchmarks.providers.standin.tokens import pieces

MILLION = 1e6


def usd(rules: Rules, reading: Reading, answered: int, *, in_batch: bool = False) -> float:
    """What one request costs. answered: output tokens."""
    cost = (
        reading.uncached * rules.input
        + reading.read * rules.cached
        + reading.written * rules.write
        + reading.written_hour * rules.write_hour
        + answered * rules.output
    )
    return cost / MILLION * (BATCH if in_batch else 1.0)


@dataclass(slots=True)
class Totals:
    """What was billed: requests, USD, and tokens by kind."""

    requests: int = 0
    usd: float = 0.0
    uncached: int = 0
    read: int = 0
    written: int = 0
    answered: int = 0

    def add(self, reading: Reading, answered: int, cost: float) -> None:
        """Count a request."""
        self.requests += 1
        self.usd += cost
        self.uncached += reading.uncached
        self.read += reading.read
        self.written += reading.written + reading.written_hour
        self.answered += answered

    @property
    def input(self) -> int:
        """Input tokens of all kinds."""
        return self.uncached + self.read + self.written


@dataclass(slots=True)
class Account:
    """A customer: caches by model, and what has been billed.

    counter: counts tokens as the provider does. capacity: the most tokens that each cache holds.
    """

    counter: Counter = field(default_factory=lambda: Counter(pieces))
    capacity: float = inf
    totals: Totals = field(default_factory=Totals)
    _caches: dict[str, Cache] = field(default_factory=dict)

    def look_up(self, model: str, sent: Sent, now: float) -> Reading:
        """What a request reads and will write. now: seconds."""
        if model not in self._caches:
            self._caches[model] = cache_of(RULES[model], self.counter, self.capacity)
        return self._caches[model].look_up(sent, now)

    def bill(self, model: str, reading: Reading, answer: str, *, in_batch: bool = False) -> int:
        """Charge for an answered request; returns the output tokens."""
        answered = self.counter.text(answer)
        cost = usd(RULES[model], reading, answered, in_batch=in_batch)
        self.totals.add(reading, answered, cost)
        return answered
