"""What can be known of a SELECT's rows before the calls below it are answered.

A SELECT whose calls are not answered leaves a stand-in: a table with NULL in the place of answers
and with every row that a filter might leave. A SELECT that reads one is followed only where that
cannot mislead: a single source, whose rows are kept or dropped by columns without answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """What is known of the rows of a table.

    most: how many there are at most; None if that is not known. exact: whether there are just so
    many. held: whether all of them are in the table at hand, which may have more unless `exact`.
    open: lower-case names of the columns that depend on answers.
    """

    most: int | None = None
    exact: bool = True
    held: bool = True
    open: frozenset[str] = frozenset()

    def is_open(self, node: exp.Expr, reads: Callable[[exp.Query], bool] = _always) -> bool:
        """Whether the value of an expression depends on answers, or may.

        reads: whether a subquery does by the tables that it names.
        """
        return any(
            (isinstance(part, exp.Query) and reads(part))
            or (isinstance(part, exp.Star) and not isinstance(part.parent, exp.Count))
            or (isinstance(part, exp.Column) and self.is_open_column(part.name))
            for part in node.walk()
        )

    def is_open_column(self, name: str) -> bool:
        """Whether a column holds answers, or depends on them."""
        return name.lower() in self.open or ours.call_of(name) is not None


ALL = Known()
"""Of rows that no call has to do with."""
NOTHING = Known(None, exact=False, held=False)


def known_base(inner: exp.Select, context: Context, stand_ins: Mapping[str, Known]) -> Known:
    """Of the base of a plan; `most` is left to who counts its rows if they are held."""
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
    if any(map(table.is_open, deciding)) or (cuts and not table.exact):
        return Known(table.most, exact=False, held=False)
    columns = (item.alias.lower() for item in inner.expressions if table.is_open(item))
    return replace(table, open=frozenset(columns))


def reading(stand_ins: Mapping[str, Known], context: Context) -> Callable[[exp.Query], bool]:
    """What tells whether a query reads one of the stand-ins, in a SELECT that sees `context`."""
    entries = _entries(context)
    return lambda query: _reads(query, entries, set(stand_ins), set())


def known_rows(select: exp.Select, rows: Known, aggregates: Aggregates) -> Known:
    """Of what the last SELECT of a plan gives over its rows, of which `rows` is known."""
    items = select.expressions
    if any(item.find(exp.UDTF, exp.Explode) for item in items) or has_grouping_sets(select):
        return NOTHING
    folds = aggregates.in_select(select)
    keys = keys_of(select, aggregates)
    most = 1 if folds and not keys else rows.most
    if any(select.args.get(key) for key in _CUTS) or any(map(rows.is_open, keys)):
        return Known(most, exact=False, held=False)
    columns = {
        item.alias.lower()
        for item in items
        if rows.is_open(item) or not (rows.exact or _is_of_one_row(item, aggregates))
    }
    exact = rows.exact or (folds and not keys)
    return Known(most, exact, rows.held or (folds and not keys), frozenset(columns))


def _entries(context: Context) -> dict[str, exp.CTE]:
    """WITH entries by name, those inside of others too."""
    found = (inner for entry in context.entries for inner in entry.find_all(exp.CTE))
    return {entry.alias.lower(): entry for entry in found}


def _reads(
    node: exp.Expr, entries: Mapping[str, exp.CTE], wanted: set[str], seen: set[str]
) -> bool:
    """Whether a query reads one of some tables, itself or by the WITH entries that it names."""
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
    """The stand-in that a source of a FROM clause is, under the names of its columns."""
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
    """Whether a value depends on its row alone, so that it is the same when other rows go."""
    return item.find(exp.Window) is None and next(aggregates.inside(item), None) is None
