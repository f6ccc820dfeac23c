"""What is known about a SELECT's rows before the calls in its subqueries are answered.

A SELECT whose calls are not answered yet leaves a stand-in: a table with NULL in place of answers
and with every row that a filter might keep. A SELECT that reads a stand-in is analyzed only if
this cannot mislead: it has a single source, and only columns without answers decide its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.form.groups import keys_of
from relquery.sql.form.normalize import has_grouping_sets
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.scopes import Context

_CUTS = ("distinct", "having", "qualify", "limit", "offset")


def _always(query: exp.Query) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Known:
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

    def is_open(self, node: exp.Expr, reads: Callable[[exp.Query], bool] = _always) -> bool:
        """Whether the value of an expression depends, or may depend, on answers.

        reads: whether a subquery does, judging by the tables that it names.
        """
        return any(
            (isinstance(part, exp.Query) and reads(part))
            or (isinstance(part, exp.Star) and not isinstance(part.parent, exp.Count))
            or (isinstance(part, exp.Column) and self.is_open_column(part.name))
            for part in node.walk()
        )

    def is_open_column(self, name: str) -> bool:
        """Whether a column contains or depends on answers."""
        return name.lower() in self.open or ours.call_of(name) is not None


ALL = Known()
"""For rows unaffected by any LLM call."""
NOTHING = Known(None, exact=False, held=False)


def known_base(inner: exp.Select, context: Context, stand_ins: Mapping[str, Known]) -> Known:
    """What is known about a plan's base; if `held`, the caller sets `most` by counting the rows."""
    entries = _entries(context) | {one.alias.lower(): one for one in inner.find_all(exp.CTE)}
    if not _reads(inner, entries, set(stand_ins), set()):
        return ALL
    source = inner.args["from_"].this if inner.args.get("from_") else None
    if source is None or any(inner.args.get(key) for key in ("joins", "laterals", "sample")):
        return NOTHING
    found = _stand_in(source, entries, stand_ins)
    if found is None:
        return NOTHING
    table = replace(found, open=found.open | {source.alias_or_name.lower()})
    cuts = [inner.args[key] for key in ("limit", "offset") if inner.args.get(key)]
    deciding = [inner.args[key] for key in ("where", "order") if inner.args.get(key)]
    if any(map(table.is_open, deciding)) or (cuts and not table.is_at_hand):
        return Known(table.most, exact=False, held=False)
    columns = (item.alias.lower() for item in inner.expressions if table.is_open(item))
    return replace(table, open=frozenset(columns))


def reading(stand_ins: Mapping[str, Known], context: Context) -> Callable[[exp.Query], bool]:
    """A function that says whether a query reads a stand-in, in a SELECT that sees `context`."""
    entries = _entries(context)
    return lambda query: _reads(query, entries, set(stand_ins), set())


def known_rows(select: exp.Select, rows: Known, aggregates: Aggregates) -> Known:
    """What is known about the result of a plan's final SELECT; `rows`: the same about its input."""
    items = select.expressions
    if any(item.find(exp.UDTF, exp.Explode) for item in items) or has_grouping_sets(select):
        return NOTHING
    folds = aggregates.in_select(select)
    keys = keys_of(select, aggregates)
    most = 1 if folds and not keys else rows.most
    cuts = [select.args[key] for key in _CUTS if select.args.get(key)]
    if any(map(rows.is_open, keys)) or (cuts and not _are_expected(cuts, select, rows)):
        return Known(most, exact=False, held=False)
    columns = {
        item.alias.lower()
        for item in items
        if rows.is_open(item) or not (rows.exact or _is_of_one_row(item, aggregates))
    }
    is_one = folds and not keys
    exact = (rows.exact and not cuts) or is_one
    return Known(most, exact, rows.held or is_one, frozenset(columns), rows.expected)


def _are_expected(cuts: Sequence[exp.Expr], select: exp.Select, rows: Known) -> bool:
    """Whether the number of rows is still an estimate, not a bound, after these clauses."""
    decided = [*cuts, *select.expressions] if select.args.get("distinct") else cuts
    return rows.expected and not any(map(rows.is_open, decided))


def _entries(context: Context) -> dict[str, exp.CTE]:
    """WITH entries by name, including nested ones."""
    found = (inner for entry in context.entries for inner in entry.find_all(exp.CTE))
    return {entry.alias.lower(): entry for entry in found}


def _reads(
    node: exp.Expr, entries: Mapping[str, exp.CTE], wanted: set[str], seen: set[str]
) -> bool:
    """Whether a query reads one of some tables, directly or through WITH entries."""
    for table in node.find_all(exp.Table):
        name = table.name.lower()
        if name in wanted:
            return True
        if name in entries and name not in seen:
            seen.add(name)
            if _reads(entries[name].this, entries, wanted, seen):
                return True
    return False


def _stand_in(
    source: exp.Expr, entries: Mapping[str, exp.CTE], stand_ins: Mapping[str, Known]
) -> Known | None:
    """The stand-in that a source of a FROM clause reads whole, with its column names unchanged."""
    if source.args.get("pivots") or source.args.get("sample") or source.alias_column_names:
        return None
    query = source.this if isinstance(source, exp.Subquery) else None
    if isinstance(source, exp.Table) and source.name.lower() in entries:
        entry = entries[source.name.lower()]
        query = None if entry.alias_column_names else entry.this
    if not isinstance(query, exp.Select) or {key for key, arg in query.args.items() if arg} != {
        "expressions",
        "from_",
    }:
        return None
    table = query.args["from_"].this
    is_whole = len(query.expressions) == 1 and isinstance(query.expressions[0], exp.Star)
    return stand_ins.get(table.name) if is_whole and isinstance(table, exp.Table) else None


def _is_of_one_row(item: exp.Expr, aggregates: Aggregates) -> bool:
    """Whether a value depends only on its row, so dropping other rows does not change it."""
    return item.find(exp.Window) is None and next(aggregates.inside(item), None) is None
