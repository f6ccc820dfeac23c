"""The longest possible input, by technique, in measured bytes (paper 004).

The network has the proportions of Qwen2.5-32B, and as much memory beyond its weights as that model
has in 8 bits on an A100: a quarter of the weights (Fig. 10, Table 2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Figure, Say
from benchmarks.stock import executor_of, native
from relquery.arrays import Slots
from relquery.backends.local.sizing import slices_for
from relquery.config import EngineConfig
from relquery.engine.executor import SCRATCH, Chunk
from relquery.engine.requests.request import Draw

if TYPE_CHECKING:
    from relquery.model.footprint import Footprint
    from relquery.model.served import ServedExecutor, ServedModel

MEMORY = 1.25
"""Memory as a multiple of the weights: 40 GB for Qwen2.5-32B's 32 GB in 8 bits."""
CLOSE = 0.98
"""A length is accepted if it takes at least this share of the memory, and at most all of it."""

PLAIN, CHUNKED = "plain prefilling", "chunked prefilling"
DROPPED, OURS = "KV of one layer", "+ slices that take turns"
NAMES = (PLAIN, CHUNKED, DROPPED, OURS)
"""Ways to compute a prompt; each of the last two adds to the previous one (Fig. 10)."""

Measure = Callable[[int], int]
Race = tuple[tuple[float, ...], tuple[float, ...]]
"""Seconds of each run, of plain prefilling and of ours."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    model: with random weights. memory: as a multiple of its weights. wide: a network of the same
    proportions with fewer, wider layers, for the throughput; operations of a narrow network take
    microseconds, so the measurement would be of thread synchronisation. rounds: runs of each side,
    after one warm-up run. narrow_rounds: the same for the network whose lengths are measured.
    """

    model: str = "random:layers=64,hidden=160,heads=10,kv_heads=2,ffn=864"
    wide: str = "random:layers=8,hidden=640,heads=20,kv_heads=4,ffn=3456"
    memory: float = MEMORY
    rounds: int = 31
    narrow_rounds: int = 7


FULL = Sizes()
QUICK = Sizes(
    "random:layers=12,hidden=160,heads=10,kv_heads=2,ffn=864",
    "random:layers=1,hidden=160,heads=10,kv_heads=2,ffn=864",
    rounds=1,
    narrow_rounds=1,
)


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest prompt that one way can compute. peak: bytes that were measured for it."""

    tokens: int
    peak: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """What was measured.

    weights, free: bytes of the weights, and of free memory. slices: tokens of a slice or a chunk.
    longest: by the names above. whole: what the process took for our longest prompt. wide, narrow:
    seconds of each run of the longest prompt that plain prefilling can take, plain and ours, in the
    wide network and in the one whose lengths are measured.
    """

    sizes: Sizes
    weights: int
    free: int
    slices: int
    longest: dict[str, Longest]
    whole: int
    wide: Race
    narrow: Race

    def tokens(self, name: str) -> int:
        """Tokens of the longest prompt."""
        return self.longest[name].tokens

    def throughput(self, race: Race) -> tuple[float, float]:
        """Tokens per second, plain and ours; medians."""
        plain, hybrid = (self.tokens(PLAIN) / median(seconds) for seconds in race)
        return plain, hybrid


def ratio(race: Race) -> float:
    """Throughput of ours divided by plain: the median over rounds. In each round both run one after
    the other, because the machine's speed varies from minute to minute."""
    return median(plain / hybrid for plain, hybrid in zip(*race, strict=True))


def measure(sizes: Sizes, say: Say) -> Lengths:
    """Find the longest prompts, and time those that all can take."""
    from relquery.model.load import load

    model = load(sizes.model)
    footprint = model.footprint()
    free = int((sizes.memory - 1) * footprint.weights)
    slices = slices_for(free, footprint, EngineConfig())
    say(f"{free / 2**20:.1f} MiB beside {footprint.weights / 2**20:.1f}, slices of {slices}")
    longest = {}
    for name, way in _ways(footprint, slices).items():
        longest[name] = fit(way, free, 2 * slices)
        say(f"{name}: {longest[name].tokens:,} tokens")
    whole = _resident(model, longest[OURS].tokens, slices)
    wide, narrow = (
        _race(each, longest[PLAIN].tokens, slices, rounds)
        for each, rounds in ((load(sizes.wide), sizes.rounds), (model, sizes.narrow_rounds))
    )
    return Lengths(sizes, footprint.weights, free, slices, longest, whole, wide, narrow)


def figures(at: Lengths) -> Iterator[Figure]:
    """The figures of the benchmark."""
    for name, over, goal in (("plain", PLAIN, 7.9), ("chunked", CHUNKED, 5.0)):
        note = f"{at.tokens(OURS):,} / {at.tokens(over):,} tokens, {_setting(at)}"
        yield Figure(f"max_input_over_{name}", at.tokens(OURS) / at.tokens(over), goal, note=note)
    plain, hybrid = at.throughput(at.wide)
    note = (
        f"{hybrid:,.0f} / {plain:,.0f} tokens/s at {at.tokens(PLAIN):,} tokens, medians of "
        f"{len(at.wide[0])} rounds, slices of {at.slices}; in the narrow network "
        f"{ratio(at.narrow):.2f}"
    )
    yield Figure("hybrid_throughput", ratio(at.wide), 0.97, note=note)
    ours = at.longest[OURS]
    note = (
        f"memory that the process took for it over what was foretold, less one: {_mib(at.whole)} / "
        f"{_mib(ours.peak)} at {ours.tokens:,} tokens"
    )
    yield Figure("peak_as_profiled", abs(at.whole / ours.peak - 1), 0.1, False, note, any_size=True)


COLUMNS = ("prefill", "longest input", "over plain", "peak beside the weights")


def rows(at: Lengths) -> Iterator[tuple[str, ...]]:
    """A line of a table for each way, under COLUMNS."""
    for name, longest in at.longest.items():
        over = longest.tokens / at.tokens(PLAIN)
        yield name, f"{longest.tokens:,}", f"{over:.1f}", _mib(longest.peak)


def fit(way: Measure, free: int, first: int) -> Longest:
    """The longest prompt whose peak memory fits, with its measured peak.

    Found by extrapolating a line through the last two lengths, between one that fits and one that
    does not. It ends near the free memory, or where one more token does not fit: peaks grow in
    steps, since products are padded.
    """
    fits, over = Longest(0, 0), 1 << 40
    low, high = Longest(first, way(first)), Longest(2 * first, way(2 * first))
    for _ in range(40):
        if high.peak <= free:
            fits = max(fits, high, key=lambda each: each.tokens)
        else:
            over = min(over, high.tokens)
        if over == 1:
            break
        if fits.peak >= CLOSE * free or over - fits.tokens == 1:
            return fits
        slope = max(1.0, (high.peak - low.peak) / (high.tokens - low.tokens))
        aim = high.tokens + int(((1 + CLOSE) / 2 * free - high.peak) / slope)
        if not fits.tokens < aim < over:
            aim = (fits.tokens + over) // 2
        low, high = high, Longest(aim, way(aim))
    raise AssertionError(f"no length was found: {high.tokens} tokens take {high.peak} bytes")


def _ways(footprint: Footprint, slices: int) -> dict[str, Measure]:
    """By name, functions from a number of tokens to the peak bytes of computing them."""
    ways: tuple[Measure, ...] = (
        lambda tokens: footprint.kept_prompt(tokens, tokens),
        lambda tokens: footprint.kept_prompt(tokens, slices),
        lambda tokens: footprint.one_prompt(tokens, tokens),
        lambda tokens: footprint.one_prompt(tokens, slices),
    )
    return dict(zip(NAMES, ways, strict=True))


def _race(model: ServedModel, tokens: int, slices: int, rounds: int) -> Race:
    """Seconds of a prompt by plain prefilling and by ours; the one that runs first alternates."""
    kept, ours = executor_of(model, tokens, tokens), executor_of(model, 0, slices)
    sides = (kept, np.arange(tokens)), (ours, SCRATCH + np.arange(tokens))
    seconds: tuple[list[float], list[float]] = [], []
    for number in range(rounds + 1):
        for side in (0, 1) if number % 2 else (1, 0):
            seconds[side].append(_seconds(*sides[side]))
    return tuple(seconds[0][1:]), tuple(seconds[1][1:])


def _seconds(executor: ServedExecutor, slots: Slots) -> float:
    prompt = Chunk(0, (np.arange(len(slots)) % 256).astype(np.int32), 0, (), slots, Draw())
    start = time.perf_counter()
    executor.execute([prompt])
    return time.perf_counter() - start


def _resident(model: ServedModel, tokens: int, slices: int) -> int:
    """Bytes that this process holds more while it computes a prompt."""
    executor = executor_of(model, 0, slices)
    native(model).forget()
    with Path("/proc/self/clear_refs").open("w") as reset:
        reset.write("5")
    before = _kib("VmRSS")
    _seconds(executor, SCRATCH + np.arange(tokens))
    return (_kib("VmHWM") - before) << 10


def _kib(name: str) -> int:
    """A line of this process's status."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(kib)


def _setting(at: Lengths) -> str:
    return f"in {_mib(at.weights + at.free)} of which {_mib(at.weights)} are weights"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
