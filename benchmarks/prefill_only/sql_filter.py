"""A SQL filter whose labels are scored."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.prefill_only import filter as sql_filter
from benchmarks.prefill_only.filter import Filtered
from benchmarks.prefill_only.sizes import choose
from benchmarks.templates import template

WORDS = template("prefill_only")


@dataclass(slots=True)
class SqlFilter(Part):
    """The part."""

    name = "filter"
    title = "A SQL filter"
    found: list[Filtered] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads

        set_threads(settings.threads)
        sizes = choose(settings).filter
        self.found = sql_filter.measure(sizes, settings.data, settings.seed, say)
        yield from sql_filter.figures(self.found)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if self.found:
            yield WORDS.block("filter")
            yield from table(sql_filter.COLUMNS, sql_filter.rows(self.found))
