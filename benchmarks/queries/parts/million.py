"""Planning a query over a million rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.million import QUERIES, measure
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.templates import template

WORDS = template("queries")

SECONDS_GOAL, GIB_GOAL = 60.0, 3.0
"""Seconds: on the clock, for a million prompts."""
COLUMNS = ("rows", "calls", "planning", "streaming", "results", "wall", "peak_gib")


@dataclass(slots=True)
class Million(Part):
    """The part. found: by query, see `million.measure`."""

    name = "million"
    title = "A million rows"
    sizes: Sizes = FULL
    found: dict[str, Mapping[str, float]] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = choose(settings.quick)
        for query in QUERIES:
            self.found[query] = at = measure(self.sizes.rows_planned, query)
            say(f"{query}: {at}")
            yield from figures(query, at)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("million", rows=self.sizes.rows_planned)
        yield from table(
            ("query", *COLUMNS),
            [
                (query, *(f"{at[column]:,.{2 * (column not in _COUNTS)}f}" for column in COLUMNS))
                for query, at in self.found.items()
            ],
        )


def figures(query: str, at: Mapping[str, float]) -> Iterator[Figure]:
    """Seconds for a million prompts, and the memory at its peak."""
    seconds = at["wall"] / at["calls"] * 1e6
    processor = at["planning"] + at["streaming"] + at["results"]
    took = f"{at['wall']:.1f} s on the clock, {processor:.1f} s of the processor"
    note = f"{took}, for {at['calls']:,.0f} prompts"
    yield Figure(f"million_{query}_seconds", seconds, SECONDS_GOAL, at_least=False, note=note)
    note = f"{at['rows']:,.0f} rows of the result, {at['calls']:,.0f} calls"
    yield Figure(f"million_{query}_gib", at["peak_gib"], GIB_GOAL, False, note, any_size=True)


_COUNTS = ("rows", "calls")
