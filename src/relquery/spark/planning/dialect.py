"""SQL of DuckDB in the words of Spark."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.read.source import to_sql
from relquery.sql.read.tokens import parse

_CUTS = ("order", "limit", "offset")
_ITEM = f"{ours.PREFIX}out_"
_KEY = f"{ours.PREFIX}by_"
_MACROS = {ours.TRIMMED, ours.DECIMAL, ours.FINITE}


def to_spark(sql: str) -> str:
    """A query as Spark reads it. Raises UnsupportedQueryError for what Spark does not have."""
    tree = parse(sql)
    for node in tree.find_all(exp.Anonymous):
        if str(node.this).lower() in _MACROS:
            raise UnsupportedQueryError(
                "An answer is read as a number or another type outside the rows that it belongs "
                "to, which Spark does not do by DuckDB's rules. Cast it where it is asked for, "
                "in a subquery: SELECT ... FROM (SELECT CAST(LLM('...', x) AS INTEGER) AS n FROM t)"
                "."
            )
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Func):
            raise UnsupportedQueryError(
                f"The table {to_sql(table)[:80]} is a function of DuckDB, which Spark does not "
                "have. Make a view of Spark, and name that: "
                "spark.range(3).createOrReplaceTempView('numbers')."
            )
    for select in list(tree.find_all(exp.Select)):
        _cut_last(select)
    try:
        return tree.sql("spark", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise UnsupportedQueryError(
            f"A part of the query cannot be written for Spark ({error}). Compute that part "
            "beforehand, in a view of Spark."
        ) from error


def _cut_last(select: exp.Select) -> None:
    """Let rows be ordered and limited after QUALIFY and DISTINCT ON, not before, as in Spark.

    SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, c LIMIT 3
    => SELECT a, b FROM (SELECT a, b, c, ... FROM t QUALIFY row_number() OVER
       (PARTITION BY a ORDER BY a, c) = 1) ORDER BY a, c LIMIT 3
    """
    distinct = select.args.get("distinct")
    keys = None if distinct is None else distinct.args.get("on")
    if keys is None and not select.args.get("qualify"):
        return
    if keys is not None and select.args.get("qualify"):
        raise UnsupportedQueryError(
            "DISTINCT ON and QUALIFY in one SELECT are not supported over Spark. Put the SELECT "
            "with QUALIFY in a subquery."
        )
    cuts = {name: select.args[name].copy() for name in _CUTS if select.args.get(name)}
    if keys is None and not cuts:
        return
    inner = select.copy()
    inner.set("with_", None)
    for name in (*_CUTS, "distinct"):
        inner.set(name, None)
    items = []
    for at, item in enumerate(list(inner.expressions)):
        if item.is_star:
            raise UnsupportedQueryError(
                "SELECT * with DISTINCT ON or QUALIFY is not supported here. Name the columns."
            )
        bare = item.this if isinstance(item, exp.Alias) else item
        items.append((bare, item.alias_or_name, f"{_ITEM}{at}"))
    columns = [exp.alias_(bare.copy(), name) for bare, _, name in items]
    named = {shown.lower(): bare for bare, shown, _ in items}
    order = cuts.get("order")
    for key in [] if order is None else order.expressions:
        key.set("this", _without_name(key.this, named))
    if keys is not None:
        by = [_without_name(key, named) for key in _expressions(keys)]
        over = exp.Window(
            this=exp.RowNumber(),
            partition_by=by,
            order=exp.Order(expressions=by) if order is None else order.copy(),
        )
        first: exp.Expr = exp.EQ(this=over, expression=exp.Literal.number(1))
        inner.set("qualify", exp.Qualify(this=first))
    for at, key in enumerate([] if order is None else order.expressions):
        columns.append(exp.alias_(key.this.copy(), f"{_KEY}{at}"))
        key.set("this", exp.column(f"{_KEY}{at}"))
    inner.set("expressions", columns)
    outer = exp.select(
        *(exp.alias_(exp.column(name), shown, quoted=True) for _, shown, name in items)
    )
    outer = outer.from_(inner.subquery(f"{ours.PREFIX}kept"))
    for name, node in cuts.items():
        outer.set(name, node)
    if select.args.get("with_"):
        outer.set("with_", select.args["with_"].copy())
    select.replace(outer) if select.parent is not None else _become(select, outer)


def _without_name(key: exp.Expr, named: Mapping[str, exp.Expr]) -> exp.Expr:
    """A key of ORDER BY or DISTINCT ON; that of an item, if it is the item's name."""
    is_name = isinstance(key, exp.Column) and not key.table
    return (named.get(key.name.lower(), key) if is_name else key).copy()


def _expressions(node: exp.Expr) -> list[exp.Expr]:
    return (
        [each.copy() for each in node.expressions] if isinstance(node, exp.Tuple) else [node.copy()]
    )


def _become(node: exp.Expr, other: exp.Expr) -> None:
    for name in list(node.args):
        node.set(name, None)
    for name, value in other.args.items():
        node.set(name, value)
