"""The cost of using a cached span at another position, in three ways (paper 002, Fig. 13a)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Say
from relquery.config import EngineConfig, Relocation
from relquery.engine.block_pool import Batch, Move
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

    plain: where it was computed. queries, keys: elsewhere, with their queries or its keys rotated
    in each such step. cidra: of rotating its keys once and writing them back, after which steps
    are plain.
    """

    tokens: int
    plain: float
    queries: float
    keys: float
    cidra: float


def measure(
    model: ServedModel,
    tokens: int,
    repeats: int,
    say: Say,
    finish: Callable[[], None] = lambda: None,
) -> Moved:
    """Time a span of `tokens` tokens in each way, in turn. finish: waits for what a device was
    told."""
    size = EngineConfig().block_size
    slots = -(-tokens // size) * size
    ways = {
        "plain": _step(model, "queries", tokens, slots, 0),
        "queries": _step(model, "queries", tokens, slots, DISTANCE),
        "keys": _step(model, "keys", tokens, slots, DISTANCE),
        "cidra": _move(model, slots, size),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(max(repeats, LEAST_REPEATS) + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            finish()
            taken[name].append(1e3 * (time.perf_counter() - start))
    # The first run is a warm-up.
    row = Moved(tokens, **{name: median(found[1:]) for name, found in taken.items()})
    say(str(row))
    return row


def _step(
    model: ServedModel, relocation: Relocation, tokens: int, slots: int, shift: int
) -> Callable[[], object]:
    config = EngineConfig(relocation=relocation, slice_tokens=_WHOLE)
    executor = model.executor(config, slots, lambda: 0.0, lean=False)
    span, ids = np.arange(tokens), np.arange(tokens) % model.vocabulary
    executor.execute([Chunk(0, ids.astype(np.int32), 0, (), span)])
    own = SCRATCH + np.arange(QUERIES)
    asked = np.arange(QUERIES, dtype=np.int32)
    step = [Chunk(0, asked, tokens + shift, (Segment(span, 0, shift),), own, Draw())]
    return lambda: executor.execute(step)


def _move(model: ServedModel, slots: int, size: int) -> Callable[[], object]:
    executor = model.executor(EngineConfig(slice_tokens=_WHOLE), slots, lambda: 0.0, lean=False)
    ids = (np.arange(slots) % model.vocabulary).astype(np.int32)
    executor.execute([Chunk(0, ids, 0, (), np.arange(slots))])
    batch = Batch(tuple(Move(block, block, DISTANCE) for block in range(slots // size)))
    return lambda: executor.relocate([batch], size)
