"""`relquery bench relserve`: what schedulers gain that know whole relQueries (paper 003)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from relquery.bench.harness import Benchmark, Figure, Say, Settings, document, too_small
from relquery.bench.relserve import checks
from relquery.bench.relserve import engine as relserve_engine
from relquery.bench.relserve import queue as relserve_queue
from relquery.bench.relserve.document import Results, write
from relquery.bench.relserve.engine import POLICIES as POLICIES_ON_ENGINE
from relquery.bench.relserve.engine import OnEngine
from relquery.bench.relserve.queue import Crowded
from relquery.bench.relserve.simulated import (
    ABLATIONS,
    LOADS,
    OURS,
    POLICIES,
    Job,
    Measured,
    run_all,
)
from relquery.bench.relserve.traces import present
from relquery.config import PolicyName
from relquery.engine.costs import SERVED


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    models: that are simulated, by name. tables: at most so many. count: relQueries of a trace;
    long: of a longer service; engine: on the real engine, and model: which it runs. seeds: traces
    of each setting. hour: seconds that are simulated to tell how fast that is. relqueries: that
    wait in a long queue.
    """

    models: tuple[str, ...] = tuple(SERVED)
    tables: int = 5
    count: int = 100
    seeds: int = 3
    loads: tuple[float, ...] = LOADS
    long: int = 500
    engine: int = 50
    model: str = "random:layers=8,hidden=288,heads=4,ffn=1152"
    hour: float = 3_600.0
    relqueries: int = relserve_queue.RELQUERIES


FULL = Sizes()
QUICK = Sizes(
    models=("a100-opt13b",),
    tables=1,
    count=12,
    seeds=1,
    loads=(0.7, 1.45),
    long=20,
    engine=8,
    model="random:layers=2,hidden=64,heads=2",
    hour=60.0,
    relqueries=20,
)


def run(settings: Settings, say: Say) -> Iterator[Figure]:
    """All figures of the benchmark; writes its document last."""
    sizes = QUICK if settings.quick else FULL
    results = Results(sizes.count, sizes.seeds, sizes.model, engine_count=sizes.engine)
    for figure in _figures(sizes, settings, say, results):
        results.figures.append(too_small(figure) if settings.quick else figure)
        yield results.figures[-1]
    if settings.write is not None:
        run_as = document(BENCHMARK, settings, results.figures)
        write(settings.write, results, run_as, settings.seed, say)


BENCHMARK = Benchmark("relserve", "latencies of relQueries under scheduling policies", run)


def _figures(sizes: Sizes, settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    for name in relserve_queue.POLICIES:
        results.crowded.append(relserve_queue.measure(name, sizes.relqueries))
    yield _crowded(results.crowded)
    sources = [source.name for source in present(settings.data)][: sizes.tables]
    if not sources:
        say(f"{settings.data} holds none of the tables")
        return
    yield from _on_engine(sizes, settings, say, results)
    seeds = tuple(range(settings.seed, settings.seed + sizes.seeds))

    def job(
        model: str, table: str, loads: tuple[float, ...], policies: tuple[PolicyName, ...]
    ) -> Job:
        return Job(model, table, sizes.count, seeds, loads, policies, False, settings.data)

    pairs = [(model, table) for model in sizes.models for table in sources]
    every = [replace(job(*pair, sizes.loads, POLICIES), bound=True) for pair in pairs]
    for measured in run_all(every, settings.threads):
        results.settings.append(measured)
        say(f"{measured.model}, {measured.table}: fcfs / ours {measured.over('fcfs'):.2f}")
    yield from gains(results.settings)
    variants: tuple[PolicyName, ...] = ("relserve", *ABLATIONS)
    halves = [job(*pair, sizes.loads[-1:], variants) for pair in pairs]
    results.arrangements.extend(run_all(halves, settings.threads))
    longer = [
        replace(job(model, table, (1.0,), POLICIES), count=sizes.long, seeds=seeds[:1])
        for model, table in pairs
        if table in sources[:2]
    ]
    results.long.extend(run_all(longer, settings.threads))
    most = max(each.over("fcfs") for each in results.long)
    yield Figure("fcfs_over_ours_long", most, 3.1, note=f"best of services of {sizes.long}")
    if len(sources) > 1:
        results.absolute = checks.absolute(settings.data, seeds, sizes.count)
    for load in (0.85, 1.2):
        results.thresholds += checks.thresholds(settings.data, seeds, load, sizes.count)
    simulated, took = checks.hour(settings.data, settings.seed, sizes.hour)
    note = f"{simulated:,.0f} s of service, OPT-13B near saturation, under shortest"
    yield Figure("hour_simulated_seconds", took * 3_600 / simulated, 60, False, note)


def gains(settings: Sequence[Measured]) -> Iterator[Figure]:
    """What the simulated settings tell."""
    fcfs = {_name(each): each.over("fcfs") for each in settings}
    static = {_name(each): each.over("static", "relserve") for each in settings}
    ours = {_name(each): each.over("static") for each in settings}
    yield Figure("fcfs_over_ours_least", min(fcfs.values()), 2.0, note=_list(fcfs))
    yield Figure("fcfs_over_ours_most", max(fcfs.values()), 3.1, note="of the same")
    yield Figure("static_over_relserve_least", min(static.values()), 1.15, note=_list(static))
    yield Figure("static_over_relserve_most", max(static.values()), 1.4, note="of the same")
    yield Figure("static_over_ours_least", min(ours.values()), 1.15, note=_list(ours))
    yield Figure("static_over_ours_most", max(ours.values()), 1.4, note="of the same")
    least = min(settings, key=lambda each: each.least)
    note = f"{_name(least)}: fcfs or static over ours, the least at any load"
    yield Figure("least_gain", least.least, 1.0, note=note)
    excess = {
        f"{_name(each)} at {load:g}": each.best(load) / bound
        for each in settings
        for load, bound in each.bounds.items()
    }
    worst = max(excess, key=lambda name: excess[name], default="")
    yield Figure("ours_over_clairvoyant", excess.get(worst), 1.1, False, f"worst: {worst}")
    own = {_name(each): each.over("relserve", "shortest") for each in settings}
    mean = sum(own.values()) / len(own)
    yield Figure("relserve_over_shortest", mean, 1.0, note=f"average of {_list(own)}")


def _on_engine(sizes: Sizes, settings: Settings, say: Say, results: Results) -> Iterator[Figure]:
    from relquery.model.stock import set_threads

    set_threads(settings.threads)
    at = relserve_engine.measure(sizes.model, sizes.engine, settings.data, settings.seed, say)
    results.engine = at
    yield from engine_figures(at)


def engine_figures(at: OnEngine) -> Iterator[Figure]:
    """What the runs on the real engine tell."""
    ours = min(OURS, key=lambda name: at.runs[name].mean)
    best = at.runs[ours]
    goals: dict[PolicyName, float] = {"fcfs": 1.8, "static": 1.1}
    for name, goal in goals.items():
        note = f"{at.runs[name].mean:.2f} s / {best.mean:.2f} s ({ours})"
        yield Figure(f"engine_{name}_over_ours", at.runs[name].mean / best.mean, goal, note=note)
    throughput = best.throughput / at.runs["fcfs"].throughput
    note = f"{best.throughput:,.0f} / {at.runs['fcfs'].throughput:,.0f} tokens/s"
    yield Figure("engine_throughput", throughput, 0.97, note=note)
    slowest = max(POLICIES_ON_ENGINE, key=lambda name: at.runs[name].scheduling)
    note = f"share of the time, most of it under {slowest}"
    yield Figure("engine_scheduling", at.runs[slowest].scheduling, 0.01, False, note)
    yield Figure("engine_equal_answers", at.equal, 1.0, note="under all policies, token for token")
    note = f"{at.fit.r2:.3f} on the {at.fit.steps} batches fitted"
    yield Figure("calibration_r2", at.fit.held_out, 0.95, note=note)


def _crowded(rows: Sequence[Crowded]) -> Figure:
    slowest = max(rows, key=lambda row: row.mean)
    note = f"milliseconds, mean of {slowest.policy}; at most {slowest.worst:.1f}"
    return Figure("crowded_step_ms", slowest.mean, 5.0, False, note)


def _name(each: Measured) -> str:
    return f"{each.model.removeprefix('a100-')} {each.table}"


def _list(ratios: dict[str, float]) -> str:
    return ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
