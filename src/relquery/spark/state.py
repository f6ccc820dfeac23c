"""The rows of one SELECT while Spark runs it: base columns, and the answers to its calls so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from relquery.spark.asks import KEY, Local
from relquery.spark.dialect import Hoisted, check_alone
from relquery.spark.shadow import Shadow
from relquery.spark.store import Store
from relquery.sql import names as ours
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.inputs.cells import Form, as_text, bag_as_text
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Select
from relquery.sql.planner.checks import Check
from relquery.sql.planner.plan import Field, PlannedCall, SelectPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANSWERED, LOST, INVALID, UNDETERMINED, SKIPPED = range(5)
"""The state of a call in a row: it has a value; it was asked in vain; its value is not what the
query needs; a field of it depends on an answer that is missing. NULL: not asked."""


def state_of(call: int) -> str:
    """The column with the state of a call."""
    return f"{ours.PREFIX}state_{call}"


@dataclass(frozen=True, slots=True)
class SparkState:
    """frame: the rows that are still needed, with the columns of the base, ours.ROW, and for each
    call its answer and its state. store: where rows are kept between stages.
    """

    plan: SelectPlan
    functions: FunctionCatalog
    shadow: Shadow
    frame: DataFrame
    store: Store

    @classmethod
    def of(
        cls, plan: SelectPlan, functions: FunctionCatalog, shadow: Shadow, store: Store
    ) -> SparkState:
        """The base rows of a plan, nothing asked."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_type

        base = shadow.run(plan.context.around(plan.base))
        columns = {
            # As in DuckDB's tables, NULL without a type is an INTEGER.
            field.name: F.col(f"`{field.name}`").cast("int")
            for field in base.schema.fields
            if field.dataType.typeName() == "void"
        }
        columns[ours.ROW] = F.monotonically_increasing_id()
        for call in plan.calls:
            kind = from_arrow_type(call.task.transport)
            columns[ours.answer(call.index)] = F.lit(None).cast(kind)
            columns[state_of(call.index)] = F.lit(None).cast("int")
        frame = base.withColumns(columns)
        return cls(plan, functions, shadow, frame, store).written()

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        return self.shadow.arrow(self.frame.schema)

    def held(self) -> SparkState:
        """The same rows, which Spark keeps in memory once they are computed."""
        return replace(self, frame=self.store.held(self.frame))

    def written(self) -> SparkState:
        """The same rows, computed now and read from files: see Store."""
        return replace(self, frame=self.store.written(self.frame))

    def over(self, sql: str) -> DataFrame:
        """What DuckDB gives for a query over ours.ROWS that treats each row by itself."""
        return computed(self.frame, sql, self.shadow)

    def where(self, predicate: Expression) -> SparkState:
        """The rows for which a predicate over answers is true."""
        frame = self.view(build.select([build.star()], ours.ROWS, predicate.copy()))
        return replace(self, frame=frame.select(*self.frame.columns))

    def texts(self, fields: Iterable[Field]) -> list[tuple[str, Form]]:
        """SQL that writes each field as text, and the form of that text; see Rows."""
        fields = list(fields)
        for field in fields:
            check_alone(field.value)
        if not fields:
            return []
        types = self.shadow.types_of(", ".join(field.sql for field in fields), self.schema)
        return [
            bag_as_text(field.name, field.sql, kind) if field.is_bag else as_text(field.sql, kind)
            for field, kind in zip(fields, types, strict=True)
        ]

    def asked(self, call: PlannedCall, where: Expression | None, texts: list[str]) -> str:
        """The rows with KEY where a call is to be asked, as SQL over ours.ROWS.

        Its state is noted where an answer that its fields read is missing. texts: of the fields.
        """
        state = state_of(call.index)
        wanted = f"{state} IS NULL"
        if where is not None:
            check_alone(where)
            wanted += f" AND coalesce(({parser().sql(where)}), false)"
        lost = " OR ".join(
            f"{state_of(need.call)} IN ({LOST}, {UNDETERMINED}) "
            f"AND coalesce(({parser().sql(need.reads)}), false)"
            for need in call.needs
        )
        marked = f"SELECT *, {wanted} AS {_WANTED}, {lost or 'false'} AS {_LOST} FROM {ours.ROWS}"
        return (
            f"SELECT * EXCLUDE ({_WANTED}, {_LOST}) REPLACE (CASE WHEN {_WANTED} AND {_LOST} THEN "
            f"{UNDETERMINED} ELSE {state} END AS {state}), CASE WHEN {_WANTED} AND NOT {_LOST} "
            f"THEN {_key(texts)} END AS {KEY} FROM ({marked}) AS {ours.ROWS}"
        )

    def checked(self, checks: Iterable[Check]) -> SparkState:
        """Note the rows whose answers are not what the query needs."""
        frame = self.frame
        for check in checks:
            check_alone(check.failed)
            state, wrong = state_of(check.calls[-1]), parser().sql(check.failed)
            sql = (
                f"SELECT * REPLACE (CASE WHEN {state} = {ANSWERED} AND coalesce(({wrong}), false) "
                f"THEN {INVALID} ELSE {state} END AS {state}) FROM {ours.ROWS}"
            )
            frame = computed(frame, sql, self.shadow)
        return replace(self, frame=frame)

    def view(self, select: Select) -> DataFrame:
        """What Spark gives for a SELECT over the rows. Raises UnsupportedQueryError."""
        hoisted = Hoisted(self.functions)
        selected = hoisted.select(select)
        frame = self.frame
        if hoisted.columns:
            pairs = zip(parser().print(hoisted.columns.values()), hoisted.columns, strict=True)
            more = ", ".join(f"{text} AS {name}" for text, name in pairs)
            frame = self.over(f"SELECT *, {more} FROM {ours.ROWS}")
        rows = build.select([build.star()], self.shadow.publish(frame))
        selected.entries = [build.entry(ours.ROWS, rows)]
        return self.shadow.run(self.plan.context.around(selected))


_WANTED, _LOST = f"{ours.PREFIX}wanted", f"{ours.PREFIX}lost"


def _key(texts: list[str]) -> str:
    """The hash of some texts, NULL among them, as SQL: no two lists of texts are written alike."""
    written = [f"coalesce(length({text}) || ':' || ({text}), '-')" for text in texts]
    return f"unhex(sha256({' || '.join(written) or repr('')}))"


def computed(frame: DataFrame, sql: str, shadow: Shadow) -> DataFrame:
    """What DuckDB gives, in the tasks, for a query over the rows of a frame, each by itself.

    Raises QueryError if the query is wrong.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = shadow.schema_of(sql, shadow.arrow(frame.schema))
    local = Local(sql, schema, shadow.zone)
    return frame.mapInArrow(local.over, from_arrow_schema(schema, prefer_timestamp_ntz=True))
