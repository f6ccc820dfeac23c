"""EXPLAIN ANALYZE of one statement: each stage is predicted when its rows are known, just before it
runs. So what is compared is how EXPLAIN counts, not what somebody guesses of the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from relquery.arrays import Int64s
from relquery.html.table import boxed, lines, of_columns
from relquery.prompt import Sampling
from relquery.report import StageReport, in_columns
from relquery.sql.executor.execute import Execution
from relquery.sql.executor.rows import Rows
from relquery.sql.explain import explanation
from relquery.sql.explain.explain import Explainer
from relquery.sql.explain.explanation import ExplainedCall
from relquery.sql.explain.rows import EstimatedRows
from relquery.sql.parser.tree import Expression, Node
from relquery.sql.planner.plan import PlannedCall
from relquery.sql.planner.statement import Plan
from relquery.sql.render import with_view

TITLE = "Predicted, given the rows that passed / measured"
COMPARED = ("rows", "calls", "from_ledger", "prompt_tokens", "hit_rate", "seconds")
"""The columns of EXPLAIN that are compared with what was measured."""

_NAMES = {"from_ledger": "ledger_hits"}  # in reports

SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("prompt", pa.string()),
        ("fields", pa.string()),
        *(
            (f"{before}{name}", explanation.SCHEMA.field(name).type)
            for name in COMPARED
            for before in ("predicted_", "")
        ),
        ("output_tokens", pa.int64()),
        ("errors", pa.int64()),
        ("order", pa.string()),
    ]
)
"""One row per stage, in the order in which they ran. NULL for what could not be predicted."""


def compared(predicted: Mapping[str, ExplainedCall], measured: Iterable[StageReport]) -> pa.Table:
    """A row per stage of the run."""
    rows = []
    for stage in measured:
        call = predicted[stage.name]
        row: dict[str, Any] = {"stage": stage.name, "prompt": call.prompt, "fields": call.fields}
        row |= {"output_tokens": stage.output_tokens, "errors": stage.errors, "order": call.order}
        for name in COMPARED:
            row[f"predicted_{name}"] = getattr(call, name)
            row[name] = getattr(stage, _NAMES.get(name, name))
        row["hit_rate"] = stage.hit_rate if stage.prompt_tokens else None
        rows.append(row)
    table = pa.Table.from_pylist(rows, SCHEMA)
    shown = dict(cells(table))
    html = boxed(lines([TITLE]), of_columns(shown, ("stage", "asks")))
    return with_view(table, f"{TITLE}\n{in_columns(shown)}", html)


def is_analysis(table: pa.Table) -> bool:
    """Whether a table is what EXPLAIN ANALYZE of a query with calls returns."""
    return bool(table.schema.equals(SCHEMA))


def cells(table: pa.Table) -> Iterator[tuple[str, list[str]]]:
    """What to show, column by column with its title: `predicted / measured`.

    Of what is predicted of no stage, only what was measured.
    """
    columns = table.to_pydict()
    yield "stage", columns["stage"]
    for name in COMPARED:
        said, found = columns[f"predicted_{name}"], columns[name]
        if name == "from_ledger" and not any((*said, *found)):
            continue
        texts = [_written(name, value) for value in found]
        if any(value is not None for value in said):
            pairs = zip((_written(name, value) or "?" for value in said), texts, strict=True)
            texts = [f"{one} / {other}" for one, other in pairs]
        yield name.replace("_", " "), texts
    asks = zip(columns["prompt"], columns["fields"], strict=True)
    yield "asks", [f"{prompt} ({fields})" if fields else prompt for prompt, fields in asks]


def _written(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "hit_rate":
        return f"{value:.1%}"
    return f"{value:.2f}" if name == "seconds" else f"{value:,}"


class AnsweredRows(EstimatedRows):
    """Rows of a SELECT that runs: each answer is there when a stage reads it."""

    __slots__ = ()
    defers_filter = True
    learns = Rows.learns
    passing = Rows.passing
    cut = Rows.cut
    may_stop = False

    def is_open(self, node: Node) -> bool:
        """Not at all."""
        return False


@dataclass(slots=True)
class Analysis(Execution):
    """Runs the plan of a statement, and predicts each of its stages."""

    explainer: Explainer = field(init=False)
    _samplings: dict[str, Sampling] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = AnsweredRows.of
        self.explainer = Explainer(self.database, self.scratch, self.context)

    def ask(
        self, name: str, call: PlannedCall, rows: Rows, wanted: Int64s, where: Expression | None
    ) -> None:
        """Predict one call for some rows, and ask it."""
        assert isinstance(rows, AnsweredRows)
        self._samplings[name] = call.sampling
        self.explainer.ask(name, call, rows, wanted, where)
        Execution.ask(self, name, call, rows, wanted, where)

    def run(self, plan: Plan) -> pa.Table:
        """What was predicted of the stages beside what was measured."""
        before = set(self.paid.stages)
        sql, _ = self.answered(plan)
        self.database.execute(sql)
        stages = [one for name, one in self.paid.stages.items() if name not in before]
        calls = self.explainer.calls
        return compared({one.name: self._timed(calls[one.name], one) for one in stages}, stages)

    def _timed(self, call: ExplainedCall, stage: StageReport) -> ExplainedCall:
        """With the seconds for answers as long as they were."""
        if call.prompt_tokens is None or not call.calls or not stage.calls:
            return call
        length = max(1, round(stage.output_tokens / stage.calls))
        sampling = replace(self._samplings[stage.name], max_tokens=length)
        counts = [round(call.prompt_tokens / call.calls)] * call.calls
        seconds = self.context.backend.predict(counts, sampling, int(call.cached_tokens or 0))
        return replace(call, seconds=seconds)
