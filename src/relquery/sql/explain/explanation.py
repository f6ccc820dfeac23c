"""The report of EXPLAIN about a query before it runs, one line per LLM call.

And what EXPLAIN ANALYZE reports after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from relquery.config import Order
from relquery.html import boxed, lines, of_columns, preformatted
from relquery.report import Report, StageReport, in_columns
from relquery.sql.explain import cost
from relquery.sql.explain.cost import StageCost, sums
from relquery.sql.render import with_view

Counted = Literal["exact", "expected", "at most"] | None
CountedBy = Literal["tokenizer", "sample", "characters"] | None
_RELIABLE = ("exact", "tokenizer", "expected", "sample", "at most", "characters", None)
_SUMMED = ("rows", "calls", "from_ledger", "compared", "skipped", "prompt_tokens", "refused",
           "seconds", "usd", "cached_tokens", "cost")  # fmt: skip
_LISTED, _FIRST = 6, 3  # fields that are all named, and those named of more


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """The requests that one call would make; None where this cannot be known before the run."""

    stage: str
    """The name of its stage in the report of the run."""
    prompt: str
    """The start of the prompt."""
    fields: str
    """What the model sees of a row."""
    rows: int | None
    """Rows as in the report; `counts` says how reliable the figure is."""
    order: Order | Literal["pinned"]
    """The order of fields; "pinned" where the prompt's text fixes it."""
    answers: str
    """How an answer is produced."""
    hint: str | None
    """How to make the calls cheaper."""
    calls: int | None = None
    """Calls as in the report; `counts` says how reliable the figure is."""
    from_ledger: int | None = None
    """Answers of the ledger; `counts` says how reliable the figure is."""
    counts: Counted = None
    modules: tuple[str, ...] = ()
    """Fields whose values the model reads by themselves."""
    plain: tuple[str, ...] = ()
    """Fields whose values it should read so, but it has no modules."""
    compared: int = 0
    """How many of the calls ask again, with fields as written, for a guard."""
    skipped: int = 0
    """How many of the rows are not asked because all fields are NULL."""
    model: str = ""
    """The model that is asked."""
    prompt_tokens: int | None = None
    """Tokens of all prompts, counted for all or a sample by the backend's tokenizer, or estimated
    from characters."""
    counted_by: CountedBy = None
    refused: int | None = None
    """Prompts that would be refused, e.g. as too long."""
    seconds: float | None = None
    """The most seconds, with an empty cache and answers of maximal length."""
    usd: float | None = None
    """The highest cost, with an empty cache and answers of maximal length."""
    cached_tokens: float | None = None
    """Prompt tokens that a cache serves which is empty at first."""
    is_sample: bool = False
    """Whether only some of the prompts were counted."""
    cost: StageCost | None = None
    """The cost with bounds, if it is asked for or a price is known."""
    is_by_labels: bool = False
    """Whether labels may decide; see executor.pairs."""
    is_pair: bool = False
    """Whether both fields are one column of two tables, and nothing is said of their order."""

    def __add__(self, more: ExplainedCall) -> ExplainedCall:
        """The same stage, asked for some more rows."""
        counts = max(self.counts, more.counts, key=_RELIABLE.index)
        counted_by = max(self.counted_by, more.counted_by, key=_RELIABLE.index)
        is_sample, summed = self.is_sample or more.is_sample, sums(self, more, _SUMMED)
        return replace(self, **summed, counts=counts, counted_by=counted_by, is_sample=is_sample)

    @property
    def hit_rate(self) -> float | None:
        """The share of the prompt tokens that the model's cache serves, if it is empty before."""
        if self.cached_tokens is None or not self.prompt_tokens:
            return None
        return self.cached_tokens / self.prompt_tokens

    @property
    def notes(self) -> list[str]:
        """How it would be cheaper, and what is special about it."""
        hints = [f"{self.hint} so that it takes one forward pass"] if self.hint else []
        return [*hints, *self.remarks()]

    def remarks(self) -> Iterator[str]:
        """What is special about it."""
        if self.modules:
            yield (
                f"MODULE: each value of {listed(self.modules)} is read by itself, so answers "
                "may differ from those without MODULE"
            )
        if self.plain:
            yield (
                f"MODULE has no effect: a provider's model is sent {listed(self.plain)} as "
                "ordinary text"
            )
        if self.order == "pinned":
            yield (
                "PROMPT pins the order of the fields, so prompts share less. Name columns in "
                "braces instead: '... {column} ...'"
            )
        if self.is_pair:
            yield (
                "if the answer is the same for both orders of the two texts, add pairs := "
                "'symmetric' to ask once"
            )
        if self.is_by_labels:
            yield (
                "pairs := 'labels': if a sample of pairs shows that the answer follows from a "
                "label of each text, each text is asked about in place of each pair"
            )
        if self.skipped:
            rows = "1 row" if self.skipped == 1 else f"{self.skipped:,} rows"
            yield f"not asked about {rows} with NULL in all fields"
        if self.compared:
            yield f"the guard asks {self.compared:,} of them a second time, with fields as written"
        if self.cost is not None and self.cost.unshared is not None:
            yield self.cost.unshared

    def cells(self) -> dict[str, str]:
        """Readable cells by column title; "" if unknown."""
        about = "" if self.counted_by == "tokenizer" else "about "
        rate, of_sample = self.hit_rate, "about " if self.is_sample else ""
        live = None if self.cost is None else self.cost.live
        return {
            "stage": self.stage,
            "model": self.model,
            "rows": self._count(self.rows),
            "calls": self._count(self.calls),
            "from ledger": f"{self.from_ledger:,}" if self.from_ledger else "",
            "prompt tokens": self._count(self.prompt_tokens, about),
            "hit rate": "" if rate is None else f"{of_sample}{rate:.0%}",
            "refused": f"{self.refused:,}" if self.refused else "",
            "seconds at most": _rounded(self.seconds),
            "USD expected": _rounded(None if live is None else live.expected),
            "USD at most": _rounded(self.usd),
            "answers": self.answers,
            "asks": f"{self.prompt} ({self.fields})" if self.fields else self.prompt,
        }

    def _count(self, number: int | None, about: str = "") -> str:
        """A number, marked if it is a bound or an estimate."""
        if number is None:
            return ""
        words = {"exact": "", "expected": "about ", "at most": f"at most {about}"}
        return f"{words[self.counts or 'at most'] or about}{number:,}"


def listed(names: Sequence[str], last: str = " and ") -> str:
    """The names, or the first of many. last: what joins the last of a few."""
    if len(names) > _LISTED:
        return f"{', '.join(names[:_FIRST])} and {len(names) - _FIRST} more"
    return last.join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


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
        "hit_rate": pa.float64(),
        "refused": pa.int64(),
        "order": pa.string(),
        "answers": pa.string(),
        "seconds": pa.float64(),
        "usd": pa.float64(),
        "hint": pa.string(),
        "note": pa.string(),
        "model": pa.string(),
    }
)
"""One row per call; see ExplainedCall."""


@dataclass(frozen=True, slots=True)
class SqlExplanation:
    """The calls that a query would make, in the order in which its stages run."""

    calls: tuple[ExplainedCall, ...]
    plan: str | None = None
    """DuckDB's own explanation of a query without LLM calls; None for one with calls, even if it
    would make none."""
    unpriced: str | None = None
    """A sentence that no price is known, where a provider would be asked; else None."""
    warnings: tuple[str, ...] = ()
    """Warnings about prompts that seem to name a field."""
    is_expected: bool = False
    """Whether the length of answers was measured, so that costs are no upper bounds."""
    tells_costs: bool = False
    """Whether to show what the calls cost with bounds, as EXPLAIN (COST) does."""

    @property
    def costs(self) -> dict[str, StageCost | None]:
        """What each stage costs; None where nothing is known before the run."""
        return {call.stage: call.cost for call in self.calls}

    def arrow(self) -> pa.Table:
        """As a table with one row per call, or DuckDB's plan if there are no calls.

        As the result of a query, it is shown as this is.
        """
        if self.plan is not None:
            return pa.table({"explain_key": ["physical_plan"], "explain_value": [self.plan]})
        if self.tells_costs:
            table = cost.table(self.costs, [*cost.notes(self.costs), *self.general])
        else:
            rows, general = list[dict[str, Any]](), self.general
            for call in self.calls:
                row = {name: getattr(call, name, None) for name in SCHEMA.names}
                rows.append(row | {"note": "; ".join([*call.remarks(), *general]) or None})
                general = []
            table = pa.Table.from_pylist(rows, SCHEMA)
        return with_view(table, str(self), self._repr_html_())

    @property
    def title(self) -> str:
        """The number of LLM expressions, and the order in which their calls would be sent."""
        if not self.calls:
            return "No LLM calls"
        orders = " and ".join(sorted({call.order for call in self.calls}))
        count = len(self.calls)
        return f"{count} LLM {'expression' if count == 1 else 'expressions'}, {orders} order"

    @property
    def notes(self) -> list[str]:
        """How calls would be cheaper, what is approximated, and why no price is told."""
        every = [f"{call.stage}: {note}" for call in self.calls for note in call.notes]
        more = cost.notes(self.costs) if self.tells_costs else cost.reasoning(self.costs)
        return [*every, *more, *self.general]

    @property
    def general(self) -> list[str]:
        """Notes that are not about one call."""
        return [*self.warnings, *([] if self.unpriced is None else [self.unpriced])]

    def columns(self) -> dict[str, list[str]]:
        """Cells to show, by title; columns unknown for all calls are left out.

        Of costs that were measured, only what is expected.
        """
        if self.tells_costs:
            return cost.columns(self.costs)
        rows = [call.cells() for call in self.calls]
        columns = {title: [row[title] for row in rows] for title in (rows[0] if rows else ())}
        columns = {title: cells for title, cells in columns.items() if any(cells)}
        if len(set(columns.get("model", ()))) < 2:
            columns.pop("model", None)
        if self.is_expected:
            columns.pop("USD expected", None)
            return {title.replace("at most", "about"): values for title, values in columns.items()}
        return columns

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython in a terminal."""
        printer.text("..." if cycle else str(self))

    def _repr_html_(self) -> str:
        """For notebooks."""
        if self.plan is not None:
            return boxed(preformatted(self.plan))
        shown = of_columns(self.columns(), ("stage", "answers", "asks")) if self.calls else ""
        return boxed(lines([self.title]), shown, lines(self.notes))

    def __str__(self) -> str:
        if self.plan is not None:
            return self.plan
        if not self.calls:
            return self.title
        return "\n".join([self.title, in_columns(self.columns()), *self.notes])


MEASURED = pa.schema(
    [
        ("stage", pa.string()),
        ("expression", pa.string()),
        ("rows", pa.int64()),
        ("calls", pa.int64()),
        ("from_ledger", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("hit_rate", pa.float64()),
        ("output_tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("usd", pa.float64()),
        ("errors", pa.int64()),
        ("order", pa.string()),
        ("model", pa.string()),
        ("note", pa.string()),
    ]
)
"""One row per stage, in the order in which they ran: what EXPLAIN ANALYZE gives."""


def measured(stages: Iterable[StageReport]) -> pa.Table:
    """What the stages of a run took, as a table that is shown as the report is."""
    report = Report(tuple(stages), 0.0)
    rows = [
        {name: getattr(stage, _OF_REPORT.get(name, name)) for name in MEASURED.names}
        | {"model": stage.model or None}
        for stage in report.stages
    ]
    shown, notes = report.columns(), report.notes
    html = boxed(of_columns(shown, ("stage", "model", "agreement", "order")), lines(notes))
    text = "\n".join([in_columns(shown), *notes])
    return with_view(pa.Table.from_pylist(rows, MEASURED), text, html)


_OF_REPORT = {"stage": "name", "from_ledger": "ledger_hits"}
"""What a report calls some columns."""
