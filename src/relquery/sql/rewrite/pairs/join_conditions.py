"""Calls in the condition of an outer, semi or anti join are answered before it, for the rows that
its other conditions join.

FROM a LEFT JOIN b ON a.k = b.k AND LLM('...', a.t, b.t) = 'Yes'
=> WITH e AS (SELECT a.t AS x, b.t AS y FROM a JOIN b ON a.k = b.k
              WHERE LLM('...', a.t, b.t) = 'Yes')
   FROM a LEFT JOIN b ON a.k = b.k AND EXISTS (
       SELECT 1 FROM e WHERE x IS NOT DISTINCT FROM a.t AND y IS NOT DISTINCT FROM b.t)

A condition depends on nothing but the values that it reads, so equal values may share its result.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.form.joins import adds_rows, is_inner, start_of_group
from relquery.sql.form.normalize import conjuncts
from relquery.sql.read.from_clause import Sources
from relquery.sql.read.methods import restore_columns
from relquery.sql.read.scopes import has_call
from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.pairs.entries import add_entry, name_tables
from relquery.sql.rewrite.pairs.repeatable import check_repeatable, columns_read, refused


def answer_join_conditions(tree: exp.Expr, lookup: Lookup) -> exp.Expr | None:
    """The rule of this module; see `rules`. Raises UnsupportedQueryError."""
    for select in list(tree.find_all(exp.Select)):
        for at, join in enumerate(select.args.get("joins") or ()):
            if has_call(join.args.get("on")) and not is_inner(join) and not join.method:
                _answer(select, at, lookup)
                return tree
    return None


def _answer(select: exp.Select, at: int, lookup: Lookup) -> None:
    name_tables(select)
    join: exp.Join = select.args["joins"][at]
    where = f"the ON clause of a {join.side or join.kind} join"
    check_repeatable(select, where, lookup)
    parts = conjuncts(join.args["on"])
    pairs = _pairs(select, at)
    sources = lookup.sources(pairs, select)
    if sources is None:
        raise refused(where, "its tables depend on a row of the outer query")
    restore_columns(pairs, sources)
    columns = columns_read(pairs.args["where"], sources, where)
    names = [ours.outer(number) for number in range(len(columns))]
    items = [exp.alias_(column.copy(), name) for column, name in zip(columns, names, strict=True)]
    pairs.select(*(items or [exp.alias_(exp.null(), ours.NOTHING)]), copy=False)
    pairs.where(*_about_left(select, at, lookup), copy=False)
    found = exp.select("1").from_(add_entry(pairs, select))
    for column, name in zip(columns, names, strict=True):
        same = exp.NullSafeEQ(this=exp.column(name), expression=_qualified(column, sources))
        found.where(same, copy=False)
    plain = [part for part in parts if not has_call(part)]
    holds: exp.Expr = exp.Exists(this=found)
    later = select.args["joins"][at + 1 :]
    if join.kind == "ANTI" or any(one.side == "FULL" or one.kind == "ANTI" for one in later):
        holds = _without_failure(holds, join, sources)
    join.set("on", exp.and_(*plain, holds, copy=False))


def _without_failure(exists: exp.Expr, join: exp.Join, sources: Sources) -> exp.Expr:
    """The condition in a form with which DuckDB 2.0.1 does not fail.

    It fails internally, and the database is lost, on LEFT JOIN ... AND EXISTS (...) FULL JOIN ...
    unless it cannot see that the condition is an EXISTS; and on LEFT JOIN ... ON EXISTS (...) ANTI
    JOIN ... ON EXISTS (...) unless the last condition also reads a column of its right table.
    """
    holds: exp.Expr = exp.Case().when(exists, exp.true()).else_(exp.false())
    right = join.this.alias_or_name
    if join.kind == "ANTI" and (names := sources.columns.get(right)):
        column = exp.column(names[0], table=right, quoted=True)
        is_null = exp.Is(this=column, expression=exp.null())
        holds = exp.and_(holds, exp.or_(is_null, exp.not_(is_null.copy())))
    return holds


def _qualified(column: exp.Expr, sources: Sources) -> exp.Expr:
    """A copy qualified with its table, because later rules may move the tables into a subquery."""
    copy = column.copy()
    if isinstance(copy, exp.Column) and not copy.table and (found := sources.resolve(copy)):
        copy.set("table", exp.to_identifier(found[0], quoted=True))
    return copy


def _pairs(select: exp.Select, at: int) -> exp.Select:
    """The rows that meet the condition of a join, without a select list."""
    joins: list[exp.Join] = select.args["joins"]
    first = start_of_group(joins, at)
    holder = select.args["from_"] if first < 0 else joins[first]
    inner = joins[at].copy()
    for key in ("side", "kind"):
        inner.set(key, None)
    parts = conjuncts(inner.args["on"])
    plain = [part for part in parts if not has_call(part)]
    asking = [part for part in parts if has_call(part)]
    inner.set("on", exp.and_(*plain) if plain else exp.true())
    pairs = exp.Select()
    pairs.set("from_", exp.From(this=holder.this.copy()))
    pairs.set("joins", [*(join.copy() for join in joins[first + 1 : at]), inner])
    return pairs.where(*asking, copy=False)


def _about_left(select: exp.Select, at: int, lookup: Lookup) -> Iterator[exp.Expr]:
    """The conditions without which a row on the left of a join is not in the result at all."""
    joins: list[exp.Join] = select.args["joins"]
    join, where = joins[at], select.args.get("where")
    keeps_left = join.side == "LEFT" or join.kind in ("SEMI", "ANTI")
    sources = lookup.sources(select)
    if not keeps_left or where is None or sources is None or any(map(adds_rows, joins[at + 1 :])):
        return
    first = start_of_group(joins, at)
    left = [select.args["from_"], *joins][first + 1 : at + 1]
    names = {holder.this.alias_or_name.lower() for holder in left}
    for part in conjuncts(where.this):
        found = [sources.resolve(column) for column in part.find_all(exp.Column)]
        is_plain = not has_call(part) and not lookup.aggregates.has_query(part)
        if not found or not is_plain or part.find(exp.Lambda, exp.Comprehension):
            continue
        if all(one is not None and one[0].lower() in names for one in found):
            copy = part.copy()
            for column, one in zip(list(copy.find_all(exp.Column)), found, strict=True):
                assert one is not None
                column.set("table", exp.to_identifier(one[0], quoted=True))
            yield copy
