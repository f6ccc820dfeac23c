"""Replaces LLM calls with stand-ins, so that DuckDB itself checks the query and names its columns.

DuckDB has no LLM function. A macro of the right type replaces each call. DuckDB then finds any
error in the query before the first call is paid for, and the column names and types are its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import TokenType, exp

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.read.numbers import needs_number
from relquery.sql.read.scopes import Context, calls_in
from relquery.sql.read.source import Source, call_number, to_sql, unnumbered
from relquery.sql.read.tokens import tokenize

_MACROS = {ours.TEXT_STAND_IN: "''", ours.NUMBER_STAND_IN: "0.0::DOUBLE"}
_QUOTED_OR_PAREN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[()]""")


def install(database: Database) -> None:
    """Create the stand-ins. The body must use `fields`, or DuckDB would not check them."""
    for name, value in _MACROS.items():
        database.execute(
            f"CREATE OR REPLACE TEMP MACRO {name}(call, fields := NULL) AS "
            f"CASE WHEN fields IS NULL THEN {value} END"
        )
    database.execute(f"CREATE OR REPLACE TEMP MACRO {ours.TYPED_STAND_IN}(call, value) AS value")


def check(database: Database, source: Source, tree: exp.Expr) -> None:
    """Raises QueryError if DuckDB finds anything wrong with the statement around its calls."""
    if isinstance(tree, exp.Query):
        database.describe(stubbed(tree))
    elif (empty := with_nulls(database, source, tree)) is not None:
        database.bind(empty)


def with_nulls(database: Database, source: Source, tree: exp.Expr) -> str | None:
    """A statement that writes the rows of a query, with one row of NULLs instead of the query.

    Its column names and types are those of the query. None if the statement has no query.
    """
    place = "this" if isinstance(tree, exp.Copy) else "expression"
    query = tree.args.get(place)
    if not isinstance(query, exp.Query):
        return None
    whole = tree.copy()
    whole.set(place, exp.select(ours.NULLS).subquery())
    columns = database.describe(stubbed(query))
    named = [(_as_written(name, source), kind) for name, kind in columns]
    return to_sql(whole).replace(ours.NULLS, _nulls(named))


def column_names(
    database: Database, source: Source, query: exp.Expr, context: Context
) -> list[str]:
    """Column names of a query, which may be part of a larger one."""
    return [name for name, _ in columns_of_query(database, source, query, context)]


def columns_of_query(
    database: Database, source: Source, query: exp.Expr, context: Context
) -> list[tuple[str, str]]:
    """(name, type) of the columns of a query, which may be part of a larger one."""
    alone = query.copy()
    alone.set("with_", None)
    columns = database.describe(context.sql(stubbed(alone)))
    return [(_as_written(name, source), kind) for name, kind in columns]


def result_names(
    database: Database, source: Source, tree: exp.Expr, nulls: Mapping[int, str]
) -> list[str] | None:
    """Names of the result's columns as DuckDB would give them for the text as written.

    nulls: SQL that stands for the functions with calls, by number; none for text. None if the
    statement returns no rows, or if DESCRIBE does not accept it.
    """
    return _names(database, source, tree, nulls) if isinstance(tree, exp.Query) else None


def name_columns(
    database: Database, source: Source, tree: exp.Expr, nulls: Mapping[int, str]
) -> None:
    """Give the columns of CREATE TABLE AS the names that DuckDB gives to them as written."""
    query = tree.args.get("expression")
    if not isinstance(tree, exp.Create) or not isinstance(query, exp.Query):
        return
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    names = _names(database, source, tree, nulls)
    if names is None or len(names) != len(query.expressions):
        return
    for item, name in zip(list(query.expressions), names, strict=True):
        if not isinstance(item, exp.Alias | exp.Column) and not item.is_star:
            item.replace(exp.alias_(item.copy(), name, quoted=True))


def _names(
    database: Database, source: Source, tree: exp.Expr, nulls: Mapping[int, str]
) -> list[str] | None:
    """The names of the columns of a query, or of the query in CREATE TABLE AS."""
    calls = list(calls_in(tree))
    numeric = {call_number(call) for call in calls if needs_number(call)}
    first = _first_of_equals(calls)

    def stand_in(index: int) -> str:
        if index not in nulls:
            return f"{_macro(index in numeric)}({first.get(index, index)})"
        return f"{ours.TYPED_STAND_IN}({first.get(index, index)}, {nulls[index]})"

    text = source.with_calls(stand_in)
    if isinstance(tree, exp.Create):
        head = next(token for token in tokenize(text) if token.token_type == TokenType.ALIAS)
        text = text[head.end + 1 :]
    try:
        names = [name for name, _ in database.describe(text)]
    except QueryError:  # DuckDB accepts some forms only as rewritten by sqlglot, e.g. `x -> x + 1`
        return None
    return [_as_written(name, source) for name in names]


def _as_written(name: str, source: Source) -> str:
    """A column name with the stand-ins replaced by the original calls."""
    found = ours.STAND_IN.search(name)
    if found is None:
        return name
    depth, end = 0, len(name)
    for part in _QUOTED_OR_PAREN.finditer(name, found.start()):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if not depth and part[0] == ")":
            end = part.end()
            break
    call = source.text(int(found[1]))
    return name[: found.start()] + call + _as_written(name[end:], source)


def stubbed(tree: exp.Expr) -> str:
    """A statement or a query with stand-ins for its calls, as text."""
    return to_sql(stub(tree))


def stub(tree: exp.Expr) -> exp.Expr:
    """A copy of a tree, which is not a call itself, with stand-ins for its calls."""
    copy = tree.copy()
    calls = list(calls_in(copy))
    first = _first_of_equals(calls)
    for call in reversed(calls):
        call.replace(_stand_in(call, first[call_number(call) or 0]))
    return copy


def _nulls(columns: list[tuple[str, str]]) -> str:
    """NULL for each column, with its name and type."""
    names = (to_sql(exp.to_identifier(name, quoted=True)) for name, _ in columns)
    return ", ".join(
        f"CAST(NULL AS {kind}) AS {name}" for name, (_, kind) in zip(names, columns, strict=True)
    )


def _first_of_equals(calls: list[exp.Anonymous]) -> dict[int, int]:
    """Equal calls get equal stand-ins, so a call in GROUP BY matches the same call in SELECT."""
    first: dict[str, int] = {}
    return {
        number: first.setdefault(unnumbered(call), number)
        for call in calls
        if (number := call_number(call)) is not None
    }


def _stand_in(call: exp.Anonymous, number: int) -> exp.Expr:
    fields: list[exp.Expr] = [exp.Literal.string("")]
    for argument in call.expressions[1:]:
        if isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star):
            fields.append(exp.column(argument.args["table"].copy()))  # the row as one value
        elif not isinstance(argument, exp.Star | exp.PropertyEQ | exp.Kwarg | exp.Columns):
            fields.append(argument.copy())
    name = _macro(needs_number(call))
    row = exp.Anonymous(this="row", expressions=fields)
    return exp.Anonymous(this=name, expressions=[exp.Literal.number(number), row])


def _macro(numeric: bool) -> str:
    return ours.NUMBER_STAND_IN if numeric else ours.TEXT_STAND_IN
