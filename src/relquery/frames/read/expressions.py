"""SQL that a user wrote: which columns it reads, and whether it is about one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relquery.errors import ConfigError, RelqueryError, UnknownColumnError, type_of
from relquery.frames.read.langex import THE_FRAME
from relquery.sql import names as ours
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.host.database import Database
from relquery.sql.names import quoted
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tokens import tokenize, without_field_names
from relquery.sql.parser.tree import Column, Function, Lambda, Node, Query, Star, Window

Reads = frozenset[str] | None
"""The columns that an expression reads; None if it may read any."""
_EXAMPLES = {
    "filter": "e.g. filter('year > 2000')",
    "with_columns": "e.g. with_columns(total='price * 2')",
}
_OF_GROUPS = {*ours.AGGREGATES, "ai_rank"}


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
        tree = parser().expression(without_field_names(given, tokenize(given)))
    except (RelqueryError, ValueError):
        return Expression(sql, None, is_of_row=False)
    names = {name.lower(): name for name in columns}
    found = list(tree.find_all(Column))
    are_plain = all(len(one.names) == 1 and one.name.lower() in names for one in found)
    if any(one.name.lower() not in names and len(one.names) == 1 for one in found):
        _check_columns(sql, columns, database)
    is_of_row = _is_of_row(tree, FunctionCatalog.of(database))
    if not (is_of_row and are_plain):
        return Expression(sql, None, is_of_row=is_of_row)
    return Expression(sql, frozenset(names[one.name.lower()] for one in found), is_of_row=True)


def _is_of_row(tree: Node, functions: FunctionCatalog) -> bool:
    """Whether other rows have no part in the value of an expression, and chance has none."""
    many = tree.find(Window, Query, Star, Lambda) is not None
    if many or functions.has_aggregate(tree) or functions.is_volatile(tree):
        return False
    called = {one.name.lower() for one in tree.find_all(Function)}
    return called.isdisjoint(_OF_GROUPS | functions.macros)


def _check_columns(sql: str, columns: Sequence[str], database: Database) -> None:
    """Raises UnknownColumnError if DuckDB takes a name for a column that the frame does not have.

    Only DuckDB knows which names mean something else, such as the parameter of a lambda.
    """
    nulls = ", ".join(f"NULL AS {quoted(name)}" for name in columns)
    try:
        database.columns(f"SELECT ({sql}) FROM (SELECT {nulls})")
    except UnknownColumnError as error:
        raise UnknownColumnError(error.column, THE_FRAME, columns) from error
    except RelqueryError:  # it has no types here, and no calls
        return
