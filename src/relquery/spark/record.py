"""The cost of a statement over Spark, and its rows without a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from relquery.report import Report, StageReport
from relquery.spark.asks import COUNTS, FINISH, KEY, TEXT, TROUBLE
from relquery.spark.state import ANSWERED, INVALID, LOST, SKIPPED, SparkState, state_of
from relquery.sql import names as ours
from relquery.sql.parser.parse import parser
from relquery.sql.planner.checks import Check
from relquery.sql.planner.plan import PlannedCall

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ERRORS = (
    "stage string, row bigint, inputs map<string, string>, error string, text string, "
    "finish string, attempts int"
)
"""The schema of row errors; see sql.result.RowError."""

_INPUTS, _VALUE = f"{ours.PREFIX}inputs", f"{ours.PREFIX}read"


@dataclass(slots=True)
class Record:
    """order: of the config. stages: by name, in the order in which they began."""

    clock: Callable[[], float]
    order: str
    stages: dict[str, StageReport] = field(default_factory=dict)
    _lost: dict[str, DataFrame] = field(default_factory=dict)
    _invalid: dict[tuple[str, int], DataFrame] = field(default_factory=dict)
    _counted: dict[tuple[str, str], int] = field(default_factory=dict)

    def cost(
        self,
        name: str,
        call: PlannedCall,
        inputs: int,
        known: int,
        attempts: int,
        prompt_tokens: int,
        cached_tokens: int,
        output_tokens: int,
        phr: float,
        solving: float,
    ) -> None:
        """Add what some inputs of a stage have cost."""
        before = self._stage(name, call)
        calls = inputs - known
        both = max(1, before.calls + calls)
        self.stages[name] = replace(
            before,
            calls=before.calls + calls,
            ledger_hits=before.ledger_hits + known,
            attempts=before.attempts + attempts,
            prompt_tokens=before.prompt_tokens + prompt_tokens,
            cached_tokens=before.cached_tokens + cached_tokens,
            output_tokens=before.output_tokens + output_tokens,
            solver_seconds=before.solver_seconds + solving,
            phr=(before.phr * before.calls + phr * calls) / both,
        )

    def rows(self, name: str, call: PlannedCall, asked: DataFrame, state: str, began: float) -> int:
        """Record the rows that a stage was asked for in its last run.

        Returns how many have no value.
        """
        from pyspark.sql import functions as F

        lost, skipped = (F.count_if(F.col(state) == value) for value in (LOST, SKIPPED))
        (row,) = asked.agg(F.count("*"), lost, skipped).collect()
        before = self._stage(name, call)
        self._counted[name, "lost"] = row[1]
        self.stages[name] = replace(
            before,
            rows=row[0],
            skipped=row[2],
            errors=self._errors(name),
            seconds=before.seconds + self.clock() - began,
        )
        self._lost.pop(name, None)
        return int(row[1])

    def lose(
        self, name: str, call: PlannedCall, keyed: SparkState, troubled: DataFrame, texts: list[str]
    ) -> None:
        """Note the rows whose answers are lost. keyed: rows with KEY. troubled: such answers."""
        from pyspark.sql import functions as F

        sql = f"SELECT {KEY}, {ours.ROW}, {_inputs(call, texts)} FROM {ours.ROWS}"
        rows = keyed.over(f"{sql} WHERE {KEY} IS NOT NULL")
        self._lost[name] = _kept(
            keyed,
            rows.join(troubled, KEY).select(
                F.lit(name).alias("stage"),
                F.col(ours.ROW).alias("row"),
                F.col(_INPUTS).alias("inputs"),
                F.col(TROUBLE).alias("error"),
                F.col(TEXT).alias("text"),
                F.col(FINISH).alias("finish"),
                F.col(COUNTS[0]).alias("attempts"),
            ),
        )

    def check(
        self, name: str, checks: tuple[Check, ...], before: SparkState, after: SparkState
    ) -> None:
        """Note the rows that fail checks. before, after: the rows without and with their marks."""
        from pyspark.sql import functions as F

        invalid = sum(
            (
                F.count_if(F.col(state_of(call)) == INVALID)
                for call in sorted({check.calls[-1] for check in checks})
            ),
            F.lit(0),
        )
        (row,) = after.frame.agg(invalid).collect()
        self._counted[name, "invalid"] = row[0]
        self.stages[name] = replace(self.stages[name], errors=self._errors(name))
        for index, check in enumerate(checks if row[0] else ()):
            call = before.plan.calls[check.calls[-1]]
            state = state_of(call.index)
            texts = [text for text, _ in before.texts(call.fields)]
            value, failing = parser().print([check.value, check.failed])
            sql = (
                f"SELECT {ours.ROW} AS row, {_inputs(call, texts)}, {value} AS "
                f"{_VALUE} FROM {ours.ROWS} WHERE {state} = {ANSWERED} AND ({failing})"
            )
            failed = before.over(sql).mapInArrow(_Troubles(name, check).over, ERRORS)
            others = self._invalid.get((name, call.index))
            if (
                index and others is not None
            ):  # a row is told once, for the first check that it fails
                failed = others.unionByName(failed).dropDuplicates(["stage", "row"])
            self._invalid[name, call.index] = _kept(before, failed)

    def report(self, seconds: float) -> Report:
        """What the stages have cost."""
        return Report(tuple(self.stages.values()), seconds)

    def errors(self) -> list[DataFrame]:
        """The rows without a value, by stage; see ERRORS."""
        return [*self._lost.values(), *self._invalid.values()]

    def _errors(self, name: str) -> int:
        return sum(self._counted.get((name, kind), 0) for kind in ("lost", "invalid"))

    def _stage(self, name: str, call: PlannedCall) -> StageReport:
        none = StageReport(name, call.text, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, self.order, 0.0)
        return self.stages.setdefault(name, none)


def _kept(rows: SparkState, errors: DataFrame) -> DataFrame:
    return rows.store.keep(rows.store.written(errors))


@dataclass(frozen=True, slots=True)
class _Troubles:
    """Says in words what is wrong with the answers of some rows."""

    stage: str
    check: Check

    def over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows, inputs, values = batch.columns
            count = batch.num_rows
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([self.stage] * count, pa.string()),
                    rows,
                    inputs,
                    pa.array(map(self.check.trouble, values.to_pylist()), pa.string()),
                    values.cast(pa.string()),
                    pa.array(["stop"] * count, pa.string()),
                    pa.array([1] * count, pa.int32()),
                ],
                ["stage", "row", "inputs", "error", "text", "finish", "attempts"],
            )


def _inputs(call: PlannedCall, texts: list[str]) -> str:
    """The fields of a call by name, as SQL."""
    names = ", ".join(ours.quoted_text(field.name) for field in call.fields)
    values = ", ".join(f"CAST(({text}) AS VARCHAR)" for text in texts)
    kind = "MAP(VARCHAR, VARCHAR)"
    return f"CAST(map([{names}], [{values}]) AS {kind}) AS {_INPUTS}"
