"""EXPLAIN against the run of the queries whose calls are counted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.calls.cases import CASES
from benchmarks.queries.calls.world import PROMPTS, build
from benchmarks.queries.explain.first_stage import Counts, FirstStage, compare
from benchmarks.queries.network import train
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.templates import template

WORDS = template("queries")


@dataclass(slots=True)
class Explain(Part):
    """The part."""

    name = "explain"
    title = "EXPLAIN against the run"
    sizes: Sizes = FULL
    found: list[FirstStage] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads

        set_threads(settings.threads)
        self.sizes = choose(settings.quick)
        world = build(self.sizes.rows_explained, settings.seed)
        rows = [row for _, rows in world.tables() for row in rows]
        model = train(self.sizes.small, rows, PROMPTS, self.sizes.vocabulary)
        for case in CASES:
            self.found.append(at := compare(case, world, model))
            say(f"{case.name}: said {tuple(at.said)}, run {tuple(at.run)}")
        yield from figures(self.found)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("explain", tickets=self.sizes.rows_explained, model=self.sizes.small)
        yield from table(
            ("query", "EXPLAIN", "run: rows", "calls", "prompt tokens"),
            [
                (
                    f"`{at.case.name}`",
                    "the same" if at.said == at.run else ", ".join(_cells(at.said)),
                    *_cells(at.run),
                )
                for at in self.found
            ],
        )


def figures(found: Sequence[FirstStage]) -> Iterator[Figure]:
    """Calls that EXPLAIN makes, and the share of the queries whose first stage it knows."""
    asked = sum(at.asked for at in found)
    note = f"{len(found)} queries explained"
    yield Figure("explain_calls", asked, 0.0, at_least=False, note=note, any_size=True)
    wrong = [at.case.name for at in found if not at.holds]
    note = f"wrong: {', '.join(wrong)}" if wrong else "rows, calls and prompt tokens"
    share = 1 - len(wrong) / len(found)
    yield Figure("explain_first_stage", share, 1.0, note=note, any_size=True)


def _cells(counts: Counts) -> tuple[str, ...]:
    return tuple("unknown" if count is None else f"{count:,}" for count in counts)
