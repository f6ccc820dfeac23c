"""EXPLAIN ANALYZE of one statement: each stage is predicted when its rows are known, just before it
runs. So what is compared is how EXPLAIN counts, not what somebody guesses of the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from relquery.arrays import Int64s
from relquery.html.table import boxed, lines, of_columns
from relquery.prompt import Sampling
from relquery.report import StageReport, in_columns
from relquery.sql.executor.execute import Execution
from relquery.sql.executor.rows import Rows
from relquery.sql.explain.explain import Explainer
from relquery.sql.explain.explanation import ExplainedCall
from relquery.sql.explain.rows import EstimatedRows
from relquery.sql.parser.tree import Expression, Node
from relquery.sql.planner.plan import PlannedCall
from relquery.sql.planner.statement import Plan
from relquery.sql.render import with_view

TITLE = "Predicted, given the rows that passed / measured"
COMPARED = {
    "rows": pa.int64(),
    "calls": pa.int64(),
    "from_ledger": pa.int64(),
    "prompt_tokens": pa.int64(),
    "hit_rate": pa.float64(),
    "seconds": pa.float64(),
}
"""What is compared, and its type."""

_NAMES = {"from_ledger": "ledger_hits"}  # in reports

SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("prompt", pa.string()),
        ("fields", pa.string()),
        *(
            pair
            for name, kind in COMPARED.items()
            for pair in ((f"predicted_{name}", kind), (name, kind))
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
        call = predicted.get(stage.name)
        row: dict[str, Any] = {
            "stage": stage.name,
            "prompt": stage.expression if call is None else call.prompt,
            "fields": None if call is None else call.fields,
            "output_tokens": stage.output_tokens,
            "errors": stage.errors,
            "order": stage.order if call is None else call.order,
        }
        row |= {name: getattr(stage, _NAMES.get(name, name)) for name in COMPARED}
        row["hit_rate"] = stage.hit_rate if stage.prompt_tokens else None
        if call is not None:
            row |= {f"predicted_{name}": value for name, value in _predicted(call).items()}
        rows.append(row)
    table = pa.Table.from_pylist(rows, SCHEMA)
    shown = {title: list(column) for title, column in cells(table)}
    html = boxed(lines([TITLE]), of_columns(shown, ("stage", "asks")))
    return with_view(table, f"{TITLE}\n{in_columns(shown)}", html)


def _predicted(call: ExplainedCall) -> dict[str, int | float | None]:
    work = call.effort
    return {
        "rows": call.rows,
        "calls": call.calls,
        "from_ledger": call.from_ledger,
        "prompt_tokens": None if work is None else work.prompt_tokens,
        "hit_rate": call.hit_rate,
        "seconds": None if work is None else work.seconds,
    }


def is_analysis(table: pa.Table) -> bool:
    """Whether a table is what EXPLAIN ANALYZE of a query with calls returns."""
    return bool(table.schema.equals(SCHEMA))


def cells(table: pa.Table) -> Iterator[tuple[str, Sequence[str]]]:
    """What to show, column by column with its title: `predicted / measured`.

    Of what is predicted of no stage, only what was measured.
    """
    columns = dict(zip(table.column_names, (one.to_pylist() for one in table.columns), strict=True))
    yield "stage", columns["stage"]
    for name in COMPARED:
        if name == "from_ledger" and not any((*columns[f"predicted_{name}"], *columns[name])):
            continue
        said, found = (
            [_written(name, value) for value in columns[title]]
            for title in (f"predicted_{name}", name)
        )
        if any(said):
            found = [f"{one or '?'} / {other}" for one, other in zip(said, found, strict=True)]
        yield name.replace("_", " "), found
    yield (
        "asks",
        [
            f"{prompt} ({fields})" if fields else prompt
            for prompt, fields in zip(columns["prompt"], columns["fields"], strict=True)
        ],
    )


def _written(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "hit_rate":
        return f"{value:.1%}"
    return f"{value:.2f}" if name == "seconds" else f"{value:,}"


class KnownRows(EstimatedRows):
    """Rows of a SELECT that runs: each answer is there when a stage reads it."""

    __slots__ = ()
    matching = Rows.matching
    leave = Rows.leave
    learns = Rows.learns
    passing = Rows.passing
    cut = Rows.cut
    _answers = Rows._answers
    may_stop = False

    def is_open(self, node: Node) -> bool:
        """Not at all."""
        return False

    def waits(self, call: PlannedCall) -> bool:
        """Not any more."""
        return False


@dataclass(slots=True)
class Analysis(Execution):
    """Runs the plan of a statement, and predicts each of its stages."""

    explainer: Explainer = field(init=False)
    _samplings: dict[str, Sampling] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = KnownRows.of
        self.explainer = Explainer(self.database, self.scratch, self.asker)

    def ask(
        self, name: str, call: PlannedCall, rows: Rows, wanted: Int64s, where: Expression | None
    ) -> None:
        """Predict one call for some rows, and ask it."""
        assert isinstance(rows, KnownRows)
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
        timed = {one.name: self._timed(calls[one.name], one) for one in stages}
        return compared(timed, stages)

    def _timed(self, call: ExplainedCall, stage: StageReport) -> ExplainedCall:
        """With the seconds for answers as long as they were."""
        work, backend = call.effort, self.asker.backend
        if work is None or not call.calls or not stage.calls:
            return call
        length = max(1, round(stage.output_tokens / stage.calls))
        sampling = replace(self._samplings[stage.name], max_tokens=length)
        counts = [round(work.prompt_tokens / call.calls)] * call.calls
        cached = int((call.hit_rate or 0.0) * work.prompt_tokens)
        return replace(
            call, effort=replace(work, seconds=backend.predict(counts, sampling, cached))
        )
