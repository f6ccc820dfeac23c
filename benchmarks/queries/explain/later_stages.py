"""What EXPLAIN says of the stages after the first, given the shares of rows that then passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.queries.calls.cases import Case
from benchmarks.queries.calls.count import opened
from benchmarks.queries.calls.world import World, text
from benchmarks.queries.reciting import Reciting
from relquery.config import EngineConfig

if TYPE_CHECKING:
    from relquery.model.served import ServedModel


@dataclass(frozen=True, slots=True)
class LaterStage:
    """A stage after the first of a query. said_tokens, said_hits: what EXPLAIN predicts of its
    prompt tokens and of the share that the cache serves; None for what it cannot predict.
    """

    case: Case
    stage: str
    calls: int
    said_tokens: int | None
    tokens: int
    said_hits: float | None
    hits: float

    @property
    def off_tokens(self) -> float:
        """The error over what was measured; all of it if nothing was predicted."""
        if self.said_tokens is None:
            return 1.0
        return abs(self.said_tokens - self.tokens) / max(1, self.tokens)

    @property
    def off_hits(self) -> float:
        """The error in the hit rate."""
        return 1.0 if self.said_hits is None else abs(self.said_hits - self.hits)


def analyze(case: Case, world: World, model: ServedModel) -> Iterator[LaterStage]:
    """Run the query with EXPLAIN ANALYZE on an engine with an empty cache."""

    def recite(prompt: str, fields: Mapping[str, Any]) -> str:
        return text(prompt, **fields)

    with (
        closing(Reciting(recite, model, EngineConfig())) as backend,
        closing(opened(backend, world)) as connection,
    ):
        rows = connection.sql(f"EXPLAIN ANALYZE {case.sql}", max_tokens=2).arrow().to_pylist()
    for row in rows[1:]:
        if row["prompt_tokens"]:
            yield LaterStage(
                case,
                row["stage"],
                row["calls"],
                row["predicted_prompt_tokens"],
                row["prompt_tokens"],
                row["predicted_hit_rate"],
                row["hit_rate"],
            )
