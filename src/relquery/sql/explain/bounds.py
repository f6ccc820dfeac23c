"""What is known about a SELECT's rows before the calls in its subqueries are answered.

A SELECT whose calls are not answered yet leaves a stand-in: a table with NULL in place of answers
and with every row that a filter might keep. A SELECT that reads a stand-in is analyzed only if
this cannot mislead: it has a single source, and only columns without answers decide its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relquery.sql import names as ours
from relquery.sql.binder.functions import FunctionCatalog, has_window, makes_rows
from relquery.sql.binder.normalize import has_grouping_sets, keys_of
from relquery.sql.binder.sources import Context
from relquery.sql.parser import tree


@dataclass(frozen=True, slots=True)
class KnownRows:
    """What is known about the rows of a table.

    most: the maximum number of rows; None if unknown. exact: whether there are exactly that many.
    held: whether the table at hand contains all of them; it may contain more unless `exact`.
    open: lower-case names of the columns that depend on answers. expected: whether the table at
    hand is an estimate of the rows that remain, based on selectivities, and not an upper bound.
    """

    most: int | None = None
    exact: bool = True
    held: bool = True
    open: frozenset[str] = frozenset()
    expected: bool = False

    @property
    def is_at_hand(self) -> bool:
        """Whether the rows can be counted or estimated before the run."""
        return self.held and (self.exact or self.expected)

    def may_be_open(self, node: tree.Node) -> bool:
        """Whether the value of an expression depends on answers, or may do so."""
        return self.is_open(node) or any(
            isinstance(part, tree.Query | tree.Star) for part in node.walk()
        )

    def is_open(self, node: tree.Node) -> bool:
        """Whether an expression reads a column that contains or depends on answers."""
        names = (name for column in node.find_all(tree.Column) for name in column.names)
        return any(name.lower() in self.open or ours.call_of(name) is not None for name in names)


ALL = KnownRows()
"""For rows unaffected by any LLM call."""
NOTHING = KnownRows(None, exact=False, held=False)


def known_base(
    inner: tree.Select, context: Context, stand_ins: Mapping[str, KnownRows]
) -> KnownRows:
    """What is known about a plan's base; if `held`, the caller sets `most` by counting the rows."""
    read = [inner, *context.needed_by([inner])]
    if not any(table.table in stand_ins for one in read for table in one.find_all(tree.Table)):
        return ALL
    source = inner.source
    if source is None or isinstance(source, tree.Join) or inner.sample is not None:
        return NOTHING
    entries = [*context.entries, *inner.find_all(tree.Entry)]
    named = {one.name.lower(): one for one in entries if "query_node" in one.value.args}
    found = _stand_in(source, named, stand_ins)
    if found is None:
        return NOTHING
    table = replace(found, open=found.open | {source.name.lower()})
    deciding = [one for one in (inner.where, inner.order) if one is not None]
    if any(map(table.may_be_open, deciding)) or not (inner.limit is None or table.is_at_hand):
        return KnownRows(table.most, exact=False, held=False)
    columns = (item.alias.lower() for item in inner.items if table.may_be_open(item))
    return replace(table, open=frozenset(columns))


def known_rows(select: tree.Select, rows: KnownRows, functions: FunctionCatalog) -> KnownRows:
    """What is known about the result of a plan's final SELECT; `rows`: the same about its input."""
    folds, keys = functions.in_select(select), keys_of(select, functions)
    if any(map(makes_rows, select.items)) or has_grouping_sets(select):
        return NOTHING
    is_one = bool(folds) and not keys
    most = 1 if is_one else rows.most
    cuts = [select.distinct, select.having, select.qualify, select.limit]
    cuts = [one for one in cuts if one is not None]
    # Whether the number of rows is still an estimate, not a bound, after these clauses.
    decided = [*cuts, *(select.items if select.distinct is not None else ())]
    is_expected = rows.expected and not any(map(rows.may_be_open, decided))
    if any(map(rows.may_be_open, keys)) or (cuts and not is_expected):
        return KnownRows(most, exact=False, held=False)
    columns = {
        item.alias.lower()
        for item in select.items
        # A value of several rows depends on answers where these decide which rows there are.
        if rows.may_be_open(item)
        or (not rows.exact and (has_window(item) or functions.has_aggregate(item)))
    }
    exact = (rows.exact and not cuts) or is_one
    return KnownRows(most, exact, rows.held or is_one, frozenset(columns), rows.expected)


def _stand_in(
    source: tree.Source, entries: Mapping[str, tree.Entry], stand_ins: Mapping[str, KnownRows]
) -> KnownRows | None:
    """The stand-in that a source of a FROM clause reads whole, with its column names unchanged."""
    if source.sample is not None or source.columns:
        return None
    query = source.query if isinstance(source, tree.Derived) else None
    if isinstance(source, tree.Table) and source.table.lower() in entries:
        entry = entries[source.table.lower()]
        query = None if entry.columns else entry.query
    if not isinstance(query, tree.Select) or query.modifiers or query.where is not None:
        return None
    is_whole = len(query.items) == 1 and isinstance(query.items[0], tree.Star)
    table = query.source
    return stand_ins.get(table.table) if is_whole and isinstance(table, tree.Table) else None
