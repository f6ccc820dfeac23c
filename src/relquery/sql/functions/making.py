"""Makes the call of a function: the node that stages answer, and what a function needs for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from relquery.config import PromptForm
from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.functions.arguments import BAG, MODULE
from relquery.sql.functions.prompts import Asked, Knows
from relquery.sql.functions.task import BAGS, MODULES, TASK, Task
from relquery.sql.host.database import Database
from relquery.sql.read.source import FUNCTION, to_sql
from relquery.sql.types.given import output_of
from relquery.sql.types.shape import Output


@dataclass(frozen=True, slots=True)
class Made:
    """A function's value: an expression with its call, and its type as DuckDB names it.

    is_window: whether it is computed over all rows.
    """

    value: exp.Expr
    kind: str
    is_window: bool = False

    @property
    def null(self) -> str:
        """SQL that stands for the value where DuckDB names columns."""
        null = f"CAST(NULL AS {self.kind})"
        return f"max({null}) OVER ()" if self.is_window else null


@dataclass(frozen=True, slots=True)
class Maker:
    """What a function makes its call with.

    node: the call as written. defaults: sampling for calls that set nothing. form: how its fields
    are written, if it says so. notes: warnings.
    """

    node: exp.Anonymous
    database: Database
    defaults: Sampling
    knows: Knows
    form: PromptForm | None = None
    notes: list[str] = field(default_factory=list)

    def output(self, given: object) -> Output:
        """The type of answers that a query gives."""
        return output_of(given, self.database)

    def call(self, task: Task, fields: Sequence[exp.Expr]) -> exp.Anonymous:
        """The call itself. Raises QueryError for fields that it cannot have."""
        if self.form is not None:
            _check_form(task, self.form)
            task = replace(task, form=self.form)
        made = exp.Anonymous(
            this=self.node.this, expressions=[exp.Literal.string(task.text), *fields]
        )
        made.meta[TASK], made.meta[FUNCTION] = task, self.node.meta[FUNCTION]
        made.meta[MODULES] = frozenset(at for at, one in enumerate(fields) if one.meta_get(MODULE))
        made.meta[BAGS] = frozenset(at for at, one in enumerate(fields) if one.meta_get(BAG))
        self._check_bags(task, fields, made.meta[BAGS])
        return made

    def _check_bags(self, task: Task, fields: Sequence[exp.Expr], bags: frozenset[int]) -> None:
        """Raises QueryError for bags where the place of a field is fixed."""
        for at in bags:
            if task.kind == "match" or at in task.query:
                raise no_bag(fields[at])

    def answered(self, task: Task, asked: Asked) -> Made:
        """A call whose value is its answer: text, or a value of its type."""
        self.notes.extend(asked.notes)
        value: exp.Expr = self.call(task, asked.fields)
        if asked.is_by_row:  # without a prompt there is no answer
            has_prompt = exp.Not(this=exp.Is(this=asked.fields[0].copy(), expression=exp.null()))
            value = exp.Case(ifs=[exp.If(this=has_prompt, true=value)])
        if task.output is None:
            return Made(value, "VARCHAR")
        kind = exp.DataType.build(task.output.kind, dialect="duckdb", udt=True)
        return Made(exp.cast(value, kind), task.output.kind)


def _check_form(task: Task, form: PromptForm) -> None:
    if task.kind == "match" and form != "json":
        raise QueryError(
            f"form is {form!r}, but a call with classify := true is sent as JSON, in which the "
            "candidates have their numbers. Remove form or classify."
        )


def no_bag(field: exp.Expr) -> QueryError:
    """The error for a bag where there can be none."""
    return QueryError(
        f"{to_sql(field)} is a bag, whose items can be sent in any order. Bags must be fields of a "
        "call about one row: LLM('prompt', BAG(list)). Elsewhere, join the items into one text: "
        "array_to_string(list, ' ')."
    )
