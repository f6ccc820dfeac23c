"""SQL that a user wrote: which columns it reads, and whether it is about one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from relquery.errors import ConfigError, RelqueryError, UnknownColumnError, type_of
from relquery.frames.read.langex import THE_FRAME
from relquery.sql.exchange.export import quoted
from relquery.sql.host.database import Database

Reads = frozenset[str] | None
"""The columns that an expression reads; None if it may read any."""
_EXAMPLES = {
    "filter": "e.g. filter('year > 2000')",
    "with_columns": "e.g. with_columns(total='price * 2')",
}
_OF_MANY = (exp.Window, exp.AggFunc, exp.Query, exp.Rand, exp.Star, exp.Lambda)


@dataclass(frozen=True, slots=True)
class Expression:
    """reads: None if it cannot be told. is_of_row: whether other rows have no part in its value."""

    sql: str
    reads: Reads
    is_of_row: bool


def read_expression(
    given: object, verb: str, columns: Sequence[str], database: Database
) -> Expression:
    """An expression over the columns of a frame.

    Raises ConfigError if it is not a text, and UnknownColumnError. Whether it is right otherwise,
    DuckDB says when the frame runs.
    """
    if not isinstance(given, str) or not given.strip():
        what = repr(given) if isinstance(given, str) else type_of(given)
        raise ConfigError(f"{verb} was given {what}; it takes SQL as text, {_EXAMPLES[verb]}.")
    sql = f"{given}\n" if "--" in given else given  # a comment must not reach what follows
    try:
        tree = parse_one(given, dialect="duckdb")
    except SqlglotError:
        return Expression(sql, None, is_of_row=False)
    names = {name.lower(): name for name in columns}
    found = list(tree.find_all(exp.Column))
    if any(one.name.lower() not in names and not one.table for one in found):
        _check_columns(sql, columns, database)
    calls = [one.name.lower() for one in tree.find_all(exp.Anonymous)]
    if any(tree.find_all(*_OF_MANY)) or not set(calls) <= _OF_A_ROW:
        return Expression(sql, None, is_of_row=False)
    if not all(one.name.lower() in names and not one.table for one in found):
        return Expression(sql, None, is_of_row=True)
    return Expression(sql, frozenset(names[one.name.lower()] for one in found), is_of_row=True)


def _check_columns(sql: str, columns: Sequence[str], database: Database) -> None:
    """Raises UnknownColumnError if DuckDB takes a name for a column that the frame does not have.

    Only DuckDB knows which names mean something else, such as the parameter of a lambda.
    """
    nulls = ", ".join(f"NULL AS {quoted(name)}" for name in columns)
    try:
        database.describe(f"SELECT ({sql}) FROM (SELECT {nulls})")
    except UnknownColumnError as error:
        raise UnknownColumnError(error.column, THE_FRAME, columns) from error
    except RelqueryError:  # it has no types here, and no calls
        return


_OF_A_ROW = {"llm", "ai_complete", "ai_filter", "ai_classify", "ai_extract", "ai_score"}
"""Functions that sqlglot does not know and that are about one row; of others this is not known."""
