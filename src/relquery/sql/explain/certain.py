"""The parts of a statement that DuckDB computes whatever the answers are. Its SELECTs with calls
have become tables; everything that depends on answers is replaced by NULL.

If a query's rows depend on answers, this is not possible. DuckDB still runs every branch of a
UNION, so each branch is then examined by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from relquery.sql.explain.bounds import Known
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.binding import is_variable
from relquery.sql.read.source import to_sql

_DECIDING = ("where", "group", "having", "qualify", "distinct", "windows", "limit", "offset")
_GUARDING = (exp.Case, exp.If, exp.Coalesce, exp.And, exp.Or)
_CUTS = ("limit", "offset")


def certain_queries(
    tree: exp.Expr, stand_ins: Mapping[str, Known], aggregates: Aggregates
) -> list[str]:
    """Queries that fail only if the statement fails too: it runs the same. `tree` is unchanged.

    stand_ins: what is known about the tables that replace SELECTs with calls.
    """
    query = tree if isinstance(tree, exp.Query) else _query_of(tree)
    if query is None or aggregates.is_volatile(tree) or tree.find(exp.TableSample):
        return []
    return list(_certain(query.copy(), _Settler(stand_ins, aggregates)))


def _query_of(statement: exp.Expr) -> exp.Expr | None:
    found = statement.args.get("this" if isinstance(statement, exp.Copy) else "expression")
    return found if isinstance(found, exp.Query) else None


def _certain(query: exp.Expr, settler: _Settler) -> Iterator[str]:
    whole = query.copy()
    if settler.open_columns(whole) is not None:
        yield to_sql(whole)
    elif isinstance(query, exp.Subquery) and not _is_cut(query):
        yield from _certain(_with_entries_of(query, query.this), settler)
    elif isinstance(query, exp.SetOperation) and not _is_cut(query):
        for branch in (query.this, query.expression):
            yield from _certain(_with_entries_of(query, branch), settler)


def _is_cut(query: exp.Expr) -> bool:
    """Whether a query may skip part of its input because of LIMIT or OFFSET."""
    return any(query.args.get(key) for key in _CUTS)


def _with_entries_of(query: exp.Expr, inner: exp.Expr) -> exp.Expr:
    """A part of a query with the WITH entries of the whole query, followed by its own."""
    outer = query.args.get("with_")
    if outer is not None:
        own = inner.args.get("with_")
        outer = outer.copy()
        for entry in own.expressions if own is not None else ():
            outer.append("expressions", entry)
        inner.set("with_", outer)
    return inner


@dataclass(slots=True)
class _Open:
    """The names visible to an expression that depend on answers, in lower case.

    columns: names of columns. rows: names of sources that have such columns.
    """

    columns: set[str] = field(default_factory=set)
    rows: set[str] = field(default_factory=set)

    def has(self, part: exp.Expr) -> bool:
        """Whether this node itself reads one of these names."""
        if isinstance(part, exp.Column):
            name = part.name.lower()
            return not part.table and name in self.rows and not is_variable(part)
        if isinstance(part, exp.Identifier):  # also inside a column whose fields are read
            return part.name.lower() in self.columns and not is_variable(part)
        is_star = isinstance(part, exp.Star) and not isinstance(part.parent, exp.Count)
        return bool(self.columns) and (is_star or isinstance(part, exp.Columns))


@dataclass(slots=True)
class _Settler:
    """Replaces everything that depends on answers with NULL, query by query.

    entries: for each WITH entry in scope, its columns that depend on answers; None if its rows
    depend on answers too.
    """

    stand_ins: Mapping[str, Known]
    aggregates: Aggregates
    entries: dict[str, frozenset[str] | None] = field(default_factory=dict)

    def open_columns(self, query: exp.Expr) -> frozenset[str] | None:
        """Lower-case names of a query's columns that depended on answers and are NULL now.

        None if its rows depend on answers.
        """
        inner = _Settler(self.stand_ins, self.aggregates, dict(self.entries))
        if (clause := query.args.get("with_")) is not None:
            for entry in clause.expressions:
                inner._enter(entry, bool(clause.args.get("recursive")))
        if isinstance(query, exp.Subquery) and set(_given(query)) <= {"this", "alias", "with_"}:
            return inner.open_columns(query.this)
        if isinstance(query, exp.SetOperation):
            return inner._of_branches(query)
        return inner._of_select(query) if isinstance(query, exp.Select) else inner._if_closed(query)

    def _enter(self, entry: exp.CTE, recursive: bool) -> None:
        names = entry.alias_column_names
        found = self._if_closed(entry.this) if recursive or names else self.open_columns(entry.this)
        self.entries[entry.alias.lower()] = found

    def _if_closed(self, node: exp.Expr) -> frozenset[str] | None:
        """No columns; None if anything depends on answers."""
        return None if self._reads_answers(node) else frozenset()

    def _reads_answers(self, node: exp.Expr) -> bool:
        """Whether a query in a tree reads rows or columns that depend on answers."""
        for table in node.find_all(exp.Table):
            name = table.name.lower()
            if table.name in self.stand_ins or self.entries.get(name, frozenset()) != frozenset():
                return True
        return False

    def _of_branches(self, query: exp.Expr) -> frozenset[str] | None:
        found = [self.open_columns(side) for side in (query.this, query.expression)]
        if None in found or (any(found) and not _appends(query)):
            return None
        names = [_names(side) for side in (query.this, query.expression)]
        if not any(found):
            return frozenset()
        if names[0] is None or names[1] is None or len(names[0]) != len(names[1]):
            return None
        return frozenset(
            first
            for first, second in zip(names[0], names[1], strict=True)
            if first in (found[0] or ()) or second in (found[1] or ())
        )

    def _of_select(self, select: exp.Select) -> frozenset[str] | None:
        open_ = _Open()
        joins = select.args.get("joins") or []
        for source in _sources(select):
            columns = self._of_source(source, open_)
            if columns is None:
                return None
            if columns:
                open_.columns |= columns
                open_.rows.add(source.alias_or_name.lower())
        if any(self._decides(join, open_) for join in joins):
            return None
        columns = self._of_items(select, open_)
        return columns if columns is None or self._keeps_rows(select, open_) else None

    def _of_source(self, source: exp.Expr, before: _Open) -> frozenset[str] | None:
        """Open columns of a source in a FROM clause; it may read the columns `before` it."""
        if any(map(before.has, source.walk())):
            return None
        if isinstance(source, exp.Table):
            found = self._of_table(source)
        elif isinstance(source, exp.Subquery):
            found = self.open_columns(source)
        else:
            found = self._if_closed(source)
        changes = ("pivots", "sample", "joins")
        if found and (source.alias_column_names or any(map(source.args.get, changes))):
            return None
        return found

    def _of_table(self, table: exp.Table) -> frozenset[str] | None:
        known = self.stand_ins.get(table.name)
        if known is None:
            return self.entries.get(table.name.lower(), frozenset())
        return known.open if known.exact and known.held else None

    def _of_items(self, select: exp.Select, open_: _Open) -> frozenset[str] | None:
        """Replace open items with NULL and add their names to `open_`."""
        given: set[str] = set()
        for item in list(select.expressions):
            if _is_whole_star(item):
                given |= open_.columns
            elif self._is_open(item, open_):
                if item.find(exp.Star, exp.Columns, exp.UDTF, exp.Explode):
                    return None
                name = item.alias_or_name
                given.add(name.lower())
                open_.columns.add(name.lower())
                null = self._null_for(item, open_)
                item.replace(exp.alias_(null, name, quoted=True) if name else null)
        return frozenset(given)

    def _null_for(self, item: exp.Expr, open_: _Open) -> exp.Expr:
        """The NULL for an item; an aggregate if the item has one, to keep the number of rows.

        It still reads the item's subqueries that neither depend on answers nor are under a
        condition, because DuckDB computes these for all rows.
        """
        if next(self.aggregates.inside(item), None) is not None:
            return exp.Max(this=exp.null())
        null: exp.Expr = exp.null()
        for query in _subqueries(item):
            if not self._is_open(query, open_):
                null = exp.Case().when(exp.Is(this=query.copy(), expression=exp.null()), null)
        return null

    def _keeps_rows(self, select: exp.Select, open_: _Open) -> bool:
        """Whether no clause lets answers decide which rows there are; removes an open ORDER BY."""
        if any(self._is_open(select.args.get(key), open_) for key in _DECIDING):
            return False
        has_open = bool(open_.columns)
        if has_open and (_is_by_place(select.args.get("group")) or select.args.get("distinct")):
            return False
        order = select.args.get("order")
        if self._is_open(order, open_) or (has_open and _is_by_place(order)):
            select.set("order", None)
            return not _is_cut(select)
        return True

    def _decides(self, join: exp.Expr, open_: _Open) -> bool:
        """Whether answers decide which rows a join gives."""
        if join.args.get("method") == "NATURAL" and open_.columns:
            return True
        return any(self._is_open(join.args.get(key), open_) for key in ("using", "on"))

    def _is_open(self, node: object, open_: _Open) -> bool:
        """Whether an expression, or any in a list, depends on answers."""
        if isinstance(node, list):
            return any(self._is_open(one, open_) for one in node)
        if not isinstance(node, exp.Expr):
            return False
        return self._reads_answers(node) or any(map(open_.has, node.walk()))


def _subqueries(node: exp.Expr) -> Iterator[exp.Subquery]:
    """The scalar subqueries of an expression that are computed unconditionally."""
    for found in node.find_all(exp.Subquery):
        outer = found.find_ancestor(exp.Query, *_GUARDING)
        if found is not node and outer is node.find_ancestor(exp.Query):
            yield found


def _sources(select: exp.Select) -> list[exp.Expr]:
    from_ = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or []]
    return [*([from_.this] if from_ else []), *joined, *(select.args.get("laterals") or [])]


def _given(node: exp.Expr) -> list[str]:
    return [key for key, value in node.args.items() if value]


def _appends(query: exp.Expr) -> bool:
    """Whether a set operation gives the rows of both sides, one after the other."""
    loose = ("distinct", "by_name", "order", "limit", "offset")
    return isinstance(query, exp.Union) and not any(query.args.get(key) for key in loose)


def _names(query: exp.Expr) -> list[str] | None:
    """Lower-case names of a query's columns; None if the query does not spell them out."""
    while isinstance(query, exp.Subquery | exp.SetOperation):
        query = query.this
    if not isinstance(query, exp.Select) or any(item.is_star for item in query.expressions):
        return None
    return [item.alias_or_name.lower() for item in query.expressions]


def _is_whole_star(item: exp.Expr) -> bool:
    star = item.this if isinstance(item, exp.Column) else item
    return isinstance(star, exp.Star) and not _given(star)


def _is_by_place(clause: exp.Expr | None) -> bool:
    """Whether GROUP BY or ORDER BY refers to items by position, or is ... BY ALL."""
    if clause is None:
        return False
    keys = [key.this if isinstance(key, exp.Ordered) else key for key in clause.expressions]
    return bool(clause.args.get("all")) or any(
        isinstance(key, exp.Literal) or key.name.upper() == "ALL" for key in keys
    )
