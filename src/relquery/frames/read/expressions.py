"""SQL that a user wrote: which columns it reads, and whether it is about one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from relquery.errors import ConfigError

Reads = frozenset[str] | None
"""The columns that an expression reads; None if it may read any."""
_OF_MANY = (exp.Window, exp.AggFunc, exp.Query, exp.Rand, exp.Star, exp.Lambda)


@dataclass(frozen=True, slots=True)
class Expression:
    """reads: None if it cannot be told. is_of_row: whether other rows have no part in its value."""

    sql: str
    reads: Reads
    is_of_row: bool


def read_expression(given: object, verb: str, columns: Sequence[str]) -> Expression:
    """An expression over the columns of a frame. Raises ConfigError if it is not a text.

    Whether it is right, DuckDB says when the frame runs.
    """
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(f"{verb} was given {given!r}; it takes SQL as text, e.g. 'year > 2000'.")
    sql = f"{given}\n" if "--" in given else given  # a comment must not reach what follows
    try:
        tree = parse_one(given, dialect="duckdb")
    except SqlglotError:
        return Expression(sql, None, is_of_row=False)
    calls = [one.name.lower() for one in tree.find_all(exp.Anonymous)]
    if any(tree.find_all(*_OF_MANY)) or not set(calls) <= _OF_A_ROW:
        return Expression(sql, None, is_of_row=False)
    names = {name.lower(): name for name in columns}
    found = list(tree.find_all(exp.Column))
    if not all(one.name.lower() in names and not one.table for one in found):
        return Expression(sql, None, is_of_row=True)
    return Expression(sql, frozenset(names[one.name.lower()] for one in found), is_of_row=True)


_OF_A_ROW = {"llm", "ai_complete", "ai_filter", "ai_classify", "ai_extract", "ai_score"}
"""Functions that sqlglot does not know and that are about one row; of others this is not known."""
