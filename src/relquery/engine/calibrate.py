"""Measuring what an executor's steps cost: batches of random tokens, timed one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from relquery.config import EngineConfig
from relquery.engine.clock import Clock
from relquery.engine.executor import Chunk, Executor, Segment
from relquery.engine.fit import Fit, Step, fit
from relquery.engine.request import Draw

REPEATS = 3
PROMPT = 200  # tokens of most prompts over tables (paper 003, Table 4)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """A batch to be timed. prompts: (tokens, context) of each; decodes: context of each."""

    prompts: tuple[tuple[int, int], ...] = ()
    decodes: tuple[int, ...] = ()

    @property
    def slots(self) -> int:
        """Cache slots that it needs."""
        return sum(map(sum, self.prompts)) + sum(self.decodes) + len(self.decodes)


def calibrate(
    executor: Executor,
    limits: EngineConfig,
    clock: Clock,
    *,
    vocabulary: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Fit a cost model to an executor, and tell how well it predicts batches of other shapes.

    What lies in the cache is overwritten. vocabulary: token ids are below it. progress: called
    with ("batches", timed so far, in all).
    """
    rng = np.random.default_rng(seed)
    known = [shape for shape in regular(limits) if shape.slots <= limits.cache_tokens]
    other = [shape for shape in irregular(limits, rng) if shape.slots <= limits.cache_tokens]
    steps = []
    for number, shape in enumerate([*known, *other]):
        steps.append(_timed(executor, shape, clock, rng, vocabulary))
        if progress is not None:
            progress("batches", number + 1, len(known) + len(other))
    return fit(steps[: len(known)], steps[len(known) :])


def regular(limits: EngineConfig) -> Iterator[Shape]:
    """Batches over the range that a service sees: sizes doubling, contexts none, short and long."""
    for tokens in _doubling(16, limits.max_num_batched_tokens):
        for context in (0, 64, 512):
            yield Shape(prompts=_prompts(tokens, context))
    for requests in _doubling(1, limits.max_num_seqs):
        for context in (16, 128, 512):
            yield Shape(decodes=(context,) * requests)


def irregular(limits: EngineConfig, rng: np.random.Generator, count: int = 24) -> Iterator[Shape]:
    """Batches of random sizes and contexts: prompts, decodes, and both."""
    for number in range(count):
        tokens = int(np.exp(rng.uniform(np.log(16), np.log(limits.max_num_batched_tokens))))
        requests = int(np.exp(rng.uniform(0, np.log(limits.max_num_seqs))))
        contexts = rng.integers(16, 400, requests).tolist()
        prompts = _prompts(tokens, int(rng.integers(0, 400)))
        yield Shape(
            prompts=prompts if number % 3 != 1 else (),
            decodes=tuple(contexts) if number % 3 != 0 else (),
        )


def _doubling(least: int, most: int) -> Iterator[int]:
    size = least
    while size < most:
        yield size
        size *= 2
    yield most


def _prompts(tokens: int, context: int) -> tuple[tuple[int, int], ...]:
    whole, rest = divmod(tokens, PROMPT)
    return ((PROMPT, context),) * whole + (((rest, context),) if rest else ())


def _timed(
    executor: Executor, shape: Shape, clock: Clock, rng: np.random.Generator, vocabulary: int
) -> Step:
    """The median of some runs after one that warms up."""
    seconds = []
    for _ in range(REPEATS + 1):
        chunks = _chunks(shape, rng, vocabulary)
        begin = clock.now()
        executor.execute(chunks)
        seconds.append(clock.now() - begin)
    context = sum(chunk.context_tokens for chunk in chunks)
    tokens = sum(length for length, _ in shape.prompts)
    return Step(tokens, len(shape.decodes), context, median(seconds[1:]))


def _chunks(shape: Shape, rng: np.random.Generator, vocabulary: int) -> Sequence[Chunk]:
    parts = [*shape.prompts, *((1, context) for context in shape.decodes)]
    chunks, slot = [], 0
    for number, (length, context) in enumerate(parts):
        tokens = rng.integers(0, vocabulary, length).astype(np.int32)
        before = np.arange(slot, slot + context)
        writes = np.arange(slot + context, slot + context + length)
        segments = (Segment(before),) if context else ()
        chunks.append(Chunk(number, tokens, context, segments, writes, Draw()))
        slot += context + length
    return chunks
