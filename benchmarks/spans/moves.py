"""The cost of using a cached span at another position (paper 002, Fig. 13a)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Say
from relquery.config import EngineConfig
from relquery.engine.executor import SCRATCH, Chunk, Segment
from relquery.engine.requests.request import Draw

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

QUERIES = 32  # tokens that see the span
DISTANCE = 512  # by which it is moved
LEAST_REPEATS = 5
_WHOLE = 1 << 20  # tokens of a slice: spans are computed at once, before anything is timed


@dataclass(frozen=True, slots=True)
class Moved:
    """Milliseconds of a step of 32 tokens that see a span of `tokens` tokens.

    plain: where it was computed. queries: elsewhere, with their queries rotated.
    """

    tokens: int
    plain: float
    queries: float


def measure(
    model: ServedModel,
    tokens: int,
    repeats: int,
    say: Say,
    finish: Callable[[], None] = lambda: None,
) -> Moved:
    """Time a span of `tokens` tokens both ways, in turn. finish: waits for a device's work."""
    size = EngineConfig().block_size
    slots = -(-tokens // size) * size
    ways = {
        "plain": _step(model, tokens, slots, 0),
        "queries": _step(model, tokens, slots, DISTANCE),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(max(repeats, LEAST_REPEATS) + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            finish()
            taken[name].append(1e3 * (time.perf_counter() - start))
    # The first run is a warm-up.
    row = Moved(tokens, **{name: median(seconds[1:]) for name, seconds in taken.items()})
    say(str(row))
    return row


def _step(model: ServedModel, tokens: int, slots: int, shift: int) -> Callable[[], object]:
    config = EngineConfig(slice_tokens=_WHOLE)
    executor = model.executor(config, slots, lambda: 0.0)
    span, ids = np.arange(tokens), np.arange(tokens) % model.vocabulary
    executor.execute([Chunk(0, ids.astype(np.int32), 0, (), span)])
    own = SCRATCH + np.arange(QUERIES)
    asked = np.arange(QUERIES, dtype=np.int32)
    step = [Chunk(0, asked, tokens + shift, (Segment(span, 0, shift),), own, Draw())]
    return lambda: executor.execute(step)
