"""What EXPLAIN says of a query's first stage, for which no answer is needed, beside its run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.queries.calls.cases import Case
from benchmarks.queries.calls.count import opened
from benchmarks.queries.calls.world import World, text
from benchmarks.queries.reciting import Reciting
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
