"""Calls in the condition of a join that WHERE cannot take are answered before it, for the rows that
its other conditions join.

FROM a LEFT JOIN b ON a.k = b.k AND LLM('...', a.t, b.t) = 'Yes'
=> WITH e AS (SELECT a.t AS x, b.t AS y FROM a JOIN b ON a.k = b.k
              WHERE LLM('...', a.t, b.t) = 'Yes')
   FROM a LEFT JOIN b ON a.k = b.k AND CASE WHEN EXISTS (
       SELECT 1 FROM e WHERE x IS NOT DISTINCT FROM a.t AND y IS NOT DISTINCT FROM b.t
   ) THEN true ELSE false END

A condition depends on nothing but the values that it reads, so equal values may share its result.
"""

from __future__ import annotations

from collections.abc import Iterator

from relquery.sql import names as ours
from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import has_lambda
from relquery.sql.binder.sources import Sources, joins_in, leaves
from relquery.sql.optimizer.joins import adds_rows, check_condition, joins_around, may_move
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.pairs import (
    add_entry,
    check_repeatable,
    columns_read,
    name_tables,
    refused,
)
from relquery.sql.optimizer.reads import restored
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    Derived,
    Expression,
    Join,
    Query,
    Select,
    Source,
    Star,
    Table,
)


def answer_join_conditions(tree: Query, lookup: Lookup) -> Query | None:
    """The rule of this module; see `rules`. Raises UnsupportedQueryError."""
    for select in tree.find_all(Select):
        for join in joins_in(select.source):
            check_condition(join)
            if has_call(join.condition) and not may_move(join):
                if not _filter_kept(join, select, lookup):
                    _answer(join, select, lookup)
                return tree
    return None


def _answer(join: Join, select: Select, lookup: Lookup) -> None:
    where = f"the ON clause of {'an' if join.kind in ('ANTI', 'INNER') else 'a'} {join.kind} join"
    name_tables(join, select, lookup)
    check_repeatable(join, select, where, lookup)
    sides = join.left.copy(), join.right.copy()
    inner = Join(left=sides[0], right=sides[1], condition=build.boolean(True), is_implicit=False)
    pairs = build.select((), inner)
    sources = lookup.sources(pairs, select)
    if sources is None:
        raise refused(where, "its tables depend on a row of the outer query")
    assert join.condition is not None
    parts = build.conjuncts(restored(join.condition, sources))
    plain = [part for part in parts if not has_call(part)]
    asking = [part for part in parts if has_call(part)]
    columns = columns_read(build.all_of(part.copy() for part in asking), sources, where)
    grouped = _grouped(join, columns, plain, sources, where)
    names = [ours.outer(at) for at in range(len(columns))]
    own = [_qualified(column, sources) for column in columns]
    items = [column.copy().named(name) for column, name in zip(own, names, strict=True)]
    items += [column.named(ours.inner(at)) for at, column in enumerate(grouped)]
    pairs.items = [*items] or [build.null().named(ours.NOTHING)]
    if grouped:
        build.first_of(pairs, [ours.inner(at) for at in range(len(grouped))])
    inner.condition = build.all_of(part.copy() for part in plain)
    kept = (part for _, part in _about_kept(join, select, lookup) if not has_call(part))
    build.add_where(pairs, *asking, *kept)
    found = build.select([build.number(1)], add_entry(pairs, select))
    same = [
        build.compared(build.SAME, build.column(name), column)
        for name, column in zip(names, own, strict=True)
    ]
    if same:
        build.add_where(found, *same)
    holds = _without_failure(build.exists(found), join, sources)
    join.condition = build.all_of([*plain, holds])


def _grouped(
    join: Join, columns: list[Column], plain: list[Expression], sources: Sources, where: str
) -> list[Column]:
    """What a SEMI or ANTI join reads of its left side: one match is enough for equal values."""
    if join.kind not in ("SEMI", "ANTI"):
        return []
    left = {one.name.lower() for one in leaves(join.left)}
    read = [*columns, *columns_read(build.all_of(part.copy() for part in plain), sources, where)]
    own = {column.key: column for column in (_qualified(one, sources) for one in read)}
    return [one for one in own.values() if len(one.names) > 1 and one.names[0].lower() in left]


def _qualified(column: Column, sources: Sources) -> Column:
    """A copy qualified with its table, because later rules may move the tables into a subquery."""
    found = sources.resolve(column)
    copy = column.copy()
    if len(copy.names) == 1 and found is not None:
        copy.names = [found[0], copy.name]
    return copy.named("")


def _filter_kept(join: Join, select: Select, lookup: Lookup) -> bool:
    """Move conditions with calls about the side whose rows a join keeps into a query there, so that
    pairs are asked about the rows that are left. Returns whether there were some.

    FROM a LEFT JOIN b ON LLM(...) = 'Yes' WHERE LLM(a.x) = 'Yes'
    => FROM (SELECT * FROM a WHERE LLM(a.x) = 'Yes') AS a LEFT JOIN b ON LLM(...) = 'Yes'
    """
    side = _kept(join)
    found = list(_about_kept(join, select, lookup))
    is_table = isinstance(side, Derived | Table) and side.sample is None
    if not is_table or not any(has_call(part) for _, part in found):
        return False
    if any(column.name.lower() == "rowid" for column in select.find_all(Column)):
        return False  # which a query has not
    moved = {at for at, _ in found}
    left = [one for at, one in enumerate(build.conjuncts(select.where)) if at not in moved]
    select.where = build.all_of(left) if left else None
    where = build.all_of(part for _, part in found)
    side.replace(build.derived(build.select([build.star()], side.copy(), where), side.name))
    return True


def _kept(join: Join) -> Source:
    """The side of a join whose rows it keeps."""
    return join.left if join.kind in ("LEFT", "SEMI", "ANTI") else join.right


def _about_kept(join: Join, select: Select, lookup: Lookup) -> Iterator[tuple[int, Expression]]:
    """The conditions of WHERE about the side whose rows a join keeps, by their place: without them
    a row of it is not in the result at all."""
    sources = lookup.sources(select)
    if select.where is None or sources is None or join.kind in ("INNER", "FULL"):
        return
    if any(adds_rows(outer, inner) for inner, outer in joins_around(join)):
        return
    names = {one.name.lower() for one in leaves(_kept(join))}
    for at, part in enumerate(build.conjuncts(restored(select.where, sources))):
        found = [(column, sources.resolve(column)) for column in part.find_all(Column)]
        is_open = lookup.functions.has_query(part) or lookup.functions.is_volatile(part)
        if is_open or has_lambda(part) or part.find(Star):
            continue
        if found and all(one is not None and one[0].lower() in names for _, one in found):
            for column, one in found:
                column.names = list(one or ())
            yield at, part


def _without_failure(exists: Expression, join: Join, sources: Sources) -> Expression:
    """The condition in a form with which DuckDB 2.0.1 does not fail.

    Unless CASE hides that the condition is an EXISTS, it fails internally, and the database is
    lost, on INNER or LEFT JOIN ... ON EXISTS (...) FULL JOIN ...; and it crashes where it reorders
    a LEFT JOIN ... ON EXISTS (...). On LEFT JOIN ... ON EXISTS (...) ANTI JOIN ... ON EXISTS (...)
    it fails unless the last condition also reads a column of its right table.
    """
    holds: Expression = build.when(exists, build.boolean(True), build.boolean(False))
    names = [(one.name, known[0]) for one in leaves(join.right)
             if (known := sources.columns.get(one.name))]  # fmt: skip
    if join.kind == "ANTI" and names:
        is_null = build.operation(build.IS_NULL, build.column(names[0][1], names[0][0]))
        is_any = build.any_of([is_null, build.operation(build.NOT, is_null.copy())])
        holds = build.all_of([holds, is_any])
    return holds
