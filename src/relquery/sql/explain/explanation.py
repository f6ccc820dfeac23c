"""What EXPLAIN reports about a query before it runs: one line per LLM call."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import pyarrow as pa

from relquery.config import Order
from relquery.sql.explain.effort import Effort

_ESTIMATED = ("sample", "characters")


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """What one call would ask; None where this cannot be known before the run.

    stage: its name in the report of the run. prompt: the start of the prompt. fields: what the
    model sees of a row. rows, calls, from_ledger: as in the report; `counts` says how reliable
    they are. answers: how an answer is produced. hint: how to make the calls cheaper. effort: what
    the calls take. order: "pinned" where the prompt's text fixes it. modules: fields whose values
    the model reads by themselves. plain: fields whose values it should, but it has no modules.
    compared: how many of the calls ask again, with fields as written, for a guard.
    """

    stage: str
    prompt: str
    fields: str
    rows: int | None
    calls: int | None
    from_ledger: int | None
    counts: Literal["exact", "at most"] | None
    order: Order | Literal["pinned"]
    answers: str
    hint: str | None
    effort: Effort | None
    modules: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    compared: int = 0

    def cells(self) -> dict[str, str]:
        """Readable cells by column title; "" if unknown."""
        work = self.effort
        about = "about " if work and work.counted_by in _ESTIMATED else ""
        return {
            "stage": self.stage,
            "rows": self._count(self.rows),
            "calls": self._count(self.calls),
            "from ledger": f"{self.from_ledger:,}" if self.from_ledger else "",
            "prompt tokens": self._count(work.prompt_tokens, about) if work else "",
            "refused": f"{work.refused:,}" if work and work.refused else "",
            "seconds at most": _rounded(work.seconds) if work else "",
            "USD at most": _rounded(work.usd) if work else "",
            "answers": self.answers,
            "asks": f"{self.prompt} ({self.fields})" if self.fields else self.prompt,
        }

    def _count(self, number: int | None, about: str = "") -> str:
        """A number, marked if it is a bound or an estimate."""
        if number is None:
            return ""
        return f"{'' if self.counts == 'exact' else 'at most '}{about}{number:,}"


def _rounded(figure: float | None) -> str:
    """Two digits, or all before the point."""
    if figure is None:
        return ""
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.2g}"


SCHEMA = pa.schema(
    {
        "stage": pa.string(),
        "prompt": pa.string(),
        "fields": pa.string(),
        "rows": pa.int64(),
        "calls": pa.int64(),
        "from_ledger": pa.int64(),
        "counts": pa.string(),
        "prompt_tokens": pa.int64(),
        "counted_by": pa.string(),
        "refused": pa.int64(),
        "order": pa.string(),
        "answers": pa.string(),
        "seconds": pa.float64(),
        "usd": pa.float64(),
        "hint": pa.string(),
    }
)
"""One row per call; see ExplainedCall."""


@dataclass(frozen=True, slots=True)
class SqlExplanation:
    """What a query would ask, in the order in which its stages run.

    plan: DuckDB's own explanation of a query without LLM calls; None for one with calls, even if
        it would make none.
    unpriced: that no price is known, where a provider would be asked; else None.
    warnings: about prompts that seem to name a field.
    """

    calls: tuple[ExplainedCall, ...]
    plan: str | None = None
    unpriced: str | None = None
    warnings: tuple[str, ...] = ()

    def arrow(self) -> pa.Table:
        """As a table with one row per call, or DuckDB's plan if there are no calls."""
        if self.plan is not None:
            return pa.table({"explain_key": ["physical_plan"], "explain_value": [self.plan]})
        rows = [asdict(call) for call in self.calls]
        return pa.Table.from_pylist([row | (row["effort"] or {}) for row in rows], SCHEMA)

    @property
    def title(self) -> str:
        """The number of calls and the order in which they would be sent."""
        if not self.calls:
            return "No LLM calls"
        orders = " and ".join(sorted({call.order for call in self.calls}))
        return (
            f"{len(self.calls)} LLM {'call' if len(self.calls) == 1 else 'calls'}, {orders} order"
        )

    @property
    def notes(self) -> list[str]:
        """How calls would be cheaper, what is approximated, and why no price is told."""
        hints = [
            f"{call.stage}: {call.hint} so that it takes one forward pass"
            for call in self.calls
            if call.hint
        ]
        hints += [
            f"{call.stage}: MODULE: each value of {' and '.join(call.modules)} is read by itself, "
            "so answers may differ from those without MODULE"
            for call in self.calls
            if call.modules
        ]
        hints += [
            f"{call.stage}: MODULE has no effect: a provider's model is sent "
            f"{' and '.join(call.plain)} as ordinary text"
            for call in self.calls
            if call.plain
        ]
        hints += [
            f"{call.stage}: PROMPT pins the order of the fields, so prompts share less. Name "
            "columns in braces instead: '... {column} ...'"
            for call in self.calls
            if call.order == "pinned"
        ]
        hints += [
            f"{call.stage}: the guard asks {call.compared:,} of them a second time, with fields as "
            "written"
            for call in self.calls
            if call.compared
        ]
        hints += self.warnings
        return hints if self.unpriced is None else [*hints, self.unpriced]

    def columns(self) -> dict[str, list[str]]:
        """Cells to show, by title; columns unknown for all calls are left out."""
        cells = [call.cells() for call in self.calls]
        titles = cells[0] if cells else {}
        columns = {title: [row[title] for row in cells] for title in titles}
        return {title: column for title, column in columns.items() if any(column)}

    def __str__(self) -> str:
        if self.plan is not None:
            return self.plan
        if not self.calls:
            return self.title
        columns = [[title, *cells] for title, cells in self.columns().items()]
        widths = [max(map(len, column)) for column in columns]
        rows = [
            "  ".join(map(str.ljust, row, widths)).rstrip() for row in zip(*columns, strict=True)
        ]
        return "\n".join([self.title, *rows, *self.notes])
