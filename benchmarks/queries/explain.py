"""What EXPLAIN says of a query's first stage, for which no answer is needed, beside its run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.calls.cases import CASES, Case
from benchmarks.queries.calls.part import opened
from benchmarks.queries.calls.world import PROMPTS, World, build, text
from benchmarks.queries.network import Reciting, train
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.config import EngineConfig
from relquery.report import StageReport
from relquery.sql.explain.explanation import ExplainedCall

if TYPE_CHECKING:
    from relquery.model.served import ServedModel


class Counts(NamedTuple):
    """Of a stage; None where it is not known. tokens: of all prompts."""

    rows: int | None
    calls: int | None
    tokens: int | None


@dataclass(frozen=True, slots=True)
class FirstStage:
    """A query's first stage. is_exact: whether EXPLAIN says that its counts are.
    asked: answers that EXPLAIN asked for."""

    case: Case
    said: Counts
    is_exact: bool
    run: Counts
    asked: int

    @property
    def holds(self) -> bool:
        """Whether EXPLAIN was right: exactly, or of a query that stops early, as a bound."""
        if self.case.stops_early:
            return all(
                at_most is not None and count is not None and at_most >= count
                for at_most, count in zip(self.said, self.run, strict=True)
            )
        return self.is_exact and self.said == self.run


def compare(case: Case, world: World, model: ServedModel) -> FirstStage:
    """Explain the query, then run it. The engine counts its tokens; the answers are the world's."""
    answered = 0

    def recite(prompt: str, fields: Mapping[str, Any]) -> str:
        nonlocal answered
        answered += 1
        return text(prompt, **fields)

    with (
        closing(Reciting(recite, model, EngineConfig())) as backend,
        closing(opened(backend, world)) as connection,
    ):
        first, *_ = connection.explain(case.sql, max_tokens=2).calls
        asked = answered
        stage, *_ = connection.sql(case.sql, max_tokens=2).report.stages
    return FirstStage(case, said(first), _is_exact(first), measured(stage), asked)


def said(call: ExplainedCall) -> Counts:
    """What EXPLAIN says."""
    return Counts(call.rows, call.calls, call.prompt_tokens)


def measured(stage: StageReport) -> Counts:
    """What the run shows."""
    return Counts(stage.rows, stage.calls, stage.prompt_tokens)


def _is_exact(call: ExplainedCall) -> bool:
    return call.counts == "exact" and call.counted_by == "tokenizer"


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
            self.found.append(stage := compare(case, world, model))
            say(f"{case.name}: said {tuple(stage.said)}, run {tuple(stage.run)}")
        yield from figures(self.found)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("explain", tickets=self.sizes.rows_explained, model=self.sizes.small)
        yield from table(
            ("query", "EXPLAIN", "run: rows", "calls", "prompt tokens"),
            [
                (
                    f"`{stage.case.name}`",
                    "the same" if stage.said == stage.run else ", ".join(_cells(stage.said)),
                    *_cells(stage.run),
                )
                for stage in self.found
            ],
        )


def figures(found: Sequence[FirstStage]) -> Iterator[Figure]:
    """Calls that EXPLAIN makes, and the share of the queries whose first stage it knows."""
    asked = sum(stage.asked for stage in found)
    note = f"{len(found)} queries explained"
    yield Figure("explain_calls", asked, 0.0, at_least=False, note=note, any_size=True)
    wrong = [stage.case.name for stage in found if not stage.holds]
    note = f"wrong: {', '.join(wrong)}" if wrong else "rows, calls and prompt tokens"
    share = 1 - len(wrong) / len(found)
    yield Figure("explain_first_stage", share, 1.0, note=note, any_size=True)


def _cells(counts: Counts) -> tuple[str, ...]:
    return tuple("unknown" if count is None else f"{count:,}" for count in counts)
