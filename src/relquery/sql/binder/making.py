"""Makes the call of a function: the node that stages answer, and what a function needs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from relquery.config import Nulls, PromptForm
from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.binder.arguments import BAG, MODULE
from relquery.sql.binder.call import Call, readable
from relquery.sql.binder.prompts import Asked, Knows
from relquery.sql.binder.task import Task
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Function
from relquery.sql.types.given import output_of
from relquery.sql.types.shape import Output


@dataclass(frozen=True, slots=True)
class Made:
    """A function's value: an expression with its call, and its type as DuckDB names it."""

    value: Expression
    kind: str


@dataclass(frozen=True, slots=True)
class Maker:
    """What a function makes its call with.

    node: the function as written. defaults: sampling for calls that set nothing. knows: whether a
    FROM clause around it has a column. is_aggregate: whether a function is an aggregate. form: how
    its fields are written, and nulls: what is done where all are NULL, if it says so. notes:
    warnings.
    """

    node: Function
    database: Database
    defaults: Sampling
    knows: Knows
    is_aggregate: Callable[[Function], bool]
    form: PromptForm | None = None
    nulls: Nulls | None = None
    notes: list[str] = field(default_factory=list)

    def output(self, given: object) -> Output:
        """The type of answers that a query gives."""
        return output_of(given, self.database)

    def call(self, task: Task, fields: Sequence[Expression]) -> Call:
        """The call itself. Raises QueryError for fields that it cannot have."""
        if self.form is not None:
            _check_form(task, self.form)
            task = replace(task, form=self.form)
        task = replace(task, nulls=self.nulls)
        modules = frozenset(at for at, one in enumerate(fields) if one.meta.get(MODULE))
        bags = frozenset(at for at, one in enumerate(fields) if one.meta.get(BAG))
        for at in bags:
            if task.kind == "match" or at in task.query:
                raise no_bag(fields[at])
        return Call.of(task, fields, self.node, modules, bags)

    def answered(self, task: Task, asked: Asked) -> Made:
        """A call whose value is its answer: text, or a value of its type."""
        self.notes.extend(asked.notes)
        value: Expression = self.call(task, asked.fields)
        if asked.is_by_row:  # without a prompt there is no answer
            prompt = asked.fields[0].copy()
            value = build.when(build.operation(build.IS_NOT_NULL, prompt), value)
        if task.output is None:
            return Made(value, "VARCHAR")
        return Made(build.cast(value, parser().type(task.output.kind)), task.output.kind)


def _check_form(task: Task, form: PromptForm) -> None:
    if task.kind == "match" and form != "json":
        raise QueryError(
            f"form is {form!r}, but a call with classify := true is sent as JSON, in which the "
            "candidates have their numbers. Remove form or classify."
        )


def no_bag(field: Expression) -> QueryError:
    """The error for a bag where there can be none."""
    return QueryError(
        f"{readable(field)} is a bag, whose items can be sent in any order. Bags must be fields of "
        "a call about one row: LLM('prompt', BAG(list)). Elsewhere, join the items into one text: "
        "array_to_string(list, ' ')."
    )
