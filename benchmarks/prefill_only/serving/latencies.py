"""Latency over load, of both workloads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.harness import Figure, Say, Settings, too_small
from benchmarks.markdown import table
from benchmarks.parts import Part, Plot
from benchmarks.prefill_only import batching, plot, workloads
from benchmarks.prefill_only.batching import Batched
from benchmarks.prefill_only.serving import aging, spacings, traffic
from benchmarks.prefill_only.serving.aging import Sweep
from benchmarks.prefill_only.serving.arrivals import (
    Arrivals,
    first_in,
    service_seconds,
    shortest_remaining,
)
from benchmarks.prefill_only.serving.spacings import Spaced
from benchmarks.prefill_only.serving.traffic import (
    AGING,
    MODES,
    SWEPT,
    Engines,
    Mode,
    Served,
    Traffic,
    calibrated,
    executor_for,
)
from benchmarks.prefill_only.sizes import FULL, Sizes, choose
from benchmarks.prefill_only.workloads import Workload
from benchmarks.templates import template
from relquery.engine.cost import LinearCost

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

WORDS = template("prefill_only")

MEANS, P99, AGED = (f"prefill_only_{name}.png" for name in ("means", "p99", "aging"))
Plan = dict[float, tuple[Sequence[Mode], int]]


@dataclass(slots=True)
class Latencies(Part):
    """The part. served: posts by users, posts shuffled, inputs."""

    name = "traffic"
    title = "Latency over load"
    sizes: Sizes = FULL
    parameters: int = 0
    cost: LinearCost | None = None
    aged: list[Sweep] = field(default_factory=list)
    spaced: list[Spaced] = field(default_factory=list)
    batched: list[Batched] = field(default_factory=list)
    served: list[Traffic] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import parameters, set_threads
        from relquery.model.load import load

        set_threads(settings.threads)
        self.sizes = sizes = choose(settings)
        model = load(sizes.model)
        self.parameters = parameters(model)
        posts, credits = sizes.workloads(len(model.tokenizer), settings.seed)
        self.cost = cost = calibrated(model, settings.seed)
        self._simulate((posts, credits), cost, settings.seed)
        self.batched = batching.measure(
            executor_for(model, posts), cost, sizes.scales[0], sizes.repeats, settings.seed
        )
        self._serve(model, (posts, credits), cost, settings.seed, say)
        for figure in traffic_figures(*self.served):
            yield too_small(figure) if sizes.small else figure

    def _simulate(self, both: tuple[Workload, Workload], cost: LinearCost, seed: int) -> None:
        load = max(self.sizes.loads[0])
        self.aged = [aging.measure(each, load, cost, seed) for each in both]
        draws = range(seed, seed + self.sizes.draws)
        self.spaced = spacings.measure(both[0], cost, draws)

    def _serve(
        self,
        model: ServedModel,
        both: tuple[Workload, Workload],
        cost: LinearCost,
        seed: int,
        say: Say,
    ) -> None:
        (posts, inputs), rounds = self.sizes.loads, self.sizes.rounds
        shuffled: Plan = {max(posts): (("fifo", "srjf"), 1)}
        plans: tuple[tuple[tuple[Arrivals, Plan], ...], ...] = (
            ((Arrivals(), _plan(posts, rounds)), (Arrivals("shuffled"), shuffled)),
            ((Arrivals(), _plan(inputs, (1, 1))),),
        )
        for workload, each in zip(both, plans, strict=True):
            engines = Engines(model, workload, cost)
            saturation = traffic.saturate(workload, engines.open)
            say(f"{workload.name}: {workload.tokens:,} tokens, {saturation:.1f} requests/s at most")
            self.served += [
                traffic.measure(workload, arrivals, saturation, engines.open, plan, seed, say)
                for arrivals, plan in each
            ]

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if not self.served or self.cost is None:
            return
        posts, shuffled, credits = self.served
        yield _setting(self.sizes, self.parameters, self.cost, posts, credits)
        for name, text in ((MEANS, "Mean latency over load"), (P99, "99th percentile over load")):
            yield from _picture(name, text, drawn)
        for each in (posts, shuffled, credits):
            yield from _services(each)
        yield WORDS.block("different")
        yield WORDS.block("spacings", draws=self.sizes.draws)
        yield from table(spacings.COLUMNS, spacings.rows(self.spaced))
        yield WORDS.block("aging")
        yield from _picture(AGED, "Latencies by λ", drawn)
        yield from table(aging.COLUMNS, aging.rows(self.aged))
        yield WORDS.block("batching", cached=self.batched[0].cached, others=batching.OTHERS)
        yield from table(batching.COLUMNS, batching.rows(self.batched))

    def pictures(self) -> Mapping[str, Plot]:
        """See Part."""
        if not self.served:
            return {}
        posts, _, credits = self.served
        return {
            MEANS: partial(plot.plot_loads, (posts, credits), "mean"),
            P99: partial(plot.plot_loads, (posts, credits), "p99"),
            AGED: partial(plot.plot_aging, self.aged[0]),
        }


def _plan(loads: Sequence[float], rounds: tuple[int, int]) -> Plan:
    *lower, highest = sorted(loads)
    return {**dict.fromkeys(lower, (SWEPT, rounds[0])), highest: (MODES, rounds[1])}


def _picture(name: str, text: str, drawn: Collection[str]) -> Iterator[str]:
    if name in drawn:
        yield f"![{text}]({name})\n"


def _setting(
    sizes: Sizes, parameters: int, cost: LinearCost, posts: Traffic, credits: Traffic
) -> str:
    scale, inputs_scale = sizes.scales
    low, high = (workloads.scaled(length, inputs_scale) for length in workloads.LENGTHS)
    return WORDS.block(
        "traffic",
        model=sizes.model,
        parameters=parameters / 1e6,
        fixed=1e3 * cost.prefill_intercept,
        slope=1e3 * cost.prefill_slope,
        speed=1 / cost.prefill_slope,
        scale=scale,
        inputs_scale=inputs_scale,
        posts=len(posts.workload.prompts),
        users=sizes.users,
        each=len(posts.workload.prompts) // sizes.users,
        history=workloads.scaled(workloads.HISTORY[0], scale),
        post=workloads.scaled(workloads.POST, scale),
        posts_cache=posts.workload.cache_tokens,
        credits=len(credits.workload.prompts),
        low=low,
        high=high,
        credits_cache=credits.workload.cache_tokens,
        posts_rate=posts.saturation,
        credits_rate=credits.saturation,
        gap=1e3 / posts.saturation,
        chunk=posts.workload.chunk,
        inputs_chunk=credits.workload.chunk,
        aging=AGING,
        tokens=AGING / cost.prefill_slope,
        rounds=sizes.rounds[1],
        lower_rounds=sizes.rounds[0],
    )


def _services(at: Traffic) -> Iterator[str]:
    name = at.workload.name + (", shuffled" if at.pattern == "shuffled" else "")
    yield from table(
        (name, "per second", "policy", "mean", "p99", "requests/s", "cached"),
        [
            (
                f"{load:g} x",
                f"{load * at.saturation:.2f}",
                mode,
                f"{run.mean:.2f}",
                f"{run.p99:.2f}",
                f"{run.throughput:.2f}",
                f"{run.cached:.0%}",
            )
            for load, by in at.loads.items()
            for mode, run in by.items()
        ],
    )


def traffic_figures(posts: Traffic, shuffled: Traffic, credits: Traffic) -> Iterator[Figure]:
    """Figures at the highest load, unless stated otherwise."""
    yield from _posts(posts, shuffled)
    yield from _credits(credits)
    equal = min(each.equal for each in (posts, shuffled, credits))
    note = f"labels, and log-probabilities within {traffic.CLOSE:g}, in every service"
    yield Figure("equal_answers", equal, 1.0, note=note, any_size=True)


def _posts(posts: Traffic, shuffled: Traffic) -> Iterator[Figure]:
    chunked, fifo, srjf = (posts.highest[mode] for mode in traffic.SWEPT)
    each = [first.mean / ours.mean for first, ours in zip(fifo.runs, srjf.runs, strict=True)]
    note = (
        f"{fifo.mean:.2f} s / {srjf.mean:.2f} s, {min(each):.2f} to {max(each):.2f} in "
        f"{len(each)} draws of arrivals; chunked: {chunked.mean / srjf.mean:.2f}"
    )
    yield Figure("wl1_fifo_over_srjf_mean", fifo.mean / srjf.mean, 3.0, note=note)
    by_load = {load: by["fifo"].mean / by["srjf"].mean for load, by in posts.loads.items()}
    note = "fifo over srjf; " + ", ".join(f"{x:.2f} at {load:g} x" for load, x in by_load.items())
    yield Figure("wl1_least_gain", min(by_load.values()), 1.0, note=note)
    note = f"{srjf.p99:.2f} s / {fifo.p99:.2f} s"
    yield Figure("wl1_p99", srjf.p99 / fifo.p99, 1.0, False, note)
    note = f"{srjf.throughput:.2f} / {chunked.throughput:.2f} requests/s (srjf, chunked)"
    yield Figure("wl1_throughput", srjf.throughput / chunked.throughput, 1.4, note=note)
    fifo, srjf = shuffled.highest["fifo"], shuffled.highest["srjf"]
    note = f"requests of all users shuffled: {fifo.mean:.2f} s / {srjf.mean:.2f} s"
    yield Figure("wl1_shuffled_fifo_over_srjf", fifo.mean / srjf.mean, None, note=note)


def _credits(credits: Traffic) -> Iterator[Figure]:
    chunked, fifo, srjf = (credits.highest[mode] for mode in traffic.SWEPT)
    bounds = [bound(run) for run in srjf.runs]
    least, first = (fmean(means) for means in zip(*bounds, strict=True))
    note = f"{srjf.mean:.2f} s / {least:.2f} s, the least that any order could have"
    yield Figure("wl2_srjf_over_clairvoyant", srjf.mean / least, 1.05, False, note)
    note = "what any order could gain, by the seconds that each request took under srjf"
    yield Figure("wl2_fifo_over_clairvoyant", first / least, None, note=note)
    note = f"{fifo.mean:.2f} s / {srjf.mean:.2f} s, as measured"
    yield Figure("wl2_fifo_over_srjf", fifo.mean / srjf.mean, None, note=note)
    note = f"{chunked.mean:.2f} s / {srjf.mean:.2f} s"
    yield Figure("wl2_chunked_over_srjf", chunked.mean / srjf.mean, 1.0, note=note)
    note = f"{srjf.p99:.2f} s / {fifo.p99:.2f} s; over chunked {srjf.p99 / chunked.p99:.2f}"
    yield Figure("wl2_p99", srjf.p99 / fifo.p99, 1.1, False, note)


def bound(run: Served) -> tuple[float, float]:
    """A lower bound on the mean latency of any order, and the mean of first in, first out, from the
    seconds for which each request was served."""
    seconds = service_seconds(run.arrivals, run.latencies)
    return shortest_remaining(run.arrivals, seconds), first_in(run.arrivals, seconds)
