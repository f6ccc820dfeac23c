"""AI_AGG over groups that are longer than the model's context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.queries.reciting import Reciting
from relquery.config import EngineConfig
from relquery.connection import connect

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

QUESTION = "What do people praise?"
QUERY = f"SELECT film, AI_AGG('{QUESTION}', review) AS praised FROM reviews GROUP BY film"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Aggregated:
    """said, calls: calls as EXPLAIN says, and as made. groups, missing: how many groups there are,
    and how many have no answer. prompt_tokens: of all calls."""

    said: int
    calls: int
    groups: int
    missing: int
    prompt_tokens: int


def in_groups(texts: Sequence[str], groups: int, characters: int) -> list[Row]:
    """Rows of groups with so many characters, from texts that are used again and again."""
    rows: list[Row] = []
    at = 0
    for group in range(groups):
        left = characters
        while left > 0:
            text = texts[at % len(texts)][:left]
            rows.append({"film": f"film {group}", "review": text})
            left -= len(text)
            at += 1
    return rows


def aggregate(model: ServedModel, rows: Sequence[Row]) -> Aggregated:
    """Explain the query and run it."""
    backend = Reciting(_praised, model, EngineConfig())
    with closing(backend), closing(connect(backend, form="json", ledger=None)) as connection:
        connection.register("reviews", list(rows))
        (said,) = connection.explain(QUERY).calls
        result = connection.sql(QUERY)
    answers = [row[1] for row in result.fetchall()]
    return Aggregated(
        said.calls or 0,
        result.report.calls,
        len(answers),
        answers.count(None),
        result.report.prompt_tokens,
    )


def _praised(prompt: str, fields: Mapping[str, Any]) -> str:
    del prompt
    return f"People praise {len(fields['texts'])} things: the plot, the cast and the music."
