"""`relquery bench prefill-only`: answers that need no decode, on this machine (paper 004)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from relquery.bench.harness import Benchmark, Figure, Say, Settings, document, too_small
from relquery.bench.prefill_only import aging, batching, jct, lengths, traffic, workloads
from relquery.bench.prefill_only import filter as sql_filter
from relquery.bench.prefill_only.document import Results, write
from relquery.bench.prefill_only.traffic import (
    AlternatingExecutor,
    Engine,
    Mode,
    SkippingClock,
    Traffic,
)
from relquery.bench.prefill_only.workloads import Workload
from relquery.bench.relserve import queue
from relquery.bench.relserve.queue import Crowded
from relquery.bench.turns import Turn
from relquery.config import EngineConfig, PolicyName
from relquery.engine.calibrate import calibrate
from relquery.engine.clock import RealClock
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Chunk
from relquery.engine.request import Draw

if TYPE_CHECKING:
    from relquery.model.executor import TorchExecutor
    from relquery.model.load import LoadedModel

QUEUED: tuple[PolicyName, ...] = ("fifo", "srjf-static", "srjf")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; of pairs, the first is of the posts and the second of the inputs.

    model: that serves, by name. scales: of the prompts' tokens, beside the paper's. counts: prompts
    as a share of the paper's, for each tenth of the scale. users: of the posts. rounds: of the
    highest load. repeats: of prompts whose times are compared. waiting: requests in a long queue.
    lengths, filter: see there.
    """

    model: str = "random:layers=4,hidden=320,heads=5,kv_heads=1,ffn=1280"
    scales: tuple[float, float] = (0.1, 0.05)
    counts: tuple[float, float] = (0.25, 2.0)
    users: int = workloads.USERS
    loads: tuple[float, ...] = traffic.LOADS
    rounds: tuple[int, int] = (2, 2)
    repeats: int = 5
    waiting: int = 100_000
    lengths: lengths.Sizes = lengths.FULL
    filter: sql_filter.Sizes = sql_filter.FULL

    def workloads(self, vocabulary: int, seed: int) -> tuple[Workload, Workload]:
        """Both, at these scales."""
        whole = workloads.POSTS, workloads.INPUTS
        posts, inputs = (
            max(2, round(min(1.0, share * scale / 0.1) * count))
            for share, scale, count in zip(self.counts, self.scales, whole, strict=True)
        )
        scale, inputs_scale = self.scales
        return (
            workloads.post_recommendation(scale, self.users, posts, vocabulary, seed),
            workloads.credit_verification(inputs_scale, inputs, vocabulary, seed),
        )


FULL = Sizes()
QUICK = Sizes(
    model="random:layers=2,hidden=64,heads=2",
    scales=(0.02, 0.02),
    counts=(0.5, 0.5),
    users=6,
    loads=(1.0, 4.0),
    rounds=(1, 1),
    repeats=1,
    waiting=2_000,
    lengths=lengths.QUICK,
    filter=sql_filter.QUICK,
)


def run(settings: Settings, say: Say) -> Iterator[Figure]:
    """All figures of the benchmark; writes its document last."""
    sizes = QUICK if settings.quick else FULL
    if settings.scale is not None:
        sizes = replace(sizes, scales=(settings.scale, settings.scale))
    results = Results(sizes.model, sizes.scales)
    for figure in _figures(sizes, settings, say, results):
        results.figures.append(too_small(figure) if settings.quick else figure)
        yield results.figures[-1]
    if settings.write is not None:
        run_as = document(BENCHMARK, settings, results.figures)
        write(settings.write, results, run_as, settings.seed, say)


BENCHMARK = Benchmark(
    "prefill-only", "long inputs, queues of prompts and scored labels, without decode", run, True
)


def _figures(sizes: Sizes, settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    from relquery.model.stock import set_threads

    set_threads(settings.threads)
    results.waiting, results.crowded = sizes.waiting, crowded(sizes.waiting)
    yield crowded_figure(results.crowded)
    results.lengths = lengths.measure(sizes.lengths, say)
    yield from lengths.figures(results.lengths)
    for figure in _on_engine(sizes, settings, say, results):
        yield too_small(figure) if sizes.scales < FULL.scales else figure
    results.filtered = sql_filter.measure(sizes.filter, settings.data, settings.seed, say)
    yield from sql_filter.figures(results.filtered)


def _on_engine(sizes: Sizes, settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    from relquery.model.load import load

    model = load(sizes.model)
    results.parameters = sum(each.numel() for each in model.network.parameters())
    both = sizes.workloads(len(model.tokenizer), settings.seed)
    results.proportional = sizes.lengths.wide
    proportional = load(results.proportional)
    for workload in both:
        results.proxies.append(jct.measure(proportional, workload, sizes.repeats, settings.seed))
    del proportional
    yield from jct.figures(results.proxies)
    results.cost = cost = _calibrate(model, settings.seed)
    loads = 1.0, max(sizes.loads)
    results.aged = [aging.measure(each, at, cost) for each, at in zip(both, loads, strict=True)]
    results.batched = batching.measure(
        _executor(model, both[0]), cost, sizes.scales[0], sizes.repeats, settings.seed
    )
    for workload, rounds in zip(both, sizes.rounds, strict=True):
        engines = _Engines(model, workload, cost)
        results.traffic.append(traffic.measure(workload, engines.open, sizes.loads, rounds, say))
    yield from traffic_figures(*results.traffic)


def traffic_figures(posts: Traffic, credits: Traffic) -> Iterator[Figure]:
    """What the services at the highest load tell."""
    chunked, fifo, srjf = (posts.highest[mode] for mode in traffic.SWEPT)
    note = f"{fifo.mean:.2f} s / {srjf.mean:.2f} s; chunked: {chunked.mean / srjf.mean:.2f}"
    yield Figure("wl1_fifo_over_srjf_mean", fifo.mean / srjf.mean, 4.0, note=note)
    note = f"{srjf.p99:.2f} s / {fifo.p99:.2f} s"
    yield Figure("wl1_p99", srjf.p99 / fifo.p99, 1.0, False, note)
    note = f"{srjf.throughput:.2f} / {chunked.throughput:.2f} requests/s (srjf, chunked)"
    yield Figure("wl1_throughput", srjf.throughput / chunked.throughput, 1.4, note=note)
    chunked, fifo, srjf = (credits.highest[mode] for mode in traffic.SWEPT)
    note = f"{fifo.mean:.2f} s / {srjf.mean:.2f} s; chunked: {chunked.mean / srjf.mean:.2f}"
    yield Figure("wl2_mean_over_srjf", fifo.mean / srjf.mean, 1.15, note=note)
    note = f"{srjf.p99:.2f} s / {fifo.p99:.2f} s; over chunked {srjf.p99 / chunked.p99:.2f}"
    yield Figure("wl2_p99", srjf.p99 / fifo.p99, 1.1, False, note)
    equal = min(posts.equal, credits.equal)
    note = f"labels, and log-probabilities within {traffic.CLOSE:g}, in every service"
    yield Figure("equal_answers", equal, 1.0, note=note)


def crowded(waiting: int) -> dict[str, list[Crowded]]:
    """By how they wait: a step's scheduling with that many requests."""
    each = queue.EACH
    kinds = {
        "one relQuery": (1, waiting),
        f"{waiting // each:,} relQueries": (waiting // each, each),
    }
    return {
        kind: [queue.measure(name, many, each=each, prefill_only=True) for name in QUEUED]
        for kind, (many, each) in kinds.items()
    }


def crowded_figure(by_kind: dict[str, list[Crowded]]) -> Figure:
    """The slowest srjf."""
    rows: Sequence[tuple[str, Crowded]] = [
        (kind, row) for kind, rows in by_kind.items() for row in rows if row.policy == "srjf"
    ]
    kind, slowest = max(rows, key=lambda row: row[1].mean)
    note = f"milliseconds, mean, {kind}; at most {slowest.worst:.1f}"
    return Figure("srjf_step_ms", slowest.mean, 5.0, False, note)


class _Engines:
    """Of every policy one, with a cache of the workload's size, whose memory has been taken."""

    def __init__(self, model: LoadedModel, workload: Workload, cost: LinearCost) -> None:
        self._model, self._workload, self._cost = model, workload, cost
        self._executors: dict[Mode, TorchExecutor] = {}

    def open(self, mode: Mode, turn: Turn) -> Engine:
        """An engine whose steps pass the turn on."""
        if mode not in self._executors:
            executor = self._executors[mode] = _executor(self._model, self._workload)
            executor.execute(
                [Chunk(0, np.zeros(1, np.int32), 0, (), np.zeros(1, np.int64), Draw())]
            )
            executor.reserve()
        clock = SkippingClock(turn)
        executor = self._executors[mode]
        return Engine(AlternatingExecutor(executor, turn), clock, clock.skip, self._cost)


def _executor(model: LoadedModel, workload: Workload) -> TorchExecutor:
    from relquery.model.executor import TorchExecutor

    return TorchExecutor(
        model.network,
        workload.cache_tokens,
        slice_tokens=workload.chunk,
        release=model.release,
    )


def _calibrate(model: LoadedModel, seed: int) -> LinearCost:
    from relquery.model.executor import TorchExecutor

    limits = EngineConfig(cache_tokens=32_768)
    executor = TorchExecutor(model.network, limits.cache_tokens)
    vocabulary = len(model.tokenizer)
    fit = calibrate(executor, limits, RealClock(), vocabulary=vocabulary, quick=True, seed=seed)
    return fit.cost
