"""When it pays for short prompts to share a step, measured, and what the policy decides."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.prefill_only.workloads import HISTORY, scaled
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SCRATCH, Chunk, Segment
from relquery.engine.requests.request import Draw, Request
from relquery.engine.scheduling.policies.srjf import Candidate, pays

if TYPE_CHECKING:
    from relquery.model.served import ServedExecutor

UNCACHED = (4, 15, 60, 240, 960)
"""Uncached tokens of a prompt, after a cached beginning as long as a user's history."""
TOGETHER = (1, 2, 4, 8)
OTHERS = 20
"""Requests that wait while the policy decides."""


@dataclass(frozen=True, slots=True)
class Batched:
    """Prompts with `uncached` tokens to compute, after a common beginning of `cached` tokens.

    seconds: of a step, by its number of prompts. joins: how many prompts the policy lets share a
    step, with OTHERS waiting.
    """

    uncached: int
    cached: int
    seconds: dict[int, float]
    joins: int

    def each(self, together: int) -> float:
        """Seconds per prompt in a step, divided by those of a prompt alone."""
        return self.seconds[together] / together / self.seconds[1]


def measure(
    executor: ServedExecutor, cost: LinearCost, scale: float, repeats: int, seed: int
) -> list[Batched]:
    """Time steps of 1, 2, 4 and 8 such prompts in turn, each `repeats` times."""
    rng = np.random.default_rng(seed)
    cached = scaled(HISTORY[0], scale)
    beginning = np.arange(cached)
    ids = rng.integers(0, 256, cached + max(UNCACHED) * max(TOGETHER)).astype(np.int32)
    executor.execute([Chunk(0, ids[:cached], 0, (), beginning, Draw())])
    batched = []
    for uncached in UNCACHED:
        taken: dict[int, list[float]] = {count: [] for count in TOGETHER}
        for _ in range(repeats + 1):  # the first warms up
            for count in TOGETHER:
                chunks = [
                    _prompt(number, ids[cached + number * uncached :][:uncached], beginning)
                    for number in range(count)
                ]
                begin = time.perf_counter()
                executor.execute(chunks)
                taken[count].append(time.perf_counter() - begin)
        seconds = {count: median(times[1:]) for count, times in taken.items()}
        batched.append(Batched(uncached, cached, seconds, _joins(uncached, cached, cost)))
    return batched


def _prompt(number: int, tokens: np.ndarray, beginning: np.ndarray) -> Chunk:
    own = SCRATCH + number * len(tokens) + np.arange(len(tokens))
    return Chunk(number, tokens, len(beginning), (Segment(beginning),), own, Draw())


def _joins(uncached: int, cached: int, cost: LinearCost) -> int:
    request = Request(0, np.zeros(cached + uncached, np.int32), 1)
    members = 1
    while members < OTHERS and pays(Candidate(request, uncached), members, OTHERS - members, cost):
        members += 1
    return members


COLUMNS = ("uncached tokens", "alone", *(f"{count} together" for count in TOGETHER[1:]), "joined")


def rows(found: Sequence[Batched]) -> Iterator[tuple[str, ...]]:
    """A line of a table for each length, under COLUMNS."""
    for row in found:
        yield (
            f"{row.uncached:,}",
            f"{1e3 * row.seconds[1]:.1f} ms",
            *(f"{row.each(count):.2f}" for count in TOGETHER[1:]),
            f"{row.joins}",
        )
