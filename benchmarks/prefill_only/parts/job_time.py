"""Predicting the time of a prompt."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings, too_small
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.prefill_only import jct
from benchmarks.prefill_only.jct import Proxy
from benchmarks.prefill_only.sizes import choose
from benchmarks.templates import template

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
            self.proxies.append(jct.measure(model, workload, sizes.repeats, settings.seed))
        for figure in jct.figures(self.proxies):
            yield too_small(figure) if sizes.small else figure

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("jct", paper=jct.PAPER, model=self.model)
        yield from table(jct.COLUMNS, jct.rows(self.proxies))
