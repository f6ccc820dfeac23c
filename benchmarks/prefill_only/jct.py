"""How well uncached tokens predict the time of a prompt (paper 004, section 6.3)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.harness import Figure, Say, Settings, too_small
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.prefill_only.job_time import JobTimeFit, fit_job_time, measure_jct
from benchmarks.prefill_only.sizes import choose
from benchmarks.prefill_only.workloads import BLOCK, Workload
from benchmarks.stock import executor_of
from benchmarks.templates import template
from relquery.config import EngineConfig
from relquery.engine.executor import RealClock

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

PAPER = 0.987


@dataclass(frozen=True, slots=True)
class Proxy:
    """Prompts timed on a grid up to the longest of a workload; linear: the fit of the paper's form,
    and fit: with the attention's term."""

    workload: str
    longest: int
    linear: JobTimeFit
    fit: JobTimeFit


def measure(model: ServedModel, workload: Workload, repeats: int, seed: int) -> Proxy:
    """Time prompts of random tokens, each in one step that keeps all states."""
    longest = workload.longest
    slots = -(-longest // BLOCK) * BLOCK
    linear = measure_jct(
        executor_of(model, slots, workload.chunk),
        EngineConfig(cache_tokens=slots),
        RealClock(),
        vocabulary=len(model.tokenizer),
        longest=longest,
        step_tokens=longest,
        attention=False,
        repeats=repeats,
        seed=seed,
    )
    return Proxy(workload.name, longest, linear, fit_job_time(linear.timed))


def figures(found: list[Proxy]) -> Iterator[Figure]:
    """The figure of the benchmark: of the workload whose prompts share beginnings."""
    proxy = found[0]
    others = "".join(f"; {each.linear.proxy:.3f} on {each.workload}" for each in found[1:])
    note = (
        f"{len(proxy.linear.timed)} prompts of up to {proxy.longest:,} tokens ({proxy.workload}), "
        f"fitted: {proxy.linear.fitted:.3f}, with attention {proxy.fit.fitted:.3f}{others}"
    )
    yield Figure("jct_proxy_pearson", proxy.linear.proxy, 0.98, note=note)


COLUMNS = ("prompts up to", "timed", "proxy", "linear fit", "with attention")


def rows(found: list[Proxy]) -> Iterator[tuple[str, ...]]:
    """A line of a table for each workload, under COLUMNS."""
    for proxy in found:
        yield (
            f"{proxy.longest:,} tokens ({proxy.workload})",
            f"{len(proxy.linear.timed)}",
            f"{proxy.linear.proxy:.3f}",
            f"{proxy.linear.fitted:.3f}",
            f"{proxy.fit.fitted:.3f}",
        )


WORDS = template("prefill_only")


@dataclass(slots=True)
class JobTime(Part):
    """The part. model: in which prompts are timed."""

    name = "jct"
    title = "Predicting the time of a prompt"
    model: str = ""
    proxies: list[Proxy] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads
        from relquery.model.load import load

        set_threads(settings.threads)
        sizes = choose(settings)
        self.model = sizes.lengths.wide
        model = load(self.model)
        for workload in sizes.workloads(len(model.tokenizer), settings.seed):
            self.proxies.append(measure(model, workload, sizes.repeats, settings.seed))
        for figure in figures(self.proxies):
            yield too_small(figure) if sizes.small else figure

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("jct", paper=PAPER, model=self.model)
        yield from table(COLUMNS, rows(self.proxies))
