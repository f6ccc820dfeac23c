"""The fields of a call: their expressions and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql.exchange.distinct import distinct_names
from relquery.sql.functions.naming import field_name
from relquery.sql.read.from_clause import Sources
from relquery.sql.read.source import FIELD_NAME, to_sql


@dataclass(frozen=True, slots=True)
class Field:
    """name: what the model sees. value: an expression over the plan's rows. is_module: whether the
    model reads each value by itself, wherever it stands. is_bag: whether it is a list whose items
    are fields of their own, in any order. source, column: of a plain column, the
    alias of its table and its name there; without a source if USING has merged it."""

    name: str
    value: exp.Expr
    is_module: bool = False
    is_bag: bool = False
    source: str | None = None
    column: str = ""

    @property
    def sql(self) -> str:
        """The value as SQL."""
        return to_sql(self.value)


@dataclass(frozen=True, slots=True)
class Given:
    """A field as it is written, and its value over the plan's rows. For the rest see Field."""

    expression: exp.Expr
    value: exp.Expr
    is_module: bool
    is_bag: bool


def name_fields(
    fields: Iterable[Given], sources: Sources, *, keep: bool = False
) -> tuple[Field, ...]:
    """Name fields; one given twice under one name is sent once, as a module if the first is one.

    A column keeps its own name, or becomes table.column if two fields of the call would clash.
    Other fields that would clash are numbered. keep: whether each keeps its place, even if given
    twice.
    """
    distinct: dict[object, Given] = {}
    for at, field in enumerate(fields):
        same = to_sql(field.value), field.expression.meta_get(FIELD_NAME), field.is_bag
        distinct.setdefault(at if keep else same, field)
    short = [_name(field.expression, sources) for field in distinct.values()]
    counts = Counter(short)
    names = [
        name if counts[name] == 1 else _qualified(name, field.expression, sources)
        for name, field in zip(short, distinct.values(), strict=True)
    ]
    return tuple(
        Field(name, field.value, field.is_module, field.is_bag, *_origin(field.expression, sources))
        for name, field in zip(distinct_names(names), distinct.values(), strict=True)
    )


def sides_of(fields: Sequence[Given], sources: Sources, call: str) -> tuple[int, ...]:
    """For each field, which of two tables it is of. Raises QueryError unless there are two.

    call: as written, for the message.
    """
    tables = [_tables_of(field.expression, sources) for field in fields]
    known = list(dict.fromkeys(one for each in tables for one in each))
    if len(known) != 2 or any(len(each) != 1 for each in tables):
        raise QueryError(
            f"{call} sets classify, which needs fields of two tables, each field of one. Its "
            f"tables: {', '.join(known) or 'none'}. Leave classify out to ask about each pair."
        )
    return tuple(known.index(each[0]) for each in tables)


def _tables_of(expression: exp.Expr, sources: Sources) -> list[str]:
    found = (sources.resolve(column) for column in expression.find_all(exp.Column))
    return list(dict.fromkeys(one[0] if one else "?" for one in found))


def _name(expression: exp.Expr, sources: Sources) -> str:
    if expression.meta_get(FIELD_NAME) is not None:
        return str(expression.meta[FIELD_NAME])
    if isinstance(expression, exp.Column):
        resolved = sources.resolve(expression)
        return resolved[1] if resolved else expression.name
    return field_name(expression)


def _origin(expression: exp.Expr, sources: Sources) -> tuple[str | None, str]:
    if not isinstance(expression, exp.Column):
        return None, ""
    return sources.resolve(expression) or (None, "" if expression.table else expression.name)


def _qualified(name: str, expression: exp.Expr, sources: Sources) -> str:
    if not isinstance(expression, exp.Column):
        return name
    resolved = sources.resolve(expression)
    table = resolved[0] if resolved else expression.table
    return f"{table}.{name}" if table else name
