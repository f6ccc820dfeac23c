"""A STRUCT of five fields, answered in about the time of free text."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import pyarrow.parquet as pq

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.constrained.answers import QUESTION, SCHEMA, Measured, measure
from benchmarks.queries.network import train
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.demo.files import table_path

WORDS = template("queries")

GOAL = 1.1


@dataclass(slots=True)
class Constrained(Part):
    """The part."""

    name = "constrained"
    title = "Answers that are a STRUCT"
    sizes: Sizes = FULL
    found: list[Measured] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import native, set_threads

        set_threads(settings.threads)
        self.sizes = choose(settings.quick)
        rows = pq.read_table(table_path("movies")).slice(0, self.sizes.structs).to_pylist()
        model = train(self.sizes.model, rows, [QUESTION, SCHEMA], self.sizes.vocabulary)
        # A random network draws its end token anywhere; a grammar ends where nothing can follow.
        at = measure(replace(native(model), end=frozenset()), rows, self.sizes.rounds)
        self.found.append(at)
        say(f"{at.constrained} s, free text {at.free} s")
        yield from figures(at)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        for at in self.found:
            yield WORDS.block(
                "constrained",
                rows=len(at.answers),
                rounds=len(at.free),
                schema=SCHEMA,
                model=self.sizes.model,
                first=at.first,
            )
            yield from table(
                ("side", "seconds of each round"),
                [
                    (side, " ".join(f"{each:.2f}" for each in seconds))
                    for side, seconds in (("STRUCT", at.constrained), ("free text", at.free))
                ],
            )


def figures(at: Measured) -> Iterator[Figure]:
    """The time beside that of free text, and how many answers are valid."""
    tokens = sum(answer.output_tokens for answer in at.answers)
    note = f"medians of {len(at.free)}; {tokens:,} tokens of {len(at.answers)} answers"
    yield Figure("constrained_over_free", at.over_free, GOAL, at_least=False, note=note)
    note = f"of {len(at.answers)} answers"
    yield Figure("constrained_valid", at.valid, 1.0, note=note, any_size=True)
