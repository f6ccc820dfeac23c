"""Calls in a subquery that depends on a row of the outer query are answered beforehand.

SELECT a.id, (SELECT max(LLM('...', a.t, b.t)) FROM b WHERE b.k = a.k) FROM a WHERE p
=> WITH pairs AS (SELECT o.x, o.y, l.z
                  FROM (SELECT DISTINCT a.k AS x, a.t AS y FROM a WHERE p) AS o,
                       LATERAL (SELECT b.t AS z FROM b WHERE b.k = o.x) AS l),
        found AS (SELECT x, y, z, LLM('...', y, z) AS v FROM pairs)
   SELECT a.id, (SELECT max(v) FROM found
                 WHERE x IS NOT DISTINCT FROM a.k AND y IS NOT DISTINCT FROM a.t) FROM a WHERE p

`found` has the subquery's rows for each outer row, as far as conditions with calls leave them. So
the rest of the subquery stays as it is, with its aggregates, ORDER BY and LIMIT. EXISTS needs one
row of them:

EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND LLM('...', a.t, b.t) = 'Yes')
=> found AS (SELECT DISTINCT ON (x, y) x, y FROM pairs WHERE LLM('...', y, z) = 'Yes')
   EXISTS (SELECT 1 FROM found WHERE x IS NOT DISTINCT FROM a.k AND y IS NOT DISTINCT FROM a.t)
"""

from __future__ import annotations

from collections import Counter

from relquery.sql.binder.call import FIELD_NAME, calls_directly, calls_in, has_call
from relquery.sql.binder.functions import clauses_of, makes_rows
from relquery.sql.binder.normalize import name_of, normalize, replace_aliases, restore_columns
from relquery.sql.binder.sources import (
    Sources,
    check_not_recursive,
    entry_of,
    is_recursive,
    leaves,
)
from relquery.sql.optimizer.groups import (
    asks_about_groups,
    asks_about_windows,
    over_groups,
    over_windows,
)
from relquery.sql.optimizer.join_conditions import (
    about,
    add_entry,
    check_repeatable,
    columns_of_star,
    filter_first,
    is_whole_star,
    match,
    move_entry,
    name_tables,
    refused,
)
from relquery.sql.optimizer.reads import Lookup
from relquery.sql.optimizer.subquery_rows import (
    WHERE,
    OuterQuery,
    SubqueryRows,
    clauses_beside_where,
    pairs_of,
)
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import (
    Column,
    Expression,
    Node,
    Ordered,
    Query,
    Select,
    Source,
    Star,
    Subquery,
)


def answer_correlated(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`. Raises UnsupportedQueryError."""
    for select in statement.find_all(Select):
        if select.ancestor(Select) is None or not calls_directly(select):
            continue
        for call in calls_in(select):
            check_not_recursive(call)
        if lookup.stands_alone(select):
            continue
        inside = lookup.sources(select)
        if inside is None and _has_open_tables(select, lookup):
            continue  # theirs first
        outer = _outer(select)
        if _move_entries(select, outer.select, lookup) or _filter(outer, lookup):
            return True
        seen = outer.seen
        inside = inside or lookup.sources(select, outer.select, seen.source)
        outside = lookup.sources(seen, outer.select)
        if inside is None or outside is None:
            raise refused(WHERE, "its tables depend on a row, too")
        replace_aliases(select, inside, lookup.functions)
        if not _is_over_groups(select, inside, lookup):
            _answer(select, inside, outside, outer, lookup)
        return True
    return False


def _is_over_groups(select: Select, inside: Sources, lookup: Lookup) -> bool:
    """Replace a SELECT whose calls are about groups or windows by one over them; see `groups`."""
    is_of_groups = asks_about_groups(select, inside, lookup.functions)
    if not is_of_groups and not asks_about_windows(select):
        return False
    normal = normalize(select, inside, lookup.functions)
    names = [name_of(item) for item in normal.items]
    if is_of_groups:
        over = over_groups(normal, names, inside, lookup.functions)
    else:
        over = over_windows(normal, names, inside)
    over.entries = [entry.copy() for entry in select.entries]
    select.replace(over)
    return True


def _has_open_tables(select: Select, lookup: Lookup) -> bool:
    """Whether a table of a SELECT has calls that depend on a row of an outer query."""
    tables = [select.source, *select.entries]
    inner = [inner for table in tables if table is not None for inner in table.find_all(Select)]
    return any(calls_directly(select) and not lookup.stands_alone(select) for select in inner)


def _outer(select: Select) -> OuterQuery:
    """The query whose rows a subquery depends on."""
    node: Node = select
    left: list[Source] = []
    is_condition = False
    while node.parent is not None and not isinstance(node.parent, Select):
        if isinstance(node.parent, tree.Join) and node is node.parent.right:
            left.insert(0, node.parent.left)
        is_condition |= isinstance(node.parent, tree.Join) and isinstance(node, Expression)
        node = node.parent
    if not isinstance(node.parent, Select):
        raise refused(WHERE, "the outer query is not a SELECT")
    if node.place == "from_table" and is_condition:
        raise refused(WHERE, "the subquery is in the FROM clause")
    if node.place == "cte_map" or (node.place == "from_table" and not left):
        return _outer(node.parent)  # what it depends on is further out
    return OuterQuery(node.parent, left if node.place == "from_table" else None)


def _move_entries(select: Select, outer: Select, lookup: Lookup) -> bool:
    """Turn WITH entries of a subquery that do not depend on a row into entries of the outer query,
    with names of ours, in place. Returns whether there are any."""
    moved = False
    within = [ancestor for ancestor in (select, *select.ancestors()) if isinstance(ancestor, Query)]
    for query in reversed(within[: within.index(outer)]):
        for entry in query.entries:
            reads_itself, whole = is_recursive(entry), build.select([build.star()], entry.name)
            alone = lookup.columns(whole, query) if reads_itself else lookup.columns(entry.query)
            if alone is None:
                continue
            tables = [table for table in query.find_all(tree.Table) if entry_of(table) is entry]
            query.entries = [entry_ for entry_ in query.entries if entry_ is not entry]
            whole.entries = [entry]  # where it keeps its name
            name = add_entry(whole, outer) if reads_itself else move_entry(entry, outer)
            for table in tables:
                table.alias, table.table = table.name, name
            moved = True
    return moved


def _filter(outer: OuterQuery, lookup: Lookup) -> bool:
    """Ask the conditions about the outer query's only table before its subqueries, in place.

    SELECT (SELECT max(LLM(a.t, b.t)) FROM b) FROM a WHERE LLM(a.t) = 'Yes'
    => SELECT (SELECT ...) FROM (SELECT * FROM a WHERE LLM(a.t) = 'Yes') AS a
    """
    select, is_lateral = outer.select, outer.left is not None
    side = outer.left[0] if outer.left is not None else select.source
    if side is None or len(list(leaves(select.source))) > 1 + is_lateral:
        return False
    return filter_first(side, dict(about(side, select, lookup)), select)


def _answer(
    select: Select, inside: Sources, outside: Sources, outer: OuterQuery, lookup: Lookup
) -> None:
    """Rewrite a subquery, in place. inside, outside: its tables, and those of the outer query."""
    for source in (outer.select.source, select.source):
        name_tables(source, outer.select, lookup)
    for tables in (inside, outside):
        restore_columns(select, tables)
    _check_form(select, lookup)
    check_repeatable(outer.seen, outer.select, WHERE, lookup)
    _write_columns(select, inside, outside, lookup)
    subquery = select.parent and select.parent.parent
    is_folded = lookup.functions.in_select(select)
    more = (is_folded, select.qualify, *select.modifiers, *filter(makes_rows, select.items))
    is_search = isinstance(subquery, Subquery) and subquery.kind == "EXISTS" and not any(more)
    if is_search:
        select.items = [build.number(1)]
        if not has_call(select):
            return
    rows = SubqueryRows.of(select, lookup)
    pairs = add_entry(pairs_of(rows, outer, lookup), outer.select)
    table = build.table(add_entry(rows.found(pairs, is_search=is_search), outer.select))
    rows.put(table.name)
    select.source, select.where = table, match(enumerate(rows.read), table.name)


def _check_form(select: Select, lookup: Lookup) -> None:
    functions = lookup.functions
    if select.entries or select.sample is not None:
        raise refused(WHERE, "the subquery has a sample, or WITH that depends on a row")
    if functions.is_volatile(select):
        raise refused(WHERE, "the subquery calls a function whose value differs every time")
    rest = [call for node in clauses_beside_where(select) for call in calls_in(node)]
    if functions.in_select(select) and not all(functions.around(clause, select) for clause in rest):
        raise refused(WHERE, "the call is about a group of its rows")
    if any(has_call(query) for clause in clauses_of(select) for query in clause.find_all(Query)):
        raise refused(WHERE, "another subquery with a call is inside it")


def _write_columns(select: Select, inside: Sources, outside: Sources, lookup: Lookup) -> None:
    """Write columns for stars, and name the fields of calls as they are named before."""
    items = lookup.items(select, inside)
    if items is None:
        raise refused(WHERE, "the subquery has a star. Name the columns")
    if any(isinstance(item, Star) for item in select.items):
        select.items = items
    for item in select.items:  # what reads them knows the names that they have now
        if isinstance(item, Column) and not item.alias:
            item.named(item.name)
    has_pattern = any(star.is_columns and not _is_of_order(star) for star in select.find_all(Star))
    if has_pattern or select.find(tree.Position):
        raise refused(WHERE, "the subquery names columns by a pattern or number")
    for call in list(calls_in(select)):
        fields = [
            (index, column)
            for index, field in enumerate(call.fields)
            for column in (
                _columns_of(field, inside, outside) if isinstance(field, Star) else [field]
            )
        ]
        call.arguments = [tree.Argument(expression=value) for _, value in fields]
        for note, own in (("modules", call.modules), ("bags", call.bags)):
            call.meta[note] = frozenset(
                new for new, (index, _) in enumerate(fields) if index in own
            )
        columns = [value for _, value in fields if isinstance(value, Column)]
        names = {column.key.lower(): column.name for column in columns}
        clashes = Counter(names.values())
        for column in columns:
            known = inside.resolve(column) or outside.resolve(column)
            if clashes[column.name] > 1 and known is not None:
                column.meta.setdefault(FIELD_NAME, ".".join(known))


def _is_of_order(star: Star) -> bool:
    """Whether it is ORDER BY ALL, which is about the select list."""
    return isinstance(star.parent, Ordered) and star.pattern is None


def _columns_of(star: Star, inside: Sources, outside: Sources) -> list[Column]:
    """The columns that a field `*` or `t.*` stands for."""
    if star.table:
        return columns_of_star(star, inside if inside.of(star.table) else outside, WHERE)
    if len(inside.of("")) != len(inside.names) or not is_whole_star(star):
        raise refused(WHERE, "a field of it is *. Name the columns")
    return [build.column(name, table) for table, name in inside.of("")]
