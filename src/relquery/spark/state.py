"""The rows of one SELECT while Spark runs it: base columns, and the answers to its calls so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from relquery.spark.planning.dialect import to_spark
from relquery.spark.planning.hoist import Hoisted, check_alone
from relquery.spark.planning.shadow import Shadow
from relquery.spark.store import Store
from relquery.spark.tasks.asks import KEY
from relquery.spark.tasks.local import Local
from relquery.sql import names as ours
from relquery.sql.answers.checks import Check
from relquery.sql.inputs.prompt import Form, as_text, bag_as_text
from relquery.sql.plan.fields import Field
from relquery.sql.plan.planner import PlannedCall, SelectPlan
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.scopes import Context
from relquery.sql.read.source import to_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANSWERED, LOST, INVALID, UNDETERMINED = range(4)
"""The state of a call in a row: it has a value; it was asked in vain; its value is not what the
query needs; a field of it depends on an answer that is missing. NULL: not asked."""


def state_of(call: int) -> str:
    """The column with the state of a call."""
    return f"{ours.PREFIX}state_{call}"


@dataclass(frozen=True, slots=True)
class State:
    """frame: the rows that are still needed, with the columns of the base, ours.ROW, and for each
    call its answer and its state. store: where rows are kept between stages.
    """

    plan: SelectPlan
    context: Context
    shadow: Shadow
    aggregates: Aggregates
    frame: DataFrame
    store: Store

    @classmethod
    def of(
        cls,
        plan: SelectPlan,
        context: Context,
        shadow: Shadow,
        aggregates: Aggregates,
        base: DataFrame,
        store: Store,
    ) -> State:
        """Nothing asked. base: the rows of the plan's base."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_type

        columns = {
            # As in DuckDB's tables, NULL without a type is an INTEGER.
            one.name: F.col(f"`{one.name}`").cast("int")
            for one in base.schema.fields
            if one.dataType.typeName() == "void"
        }
        columns[ours.ROW] = F.monotonically_increasing_id()
        for call in plan.calls:
            kind = from_arrow_type(call.task.transport)
            columns[ours.answer(call.index)] = F.lit(None).cast(kind)
            columns[state_of(call.index)] = F.lit(None).cast("int")
        frame = base.withColumns(columns)
        return cls(plan, context, shadow, aggregates, frame, store).written()

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        return self.shadow.arrow(self.frame.schema)

    def held(self) -> State:
        """The same rows, which Spark keeps in memory once they are computed."""
        return replace(self, frame=self.store.held(self.frame))

    def written(self) -> State:
        """The same rows, computed now and read from files: see Store."""
        return replace(self, frame=self.store.written(self.frame))

    def over(self, sql: str) -> DataFrame:
        """What DuckDB gives for a query over ours.ROWS that treats each row by itself."""
        return computed(self.frame, sql, self.shadow)

    def where(self, predicate: exp.Expr) -> State:
        """The rows for which a predicate over answers is true."""
        if predicate.find(exp.Query) is None:
            sql = f"SELECT * FROM {ours.ROWS} WHERE {to_sql(predicate)}"
            return replace(self, frame=self.over(sql))
        select = exp.select("*").from_(ours.ROWS).where(predicate)
        frame = self.shadow.spark.sql(to_spark(self.view(select)))
        return replace(self, frame=frame.select(*self.frame.columns))

    def texts(self, fields: Iterable[Field]) -> list[tuple[str, Form]]:
        """SQL that writes each field as text, and the form of that text; see Rows."""
        fields = list(fields)
        for one in fields:
            check_alone(one.value)
        if not fields:
            return []
        types = self.shadow.types_of(", ".join(one.sql for one in fields), self.schema)
        return [
            bag_as_text(one.name, one.sql, kind) if one.is_bag else as_text(one.sql, kind)
            for one, kind in zip(fields, types, strict=True)
        ]

    def asked(self, call: PlannedCall, where: exp.Expr | None, texts: list[str]) -> str:
        """The rows with KEY where a call is to be asked, as SQL over ours.ROWS.

        Its state is noted where an answer that its fields read is missing. texts: of the fields.
        """
        state = state_of(call.index)
        wanted = f"{state} IS NULL"
        if where is not None:
            check_alone(where)
            wanted += f" AND coalesce(({to_sql(where)}), false)"
        lost = " OR ".join(
            f"{state_of(need.call)} IN ({LOST}, {UNDETERMINED}) "
            f"AND coalesce(({to_sql(need.reads)}), false)"
            for need in call.needs
        )
        marked = f"SELECT *, {wanted} AS {_WANTED}, {lost or 'false'} AS {_LOST} FROM {ours.ROWS}"
        return (
            f"SELECT * EXCLUDE ({_WANTED}, {_LOST}) REPLACE (CASE WHEN {_WANTED} AND {_LOST} THEN "
            f"{UNDETERMINED} ELSE {state} END AS {state}), CASE WHEN {_WANTED} AND NOT {_LOST} "
            f"THEN {_key(texts)} END AS {KEY} FROM ({marked}) AS {ours.ROWS}"
        )

    def checked(self, checks: Iterable[Check]) -> State:
        """Note the rows whose answers are not what the query needs."""
        frame = self.frame
        for check in checks:
            check_alone(check.failed)
            state = state_of(check.calls[-1])
            sql = (
                f"SELECT * REPLACE (CASE WHEN {state} = {ANSWERED} AND coalesce("
                f"({to_sql(check.failed)}), false) THEN {INVALID} ELSE {state} END AS {state}) "
                f"FROM {ours.ROWS}"
            )
            frame = computed(frame, sql, self.shadow)
        return replace(self, frame=frame)

    def view(self, select: exp.Select) -> str:
        """A SELECT over the rows, as SQL of DuckDB over views of Spark.

        Raises UnsupportedQueryError.
        """
        hoisted = Hoisted(self.aggregates)
        found = hoisted.select(select)
        frame = self.frame
        if hoisted.columns:
            more = ", ".join(f"{to_sql(node)} AS {name}" for name, node in hoisted.columns.items())
            frame = self.over(f"SELECT *, {more} FROM {ours.ROWS}")
        name = self.shadow.publish(frame)
        return self.context.sql(to_sql(found), f"{ours.ROWS} AS (SELECT * FROM {name})")


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
