"""Measuring what an executor's steps cost on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from relquery.config import EngineConfig
from relquery.engine.cost import Fit, Step, fit
from relquery.engine.executor import Chunk, Clock, Executor, Segment
from relquery.engine.requests.request import Draw
from relquery.errors import ConfigError

REPEATS = 3
PROMPT = 200  # tokens of most prompts over tables (paper 003, Table 4)
QUICK_TOKENS, QUICK_REQUESTS = 768, 96  # of the largest batches of a quick calibration
QUICK_SECONDS = 2.0  # after this, a quick calibration skips repeats and large batches
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class BatchShape:
    """A batch to be timed. prompts: (tokens, context) of each; decodes: context of each."""

    prompts: tuple[tuple[int, int], ...] = ()
    decodes: tuple[int, ...] = ()

    @property
    def slots(self) -> int:
        """Cache slots that it needs."""
        return sum(map(sum, self.prompts)) + sum(self.decodes) + len(self.decodes)

    def within(self, longest: int) -> BatchShape:
        """The same batch, with requests cut to at most `longest` tokens including context."""
        lengths = [(min(tokens, longest), context) for tokens, context in self.prompts]
        return BatchShape(
            tuple((tokens, min(context, longest - tokens)) for tokens, context in lengths),
            tuple(min(context, longest - 1) for context in self.decodes),
        )


def calibrate(
    executor: Executor,
    limits: EngineConfig,
    clock: Clock,
    *,
    vocabulary: int,
    longest: int | None = None,
    quick: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Fit a cost model to an executor, and check how well it predicts batches of other shapes.

    The content of the cache is overwritten. vocabulary: token ids are below it. longest: the most
    tokens that one request may have, the model's context. quick: time few batches, and none of
    other shapes, so `held_out` is None; takes a second or two for ten million parameters on two
    cores. progress: called with ("batches", timed so far, total), unless `quick`.

    Raises ConfigError if the cache is too small for three batches of each kind, unless `quick`.
    """
    rng = np.random.default_rng(seed)
    bench = _Bench(executor, clock, rng, vocabulary, longest)
    if quick:
        return fit(list(_in_haste(bench, limits)))
    known = [bench.fitting(shape) for shape in regular(limits)]
    _check_room(known, limits)
    other = [bench.fitting(shape) for shape in irregular(limits, rng)]
    known, other = (
        [shape for shape in shapes if shape.slots <= limits.cache_tokens]
        for shapes in (known, other)
    )
    steps = []
    for number, shape in enumerate([*known, *other]):
        # The first run is a warm-up.
        runs = [bench.run(shape) for _ in range(REPEATS + 1)][1:]
        steps.append(bench.step(shape, median(runs)))
        if progress is not None:
            progress("batches", number + 1, len(known) + len(other))
    return fit(steps[: len(known)], steps[len(known) :])


def _check_room(shapes: Sequence[BatchShape], limits: EngineConfig) -> None:
    """Raise ConfigError for a cache that holds fewer than three batches of a kind."""
    least = max(
        sorted(shape.slots for shape in shapes if bool(shape.decodes) is decodes)[2]
        for decodes in (False, True)
    )
    if limits.cache_tokens < least:
        whole = -(-least // limits.block_size) * limits.block_size
        raise ConfigError(
            f"The KV cache holds {limits.cache_tokens} tokens, too few to calibrate with. Set "
            f"cache_tokens to at least {whole}; a few thousand give better costs."
        )


def _in_haste(bench: _Bench, limits: EngineConfig) -> Iterator[Step]:
    """Time a few batches. After QUICK_SECONDS, each is run once, and the largest are skipped.

    The shortest of several runs counts, because other load on the machine only makes runs longer.
    """
    until = bench.clock.now() + QUICK_SECONDS
    for number, shape in enumerate(map(bench.fitting, rapid(limits))):
        if number >= 8 and bench.clock.now() > until:
            return
        runs = [bench.run(shape)]
        while len(runs) < REPEATS and bench.clock.now() < until:
            runs.append(bench.run(shape))
        yield bench.step(shape, min(runs))


def regular(limits: EngineConfig) -> Iterator[BatchShape]:
    """Batches over the range that a service sees: doubling sizes; no, short and long contexts."""
    for tokens in _doubling(16, limits.max_num_batched_tokens):
        for context in (0, 64, 512):
            yield BatchShape(prompts=_prompts(tokens, context))
    for requests in _doubling(1, limits.max_num_seqs):
        for context in (16, 128, 512):
            yield BatchShape(decodes=(context,) * requests)


def rapid(limits: EngineConfig) -> Iterator[BatchShape]:
    """The fewest batches that separate all costs: three sizes, small ones first, four of each.

    Contexts are cut to the size of the cache, so every machine has the same number of batches.
    """
    room = limits.cache_tokens
    sizes = _three(16, min(limits.max_num_batched_tokens, QUICK_TOKENS, room))
    counts = _three(1, min(limits.max_num_seqs, QUICK_REQUESTS, max(1, room // 2)))
    for tokens, requests in zip(sizes, counts, strict=True):
        for context in (0, 256):
            most = (room - tokens) // len(_prompts(tokens, 0))
            yield BatchShape(prompts=_prompts(tokens, min(context, most)))
        for context in (16, 256):
            yield BatchShape(decodes=(min(context, room // requests - 1),) * requests)


def irregular(
    limits: EngineConfig, rng: np.random.Generator, count: int = 24
) -> Iterator[BatchShape]:
    """Batches of random sizes and contexts: prompts, decodes, and both."""
    for number in range(count):
        tokens = int(np.exp(rng.uniform(np.log(16), np.log(limits.max_num_batched_tokens))))
        requests = int(np.exp(rng.uniform(0, np.log(limits.max_num_seqs))))
        contexts = rng.integers(16, 400, requests).tolist()
        prompts = _prompts(tokens, int(rng.integers(0, 400)))
        yield BatchShape(
            prompts=prompts if number % 3 != 1 else (),
            decodes=tuple(contexts) if number % 3 != 0 else (),
        )


def _doubling(least: int, most: int) -> Iterator[int]:
    size = least
    while size < most:
        yield size
        size *= 2
    yield most


def _three(least: int, most: int) -> tuple[int, int, int]:
    """Sizes from least to most, the middle one by ratio."""
    least = min(least, most)
    return least, round((least * most) ** 0.5), most


def _prompts(tokens: int, context: int) -> tuple[tuple[int, int], ...]:
    whole, rest = divmod(tokens, PROMPT)
    return ((PROMPT, context),) * whole + (((rest, context),) if rest else ())


@dataclass(frozen=True, slots=True)
class _Bench:
    """The bench that batches are timed on. For the fields see `calibrate`."""

    executor: Executor
    clock: Clock
    rng: np.random.Generator
    vocabulary: int
    longest: int | None

    def run(self, shape: BatchShape) -> float:
        """Time one run, in seconds."""
        chunks = _chunks(shape, self.rng, self.vocabulary)
        begin = self.clock.now()
        self.executor.execute(chunks)
        return self.clock.now() - begin

    def step(self, shape: BatchShape, seconds: float) -> Step:
        """A shape as a measured step."""
        tokens = sum(length for length, _ in shape.prompts)
        context = sum(context for _, context in shape.prompts) + sum(shape.decodes)
        return Step(tokens, len(shape.decodes), context, seconds)

    def fitting(self, shape: BatchShape) -> BatchShape:
        """A shape with its requests cut to the allowed length."""
        return shape if self.longest is None else shape.within(self.longest)


def _chunks(shape: BatchShape, rng: np.random.Generator, vocabulary: int) -> Sequence[Chunk]:
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
